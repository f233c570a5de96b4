"""OpenTelemetry traces with its conventions for HTTP and generative AI, if it is installed and configured.

Each request is a span in the client's trace (``traceparent``), and each generated choice a span within it. Spans
contain no prompts and no generated text.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyggml import ChatCompletion
from pyggml.server.observability.logs import logger
from pyggml.server.observability.observer import Observer

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from pyggml.server.http.request import ServerRequest
    from pyggml.server.http.request_outcome import GeneratedChoice

# OpenTelemetry's environment variables for the destination of spans.
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

# Attributes of spans -> names of the field in the bodies of the protocols.
_REQUEST_ATTRIBUTES = {
    f"gen_ai.request.{name}": (name,)
    for name in ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "stream")
} | {"gen_ai.request.max_tokens": ("max_completion_tokens", "max_output_tokens", "max_tokens")}


def observers() -> list[Observer]:
    """Return the observer that traces requests, if a tracer provider or a destination is configured."""
    try:
        from opentelemetry import trace
    except ImportError:
        return []
    provider = trace.get_tracer_provider()
    if not isinstance(provider, trace.ProxyTracerProvider):
        return [Traces(provider)]
    if any(map(os.environ.get, _ENDPOINT_VARIABLES)) and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp":
        return _otlp_observers()
    return []


def _otlp_observers() -> list[Observer]:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        logger.warning("no traces: %s; install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http", error)
        return []
    environment = OTELResourceDetector().detect()
    provider = TracerProvider(resource=Resource.create({"service.name": "pyggml"}).merge(environment))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return [Traces(provider, provider.shutdown)]


class Traces(Observer):
    """Spans of all requests except probes, and of each generated choice."""

    def __init__(self, provider: TracerProvider, close: Callable[[], None] | None = None) -> None:
        """Use the tracer of ``provider``; ``close`` is called at the end of the server."""
        self._tracer: Tracer = provider.get_tracer("pyggml.server")
        self._close = close
        self._running: dict[ServerRequest, tuple[Span, int]] = {}

    def request_started(self, request: ServerRequest) -> None:
        """Start the request's span."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        if request.endpoint.is_probe:
            return
        http = request.http
        started_ns = time.time_ns() - _ns(time.monotonic() - request.started_s)
        attributes = {
            "http.request.method": http.method,
            "http.route": request.endpoint.path,
            "url.path": http.url.path,
            "url.scheme": http.url.scheme,
            "client.address": http.client.host if http.client else "",
            "pyggml.request.id": request.id,
        }
        name = f"{http.method} {request.endpoint.path}"
        parent = extract(dict(http.headers))
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes, start_time=started_ns)
        self._running[request] = span, started_ns

    def request_failed(self, request: ServerRequest, error: Exception) -> None:
        """Record the error in the request's span."""
        if request in self._running:
            self._running[request][0].record_exception(error)

    def request_ended(self, request: ServerRequest) -> None:
        """End the request's span, after those of its choices."""
        from opentelemetry.trace import StatusCode

        if request not in self._running:
            return
        span, started_ns = self._running.pop(request)
        outcome = request.outcome
        for choice in outcome.choices:
            self._add_choice(request, choice, span, started_ns)
        span.set_attribute("pyggml.outcome", outcome.name)
        if outcome.status is not None:
            span.set_attribute("http.response.status_code", outcome.status)
        if outcome.failure is not None:
            span.set_attribute("error.type", outcome.failure.code or outcome.failure.kind)
        if outcome.name == "server_error":
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Export the remaining spans."""
        if self._close is not None:
            self._close()

    def _add_choice(self, request: ServerRequest, choice: GeneratedChoice, parent: Span, started_ns: int) -> None:
        from opentelemetry.trace import set_span_in_context

        completion, timings = choice.completion, choice.completion.timings
        operation = "chat" if isinstance(completion, ChatCompletion) else "text_completion"
        submitted_ns = started_ns + _ns(choice.submitted_s or 0.0)
        span = self._tracer.start_span(
            f"{operation} {choice.model}",
            set_span_in_context(parent),
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "pyggml",
                "gen_ai.request.model": getattr(request.body, "model", None) or choice.model,
                "gen_ai.response.model": choice.model,
                "gen_ai.response.finish_reasons": (completion.finish_reason,),
                "gen_ai.usage.input_tokens": completion.prompt_tokens,
                "gen_ai.usage.cache_read.input_tokens": completion.cached_tokens,
                "gen_ai.usage.output_tokens": len(completion.token_ids),
                **_request_attributes(request.body),
            },
            start_time=submitted_ns,
        )
        if choice.ttft_s is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", choice.ttft_s)
            span.add_event("gen_ai.first_token", timestamp=started_ns + _ns(choice.ttft_s))
        span.end(submitted_ns + _ns(timings.ttft_s + timings.decode_s))


def _request_attributes(body: Any) -> dict[str, Any]:
    attributes = {}
    for attribute, names in _REQUEST_ATTRIBUTES.items():
        values = (getattr(body, name, None) for name in names)
        if (value := next((each for each in values if each is not None), None)) is not None:
            attributes[attribute] = value
    return attributes


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)

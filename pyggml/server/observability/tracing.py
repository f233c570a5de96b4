"""Traces for OpenTelemetry, in its conventions for HTTP and generative AI, if it is installed and configured.

Each request is a span, within the client's trace if it sends one (``traceparent``), and each answer a span within that.
No span has text of a prompt or an answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyggml import ChatCompletion
from pyggml.server.observability.logs import logger
from pyggml.server.observability.observer import Answer, Ended, Observer

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from pyggml.server.http.request import Call

# The environment that says where spans go, as OpenTelemetry specifies it.
_WHERE = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

# Fields of bodies that are attributes of requests; protocols give them these names or others.
_ASKED = {
    "gen_ai.request.max_tokens": ("max_completion_tokens", "max_output_tokens", "max_tokens"),
    "gen_ai.request.temperature": ("temperature",),
    "gen_ai.request.top_p": ("top_p",),
    "gen_ai.request.top_k": ("top_k",),
    "gen_ai.request.seed": ("seed",),
    "gen_ai.request.frequency_penalty": ("frequency_penalty",),
    "gen_ai.request.presence_penalty": ("presence_penalty",),
    "gen_ai.request.stream": ("stream",),
}


def observers() -> list[Observer]:
    """What traces calls: nothing, unless a tracer provider was set, or the environment says where spans go."""
    try:
        from opentelemetry import trace
    except ImportError:
        return []
    provider = trace.get_tracer_provider()
    if not isinstance(provider, trace.ProxyTracerProvider):
        return [Traces(provider)]
    if any(map(os.environ.get, _WHERE)) and os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp":
        return _exporting()
    return []


def _exporting() -> list[Observer]:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        logger.warning("no traces: %s; install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http", error)
        return []
    named = OTELResourceDetector().detect()  # what the environment says
    provider = TracerProvider(resource=Resource.create({"service.name": "pyggml"}).merge(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return [Traces(provider, provider.shutdown)]


class Traces(Observer):
    """Makes a span of each call but probes, when it ends, and one of each answer."""

    def __init__(self, provider: TracerProvider, close: Callable[[], None] | None = None) -> None:
        """Makes spans of ``provider``; ``close`` is called when the server has ended."""
        self._tracer: Tracer = provider.get_tracer("pyggml.server")
        self._close = close
        self._running: dict[Call, tuple[Span, int]] = {}

    def call_began(self, call: Call) -> None:
        """Begins the call's span."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        if call.endpoint.is_probe:
            return
        request = call.request
        began_ns = time.time_ns() - _ns(time.monotonic() - call.began_s)
        attributes = {
            "http.request.method": request.method,
            "http.route": call.endpoint.path,
            "url.path": request.url.path,
            "url.scheme": request.url.scheme,
            "client.address": request.client.host if request.client else "",
            "pyggml.request.id": call.id,
        }
        name = f"{request.method} {call.endpoint.path}"
        within = extract(dict(request.headers))
        span = self._tracer.start_span(name, within, SpanKind.SERVER, attributes, start_time=began_ns)
        self._running[call] = span, began_ns

    def failed(self, call: Call, error: Exception) -> None:
        """Keeps what the server did not expect."""
        if call in self._running:
            self._running[call][0].record_exception(error)

    def call_ended(self, call: Call, ended: Ended) -> None:
        """Ends the call's span, after those of its answers."""
        from opentelemetry.trace import StatusCode

        if call not in self._running:
            return
        span, began_ns = self._running.pop(call)
        for answer in ended.answers:
            self._answered(call, answer, span, began_ns)
        span.set_attribute("pyggml.outcome", ended.outcome)
        if ended.status is not None:
            span.set_attribute("http.response.status_code", ended.status)
        if ended.failure is not None:
            span.set_attribute("error.type", ended.failure.code or ended.failure.kind)
        if ended.outcome == "server_error":
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Sends what has not been sent."""
        if self._close is not None:
            self._close()

    def _answered(self, call: Call, answer: Answer, parent: Span, began_ns: int) -> None:
        from opentelemetry.trace import set_span_in_context

        completion, timings = answer.completion, answer.completion.timings
        operation = "chat" if isinstance(completion, ChatCompletion) else "text_completion"
        submitted_ns = began_ns + _ns(answer.submitted_s or 0.0)
        span = self._tracer.start_span(
            f"{operation} {answer.model}",
            set_span_in_context(parent),
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "pyggml",
                "gen_ai.request.model": getattr(call.received, "model", None) or answer.model,
                "gen_ai.response.model": answer.model,
                "gen_ai.response.finish_reasons": (completion.finish_reason,),
                "gen_ai.usage.input_tokens": completion.prompt_tokens,
                "gen_ai.usage.cache_read.input_tokens": completion.cached_tokens,
                "gen_ai.usage.output_tokens": len(completion.token_ids),
                **_asked(call.received),
            },
            start_time=submitted_ns,
        )
        if answer.ttft_s is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", answer.ttft_s)
            span.add_event("gen_ai.first_token", timestamp=began_ns + _ns(answer.ttft_s))
        span.end(submitted_ns + _ns(timings.ttft_s + timings.decode_s))


def _asked(body: Any) -> dict[str, Any]:
    asked = {}
    for attribute, names in _ASKED.items():
        values = (getattr(body, name, None) for name in names)
        if (value := next((each for each in values if each is not None), None)) is not None:
            asked[attribute] = value
    return asked


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)

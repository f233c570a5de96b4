"""Traces, by OpenTelemetry's own SDK, and as they reach a collector."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.servers import servers

import pyggml.server
from pyggml.server.observability import tracing
from pyggml.server.observability.observer import Observers
from pyggml.server.observability.tracing import Traces

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "Once upon a midnight"


class Traced:
    """A server whose spans are kept."""

    def __init__(self, url: str, exporter: InMemorySpanExporter) -> None:
        self.url = url
        self._exporter = exporter

    def spans(self, n: int) -> list[ReadableSpan]:
        """The next spans, which end a moment after their answers were read."""
        servers.eventually(lambda: len(self._exporter.get_finished_spans()) >= n)
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        assert len(found) == n
        return found


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = pyggml.server.create_app()
    worker = app.state.worker
    worker.observer = Observers([worker.observer, Traces(provider)])
    with servers.serving(app) as url:
        yield Traced(url, exporter)
    provider.shutdown()


def test_a_chat_is_a_span_within_the_clients_trace(traced: Traced) -> None:
    body = {
        "messages": [{"role": "user", "content": SECRET}],
        "max_tokens": 5,
        "temperature": 0.5,
        "seed": 3,
        "model": "default",
    }
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    usage = httpx.post(f"{traced.url}/v1/chat/completions", json=body, headers=headers).json()["usage"]
    answer, request = traced.spans(2)

    assert request.name == "POST /v1/chat/completions"
    assert request.kind is SpanKind.SERVER
    assert request.context is not None
    assert request.parent is not None
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "client.address": "127.0.0.1",
        "pyggml.request.id": "mine",
        "pyggml.outcome": "ok",
    }

    model = httpx.get(f"{traced.url}/health").json()["model"]
    assert answer.name == f"chat {model}"
    assert answer.parent is not None
    assert answer.parent.span_id == request.context.span_id
    attributes = dict(answer.attributes or {})
    ttft_s = attributes.pop("gen_ai.response.time_to_first_chunk")
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "pyggml",
        "gen_ai.request.model": "default",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": 3,
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 5,
    }
    (first,) = answer.events
    assert first.name == "gen_ai.first_token"
    assert request.start_time is not None
    assert first.timestamp == request.start_time + int(ttft_s * 1e9)  # type: ignore[operator]
    assert answer.start_time is not None
    assert answer.end_time is not None
    assert request.end_time is not None
    assert request.start_time <= answer.start_time < first.timestamp <= answer.end_time <= request.end_time
    assert SECRET not in request.to_json() + answer.to_json()


def test_choices_and_failures(traced: Traced) -> None:
    httpx.post(f"{traced.url}/v1/completions", json={"model": "default", "prompt": "Once", "n": 2, "max_tokens": 3})
    *answers, _ = traced.spans(3)
    assert [(each.attributes or {})["gen_ai.operation.name"] for each in answers] == ["text_completion"] * 2
    httpx.post(f"{traced.url}/execute", json={"model": "stranger", "prompt": "Once"})
    (refused,) = traced.spans(1)
    assert (refused.attributes or {})["error.type"] == "model_not_found"
    assert refused.status.status_code is StatusCode.UNSET
    assert refused.parent is None


def test_probes_are_not_traced(traced: Traced) -> None:
    for path in ("health", "ready", "metrics"):
        httpx.get(f"{traced.url}/{path}")
    httpx.get(f"{traced.url}/v1/models")
    (only,) = traced.spans(1)
    assert only.name == "GET /v1/models"


def test_nothing_without_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing._ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert tracing.observers() == []


@pytest.mark.slow
def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                content = gzip.decompress(content)
            received.append(ExportTraceServiceRequest.FromString(content))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
            monkeypatch.setenv("OTEL_SERVICE_NAME", "stories")
            with servers.serving() as url:
                httpx.post(f"{url}/execute", json={"prompt": "Once", "max_tokens": 3})
        finally:
            collector.shutdown()
            thread.join()
    resource = [resource for request in received for resource in request.resource_spans]
    assert {each.key: each.value.string_value for each in resource[0].resource.attributes}["service.name"] == "stories"
    names = [span.name for each in resource for scope in each.scope_spans for span in scope.spans]
    assert sorted(name.split()[0] for name in names) == ["POST", "text_completion"]

"""Prometheus metrics of the server, documented in docs/reference/server-metrics.md.

They cost nothing per token: a request is counted when it ends, and the engines' counters are read on collection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    Metric,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

import pyggml
from pyggml.server.observability.engine_metrics import EngineMetrics
from pyggml.server.observability.observer import Observer
from pyggml.system import build_info

if TYPE_CHECKING:
    from starlette.types import Scope

    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request import ServerRequest
    from pyggml.server.http.request_outcome import GeneratedChoice
    from pyggml.server.models.pool import LoadedModel

# Buckets in seconds: a small model on a GPU responds within a millisecond, a long prompt on a CPU takes minutes.
_WAITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_GAPS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_LOADS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_DELAYS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# Tokens per second.
_SPEEDS = (0.5, 1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 2000, 5000, 10000)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# Seconds between two measurements of the event loop's delay.
_MEASURE_S = 0.5


class Metrics(Observer):
    """Metrics of the server and of its engines.

    Clients cannot choose values of labels: routes are those of the endpoints, models those of the server, and keys the
    labels in its configuration; for anything else they are "".
    """

    def __init__(self, loaded: Callable[[], Sequence[LoadedModel]]) -> None:
        """Register the metrics; ``loaded`` returns the loaded models, from any thread."""
        self._registry = registry = CollectorRegistry()

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"pyggml_{name}", documentation, labels, registry=registry)

        def histogram(name: str, documentation: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"pyggml_{name}", documentation, labels, buckets=buckets, registry=registry)

        self._requests = counter(
            "requests", "Requests that have ended.", "method", "route", "protocol", "model", "status", "outcome"
        )
        self._in_flight = Gauge("pyggml_requests_in_flight", "Requests in progress.", ["route"], registry=registry)
        self._durations = histogram(
            "request_duration_seconds", "From a request's arrival to its response's end.", _WAITS, "route", "model"
        )
        self._first_tokens = histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token.", _WAITS, "model"
        )
        self._queues = histogram("queue_wait_seconds", "Time in the engine's queue.", _WAITS, "model")
        self._prefills = histogram("prefill_seconds", "Prefill time.", _WAITS, "model")
        self._gaps = histogram(
            "inter_token_latency_seconds", "Mean time between two tokens of a generation.", _GAPS, "model"
        )
        self._speeds = histogram(
            "tokens_per_second", "Mean tokens per second of a generation after its first token.", _SPEEDS, "model"
        )
        self._generations = counter("generations", "Generations that have ended.", "model", "finish_reason")
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens, including cached ones.", "model")
        self._cached_tokens = counter("cached_tokens", "Prompt tokens found in the prefix cache.", "model")
        self._generated_tokens = counter("generated_tokens", "Generated tokens.", "model")
        self._key_requests = counter("key_requests", "Requests of an API key that have ended.", "key", "status")
        self._key_tokens = counter("key_tokens", "Prompt and generated tokens of an API key.", "key")
        self._loads = counter("model_loads", "Attempts to load a model.", "model", "outcome")
        self._load_times = histogram("model_load_seconds", "Time to load a model.", _LOADS, "model")
        self._unloads = counter("model_unloads", "Models unloaded.", "model")
        self._delays = histogram("event_loop_delay_seconds", "Delay of the event loop.", _DELAYS)

        self._model_metrics = (
            *(self._first_tokens, self._queues, self._prefills, self._gaps, self._speeds),
            *(self._prompt_tokens, self._cached_tokens, self._generated_tokens, self._unloads),
        )
        build = {"version": pyggml.__version__, "engine": build_info().engine}
        Info("pyggml_build", "Versions of pyggml and of the engine.", registry=registry).info(build)
        registry.register(EngineMetrics(loaded))
        for process_collector in (ProcessCollector, PlatformCollector, GCCollector):
            process_collector(registry=registry)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics as text, in OpenMetrics or Prometheus' own format, and its content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(_WithoutCreationTimes(self._registry)), content_type

    async def monitor_event_loop(self) -> None:
        """Measure the delay of the event loop periodically, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _MEASURE_S
            await asyncio.sleep(_MEASURE_S)
            self._delays.observe(max(0.0, loop.time() - due_s))

    def request_started(self, request: ServerRequest) -> None:
        """Count the request as in flight."""
        self._in_flight.labels(request.endpoint.path).inc()

    def request_ended(self, request: ServerRequest) -> None:
        """Count the request and its generations."""
        outcome, endpoint, protocol = request.outcome, request.endpoint, request.protocol
        model = request.model.name if request.model else ""
        self._in_flight.labels(endpoint.path).dec()
        self._durations.labels(endpoint.path, model).observe(outcome.duration_s)
        status = "" if outcome.status is None else str(outcome.status)
        self._requests.labels(endpoint.method, endpoint.path, protocol.name, model, status, outcome.name).inc()
        for choice in outcome.choices:
            self._count_generation(choice)
        if request.account is not None:
            key = request.account.label
            self._key_requests.labels(key, status).inc()
            self._key_tokens.labels(key).inc(outcome.n_tokens)

    def request_refused(self, scope: Scope, failure: Failure) -> None:
        """Count the request."""
        method = scope["method"] if scope["method"] in _METHODS else ""
        outcome = "server_error" if failure.status >= 500 else "client_error"
        self._requests.labels(method, "", "", "", str(failure.status), outcome).inc()

    def model_loaded(self, name: str, seconds: float) -> None:
        """Count the load. The model's series start at 0, so that Prometheus sees their first increase."""
        for each in self._model_metrics:
            each.labels(name)
        self._loads.labels(name, "ok").inc()
        self._load_times.labels(name).observe(seconds)

    def model_failed(self, name: str, error: Exception) -> None:  # noqa: ARG002
        """Count the failed load."""
        self._loads.labels(name, "error").inc()

    def model_unloaded(self, name: str) -> None:
        """Count the unload."""
        self._unloads.labels(name).inc()

    def _count_generation(self, choice: GeneratedChoice) -> None:
        model, completion, timings = choice.model, choice.completion, choice.completion.timings
        self._generations.labels(model, completion.finish_reason).inc()
        self._prompt_tokens.labels(model).inc(completion.prompt_tokens)
        self._cached_tokens.labels(model).inc(completion.cached_tokens)
        self._generated_tokens.labels(model).inc(len(completion.token_ids))
        if choice.ttft_s is not None:
            self._queues.labels(model).observe(timings.queue_s)
            self._prefills.labels(model).observe(timings.prefill_s)
            self._first_tokens.labels(model).observe(choice.ttft_s)
        if timings.itl_s > 0:
            self._gaps.labels(model).observe(timings.itl_s)
            self._speeds.labels(model).observe(timings.tokens_per_s)


class _WithoutCreationTimes(Collector):
    """A registry without the creation times of series, which would be a third of the output."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
            yield metric

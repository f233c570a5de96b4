"""The server's figures for Prometheus. docs/reference/server-metrics.md describes each of them.

Nothing here costs anything per token: a call is counted when it ends, and the engines are asked when somebody looks.
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
from pyggml.server.observability.observer import Answer, Ended, Observer
from pyggml.system import build_info

if TYPE_CHECKING:
    from starlette.types import Scope

    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request import Call
    from pyggml.server.models.pool import Served

# Seconds. A small model on a GPU answers within a millisecond, a long prompt on a CPU takes minutes.
_WAITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_GAPS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_LOADS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_DELAYS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# Tokens per second.
_SPEEDS = (0.5, 1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 2000, 5000, 10000)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# Seconds between two looks at how late the event loop is.
_LOOK_S = 0.5


class Metrics(Observer):
    """Counts what the calls of one server do, and asks its engines how they are.

    No label has a value that a client could choose: routes are those of the endpoints, and models those that are
    offered; for anything else they are "".
    """

    def __init__(self, loaded: Callable[[], Sequence[Served]]) -> None:
        """Begins to count.

        Args:
            loaded: the models that are loaded at the moment, from any thread.
        """
        self._registry = registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"pyggml_{name}", about, labels, registry=registry)

        def histogram(name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"pyggml_{name}", about, labels, buckets=buckets, registry=registry)

        self._requests = counter(
            "requests", "Requests that have ended.", "method", "route", "protocol", "model", "status", "outcome"
        )
        self._in_flight = Gauge(
            "pyggml_requests_in_flight", "Requests that are being answered.", ["route"], registry=registry
        )
        self._durations = histogram(
            "request_duration_seconds", "From a request's arrival to its answer's end.", _WAITS, "route", "model"
        )
        self._first_tokens = histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token.", _WAITS, "model"
        )
        self._queues = histogram("queue_wait_seconds", "Waiting for the engine to begin.", _WAITS, "model")
        self._prefills = histogram("prefill_seconds", "Reading the prompt.", _WAITS, "model")
        self._gaps = histogram(
            "inter_token_latency_seconds", "Time between two tokens, on average over an answer.", _GAPS, "model"
        )
        self._speeds = histogram(
            "tokens_per_second", "Tokens per second, on average over an answer after its first token.", _SPEEDS, "model"
        )
        self._generations = counter("generations", "Answers that have ended.", "model", "finish_reason")
        self._prompt_tokens = counter("prompt_tokens", "Tokens of prompts, cached ones included.", "model")
        self._cached_tokens = counter("cached_tokens", "Tokens of prompts that the cache had.", "model")
        self._generated_tokens = counter("generated_tokens", "Tokens of answers.", "model")
        self._loads = counter("model_loads", "Models loaded, or not.", "model", "outcome")
        self._load_times = histogram("model_load_seconds", "Loading a model.", _LOADS, "model")
        self._unloads = counter("model_unloads", "Models unloaded.", "model")
        self._delays = histogram("event_loop_delay_seconds", "How late the event loop is.", _DELAYS)

        self._of_models = (
            *(self._first_tokens, self._queues, self._prefills, self._gaps, self._speeds),
            *(self._prompt_tokens, self._cached_tokens, self._generated_tokens, self._unloads),
        )
        build = {"version": pyggml.__version__, "engine": build_info().engine}
        Info("pyggml_build", "What is running.", registry=registry).info(build)
        registry.register(EngineMetrics(loaded))
        for of_the_process in (ProcessCollector, PlatformCollector, GCCollector):
            of_the_process(registry=registry)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All figures, as text.

        Args:
            accept: the header of that name: OpenMetrics or Prometheus' own format.

        Returns:
            The text, and its content type.
        """
        encoder, content_type = choose_encoder(accept)
        return encoder(_WithoutBirthdays(self._registry)), content_type

    async def watch_loop(self) -> None:
        """Measures how late the event loop is, now and then, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            self._delays.observe(max(0.0, loop.time() - due_s))

    def call_began(self, call: Call) -> None:
        """Counts it as in flight."""
        self._in_flight.labels(call.endpoint.path).inc()

    def call_ended(self, call: Call, ended: Ended) -> None:
        """Counts it, and what was generated for it."""
        model, endpoint = call.served.name if call.served else "", call.endpoint
        self._in_flight.labels(endpoint.path).dec()
        self._durations.labels(endpoint.path, model).observe(ended.duration_s)
        status = "" if ended.status is None else str(ended.status)
        self._requests.labels(endpoint.method, endpoint.path, call.protocol.name, model, status, ended.outcome).inc()
        for answer in ended.answers:
            self._answered(answer)

    def refused(self, scope: Scope, failure: Failure) -> None:
        """Counts it."""
        method = scope["method"] if scope["method"] in _METHODS else ""
        outcome = "server_error" if failure.status >= 500 else "client_error"
        self._requests.labels(method, "", "", "", str(failure.status), outcome).inc()

    def model_loaded(self, name: str, seconds: float) -> None:
        """Counts it. Its series begin at 0, so that Prometheus sees their first step."""
        for each in self._of_models:
            each.labels(name)
        self._loads.labels(name, "ok").inc()
        self._load_times.labels(name).observe(seconds)

    def model_failed(self, name: str, error: Exception) -> None:  # noqa: ARG002
        """Counts it."""
        self._loads.labels(name, "error").inc()

    def model_unloaded(self, name: str) -> None:
        """Counts it."""
        self._unloads.labels(name).inc()

    def _answered(self, answer: Answer) -> None:
        model, completion, timings = answer.model, answer.completion, answer.completion.timings
        self._generations.labels(model, completion.finish_reason).inc()
        self._prompt_tokens.labels(model).inc(completion.prompt_tokens)
        self._cached_tokens.labels(model).inc(completion.cached_tokens)
        self._generated_tokens.labels(model).inc(len(completion.token_ids))
        if answer.ttft_s is not None:
            self._queues.labels(model).observe(timings.queue_s)
            self._prefills.labels(model).observe(timings.prefill_s)
            self._first_tokens.labels(model).observe(answer.ttft_s)
        if timings.itl_s > 0:
            self._gaps.labels(model).observe(timings.itl_s)
            self._speeds.labels(model).observe(timings.tokens_per_s)


class _WithoutBirthdays(Collector):
    """A registry without the time at which each series began: a third more to read that nobody plots."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
            yield metric

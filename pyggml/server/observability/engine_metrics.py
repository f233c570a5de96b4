"""What the engines of the loaded models say when somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pyggml import EngineStats
    from pyggml.server.models.pool import Served

Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class _Figure:
    """A metric with one series or more for each model.

    Attributes:
        kind: CounterMetricFamily or GaugeMetricFamily.
        name: its name without the prefix.
        about: one line about it.
        of: its values for a model and its engine's state, by the values of the labels after "model".
        labels: the names of those labels.
    """

    kind: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    about: str
    of: Callable[[Served, EngineStats], Values]
    labels: tuple[str, ...] = ()

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """The metric, without values."""
        return self.kind(f"pyggml_{self.name}", self.about, labels=("model", *self.labels))


def _one(value: float) -> Values:
    return {(): value}


def _memory(served: Served, stats: EngineStats) -> Values:  # noqa: ARG001
    return {
        (device.name, kind): size
        for device in served.llm.memory
        for kind, size in (
            ("weights", device.weights_bytes),
            ("cache", device.cache_bytes),
            ("compute", device.compute_bytes),
        )
    }


def _cells(served: Served, stats: EngineStats) -> Values:  # noqa: ARG001
    running, cached = stats.n_cells_running, stats.n_cells_cached
    return {("running",): running, ("cached",): cached, ("free",): stats.n_cells - running - cached}


_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily

_FIGURES = (
    _Figure(_GAUGE, "generations_queued", "Answers that wait for the engine.", lambda _, stats: _one(stats.n_queued)),
    _Figure(_GAUGE, "generations_running", "Answers that are computed now.", lambda _, stats: _one(stats.n_running)),
    _Figure(_GAUGE, "generations_parallel", "Most answers computed together.", lambda _, stats: _one(stats.n_parallel)),
    _Figure(_GAUGE, "context_cells", "Cells of the context; a token needs one.", _cells, ("state",)),
    _Figure(_GAUGE, "memory_bytes", "Memory in the engine's buffers.", _memory, ("device", "kind")),
    _Figure(_COUNTER, "engine_steps", "Forward passes.", lambda _, stats: _one(stats.n_decode_steps)),
    _Figure(
        _COUNTER,
        "engine_tokens",
        "Tokens computed in forward passes: prompts, without what the cache had, and answers.",
        lambda _, stats: {("prefill",): stats.n_prompt_tokens, ("decode",): stats.n_generated_tokens},
        ("phase",),
    ),
    _Figure(
        _COUNTER,
        "engine_seconds",
        "Time of the engine: in forward passes with and without prompts, and choosing tokens.",
        lambda _, stats: {
            ("prefill",): stats.prefill_s,
            ("decode",): stats.decode_s,
            ("sample",): stats.sample_s,
        },
        ("phase",),
    ),
    _Figure(
        _COUNTER,
        "engine_preemptions",
        "Generations that gave up their room to others, and were computed again.",
        lambda _, stats: _one(stats.n_preemptions),
    ),
    _Figure(_COUNTER, "engine_grammars", "Grammars and schemas compiled.", lambda _, stats: _one(stats.n_grammars)),
)


class EngineMetrics(Collector):
    """The figures of all loaded models. A model's counters begin again when it is loaded again, as Prometheus expects.

    A model that does not generate has no engine: of it, there is only its size.
    """

    def __init__(self, loaded: Callable[[], Sequence[Served]]) -> None:
        """Asks ``loaded``, from any thread, for the models that are loaded at the moment."""
        self._loaded = loaded

    def describe(self) -> Iterable[Metric]:
        """Names the metrics, without asking an engine."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Asks every engine."""
        return self._families(self._loaded())

    def _families(self, loaded: Sequence[Served]) -> Iterator[Metric]:
        yield GaugeMetricFamily("pyggml_models_loaded", "Models in memory.", value=len(loaded))
        sizes = GaugeMetricFamily("pyggml_model_size_bytes", "Tensors of the model.", labels=("model",))
        for served in loaded:
            sizes.add_metric((served.name,), served.llm.model.size_bytes)
        yield sizes
        states = [(served, stats) for served in loaded if (stats := served.stats()) is not None]
        for figure in _FIGURES:
            family = figure.family()
            for served, stats in states:
                for labels, value in figure.of(served, stats).items():
                    family.add_metric((served.name, *labels), value)
            yield family

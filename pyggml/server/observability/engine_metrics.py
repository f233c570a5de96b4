"""Prometheus metrics of the loaded models' engines, read when they are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from pyggml import EngineStats
    from pyggml.server.models.pool import LoadedModel

Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class _EngineMetric:
    """A metric with one or more series per model.

    Attributes:
        kind: CounterMetricFamily or GaugeMetricFamily.
        name: its name without the prefix.
        documentation: one line.
        values: returns its values by label values, for a model and its engine's counters; or the counter's name.
        labels: names of the labels after "model".
    """

    kind: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    documentation: str
    values: Callable[[LoadedModel, EngineStats], Values] | str
    labels: tuple[str, ...] = ()


def _memory(model: LoadedModel, _: EngineStats) -> Values:
    kinds = ("weights", "cache", "compute")
    return {(each.name, kind): getattr(each, f"{kind}_bytes") for each in model.llm.memory for kind in kinds}


def _cells(_: LoadedModel, stats: EngineStats) -> Values:
    running, cached = stats.n_cells_running, stats.n_cells_cached
    return {("running",): running, ("cached",): cached, ("free",): stats.n_cells - running - cached}


def _speculative_tokens(_: LoadedModel, stats: EngineStats) -> Values:
    return {
        (proposer, state): getattr(stats, f"n_{state}_{proposer}")
        for proposer in ("forced", "lookup", "model")
        for state in ("drafted", "accepted")
    }


_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily

_METRICS = (
    _EngineMetric(_GAUGE, "generations_queued", "Queued generations.", "n_queued"),
    _EngineMetric(_GAUGE, "generations_running", "Running generations.", "n_running"),
    _EngineMetric(_GAUGE, "generations_parallel", "Maximum running generations.", "n_parallel"),
    _EngineMetric(_GAUGE, "context_cells", "KV cache cells; a token needs one.", _cells, ("state",)),
    _EngineMetric(_GAUGE, "memory_bytes", "Memory in the engine's buffers.", _memory, ("device", "kind")),
    _EngineMetric(_COUNTER, "engine_steps", "Forward passes.", "n_decode_steps"),
    _EngineMetric(
        _COUNTER,
        "engine_tokens",
        "Tokens computed in forward passes: prefill, without prefix cache hits, and decode.",
        lambda _, stats: {("prefill",): stats.n_prompt_tokens, ("decode",): stats.n_generated_tokens},
        ("phase",),
    ),
    _EngineMetric(
        _COUNTER,
        "engine_seconds",
        "Time of the engine: forward passes with prefill, pure decode steps, sampling, and scheduling.",
        lambda _, stats: {
            ("prefill",): stats.prefill_s,
            ("decode",): stats.decode_s,
            ("sample",): stats.sample_s,
            ("schedule",): stats.schedule_s,
        },
        ("phase",),
    ),
    _EngineMetric(
        _COUNTER,
        "engine_preemptions",
        "Generations preempted to free KV cache cells, and recomputed later.",
        "n_preemptions",
    ),
    _EngineMetric(
        _COUNTER,
        "engine_speculative_tokens",
        "Guessed tokens: computed, and of these accepted, by proposer.",
        _speculative_tokens,
        ("proposer", "state"),
    ),
    _EngineMetric(_GAUGE, "checkpoints", "Checkpoints from which prompts can continue.", "n_checkpoints"),
    _EngineMetric(_GAUGE, "checkpoint_bytes", "Main memory of the checkpoints.", "checkpoint_bytes"),
    _EngineMetric(
        _COUNTER,
        "prefix_cache_tokens",
        "Tokens found in the prefix cache: in KV cells, and in snapshots of evicted cells in main memory and on disk.",
        lambda _, stats: {
            ("cells",): stats.n_cached_tokens - stats.n_snapshot_tokens - stats.n_disk_tokens,
            ("memory",): stats.n_snapshot_tokens,
            ("disk",): stats.n_disk_tokens,
        },
        ("tier",),
    ),
    _EngineMetric(
        _COUNTER,
        "snapshot_hits",
        "Generations that started from a snapshot.",
        lambda _, stats: {("memory",): stats.n_snapshot_hits, ("disk",): stats.n_disk_hits},
        ("tier",),
    ),
    _EngineMetric(
        _GAUGE,
        "snapshots",
        "Snapshots of evicted sequences.",
        lambda _, stats: {("memory",): stats.n_snapshots, ("disk",): stats.n_disk_snapshots},
        ("tier",),
    ),
    _EngineMetric(
        _GAUGE,
        "snapshot_bytes",
        "Size of the snapshots.",
        lambda _, stats: {("memory",): stats.snapshot_bytes, ("disk",): stats.disk_snapshot_bytes},
        ("tier",),
    ),
    _EngineMetric(_COUNTER, "engine_grammars", "Grammars and schemas compiled.", "n_grammars"),
)

#: Of the embeddings of every model: kind, name without the prefix, documentation, attribute of EmbeddingStats.
_OF_EMBEDDINGS = (
    (_GAUGE, "embedding_texts_waiting", "Texts and pairs that are in no forward pass yet.", "n_waiting"),
    (_COUNTER, "embedding_passes", "Forward passes that embed or rerank.", "n_passes"),
    (_COUNTER, "embedding_texts", "Texts embedded and pairs reranked.", "n_texts"),
    (_COUNTER, "embedding_tokens", "Tokens of these texts and pairs.", "n_tokens"),
)


class EngineMetrics(Collector):
    """Metrics of all loaded models. A model's counters restart at 0 when it is loaded again, as Prometheus allows.

    A model that does not generate has no engine, and only the metrics of its size and its embeddings.
    """

    def __init__(self, loaded: Callable[[], Sequence[LoadedModel]]) -> None:
        """Set up the collector; ``loaded`` returns the loaded models, from any thread."""
        self._loaded = loaded

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Return the metrics with the engines' current values."""
        return self._families(self._loaded())

    def _families(self, loaded: Sequence[LoadedModel]) -> Iterator[Metric]:
        yield GaugeMetricFamily("pyggml_models_loaded", "Models in memory.", value=len(loaded))
        sizes = GaugeMetricFamily("pyggml_model_size_bytes", "Tensors of the model.", labels=("model",))
        for model in loaded:
            sizes.add_metric((model.name,), model.llm.model.size_bytes)
        yield sizes
        embeddings = [(model.name, model.llm.embedding_stats()) for model in loaded]
        for kind, name, documentation, attribute in _OF_EMBEDDINGS:
            counted = kind(f"pyggml_{name}", documentation, labels=("model",))
            for model_name, found_stats in embeddings:
                counted.add_metric((model_name,), getattr(found_stats, attribute))
            yield counted
        engines = [(model, stats) for model in loaded if (stats := model.stats()) is not None]
        for metric in _METRICS:
            family = metric.kind(f"pyggml_{metric.name}", metric.documentation, labels=("model", *metric.labels))
            for model, stats in engines:
                values = metric.values
                found = {(): getattr(stats, values)} if isinstance(values, str) else values(model, stats)
                for labels, value in found.items():
                    family.add_metric((model.name, *labels), value)
            yield family

"""Batch inference as a Ray Data operator."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray.data

import pyggml
from pyggml.batch import (
    N_PARALLEL,
    FieldNames,
    Params,
    PromptRowProcessor,
    answer_fields,
    answer_schema,
    checked_params,
    fit_to_column,
    process_rows,
    require_load_options,
)
from pyggml.ray.actor import WorkerSpec
from pyggml.ray.cluster import connect, plan_actors
from pyggml.ray.job import BATCH_TOKENS
from pyggml.ray.throughput import ThroughputMeter

if TYPE_CHECKING:
    from ray.data import Dataset

_SAMPLED_ROWS = 32
# CPUs for Ray Data's tasks that read and write rows, and for those that filter by a checkpoint: if the actors took all
# CPUs, these tasks would never be scheduled.
_DATA_CPUS = 1
_CHECKPOINT_CPUS = 1


def map_batches(
    dataset: Dataset,
    model: str | os.PathLike[str] | None = None,
    *,
    prompt: str = "prompt",
    messages: str = "messages",
    params: Params = None,
    column: str = "answer",
    batch_tokens: int = BATCH_TOKENS,
    n_actors: int | None = None,
    **load: Any,
) -> Dataset:
    """Add the answers of a model to a dataset, as :func:`pyggml.batch.run` does to a file.

    It is lazy, as Ray's own ``map_batches``, except that it reads the first rows at once to estimate their length. It
    supports Ray Data's checkpoints: see docs/how-to/run-batch-jobs.md. If Ray Data shows progress bars, each actor
    prints its tokens per second every ten seconds.

    Args:
        dataset: rows with a prompt or messages, optionally ``params``.
        model: as for :func:`pyggml.load`; this machine and every node must have it under this name.
        prompt: name of the column with the prompt: text or token ids.
        messages: name of the column with the conversation.
        params: default sampling parameters of rows: SamplingParams, or a mapping of some of its fields.
        column: name of the column for the answer; the other columns are named after it.
        batch_tokens: target tokens of a batch, prompts and answers together, estimated from the first rows.
        n_actors: number of actors. None: as many as fit on the nodes.
        **load: options of :func:`pyggml.load`; ``n_parallel`` defaults to 16.

    Raises:
        OutOfMemoryError: the model fits on no node.
        InvalidParameterError: an option is invalid.
        EngineError: there is no cluster.
    """
    params = checked_params(params)
    require_load_options(load, map_batches)
    connect("auto")
    load = {"n_parallel": N_PARALLEL, **load}
    spec = WorkerSpec(model, params, FieldNames(prompt, messages, "params", column), False, load)
    n_reserved = _DATA_CPUS + _CHECKPOINT_CPUS * (dataset.context.checkpoint_config is not None)
    plan = plan_actors(spec, n_actors, n_reserved_cpus=n_reserved)
    sample = dataset.limit(_SAMPLED_ROWS).take_all()
    if taken := [name for name in answer_fields(column) for row in sample[:1] if name in row]:
        raise pyggml.InvalidParameterError(f"the dataset already has a column {taken[0]!r}: choose another column")
    n_rows = max(1, batch_tokens * len(sample) // max(1, sum(map(spec.estimate_tokens, sample))))
    # Enough concurrent batches to fill all parallel sequences while one batch drains.
    n_batches = 1 + math.ceil(load["n_parallel"] / n_rows)
    return dataset.repartition(target_num_rows_per_block=n_rows).map_batches(
        _TableProcessor,
        fn_constructor_args=(spec.with_threads(plan),),
        batch_size=None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(
            min_size=1, max_size=plan.n_actors, initial_size=plan.n_actors, max_tasks_in_flight_per_actor=n_batches
        ),
        max_concurrency=n_batches,
        num_cpus=plan.n_cpus,
        num_gpus=plan.n_gpus or None,
        memory=plan.memory_bytes or None,
    )


class _TableProcessor:
    """Ray Data function that adds answers to Arrow tables, called concurrently in one event loop."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._column = spec.names.column
        self._llm = spec.load_model()
        self._processor = PromptRowProcessor(self._llm, spec.params, spec.names)
        self._meter = ThroughputMeter(self._column, prints=ray.data.DataContext.get_current().enable_progress_bars)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        found: dict[int, dict[str, Any]] = {}

        def add(index: int, answer: dict[str, Any]) -> None:
            found[index] = answer
            self._meter.count(answer)

        await process_rows(self._processor, enumerate(table.to_pylist()), self._llm.n_parallel, add)
        for column in answer_schema(self._column):
            values = [fit_to_column(found[index][column.name], column.type) for index in range(table.num_rows)]
            table = table.append_column(column, pa.array(values, column.type))
        yield table

"""Answers as a step of a pipeline of Ray Data."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray.data

import pyggml
from pyggml.batch import N_PARALLEL, Names, PlainAnswering, answer_all, answer_fields, answer_schema, fitting
from pyggml.ray.actor import Work
from pyggml.ray.cluster import connect, planned
from pyggml.ray.job import BATCH_TOKENS
from pyggml.ray.throughput import Rate

if TYPE_CHECKING:
    from ray.data import Dataset

_SAMPLED_ROWS = 32
# CPUs for what reads, divides and writes the rows, and for what leaves out those of an earlier run: both would wait for
# ever for CPUs that models have.
_SPARED_CPUS = 1
_SPARED_CPUS_FOR_CHECKPOINTS = 1


def map_batches(
    dataset: Dataset,
    model: str | os.PathLike[str] | None = None,
    *,
    prompt: str = "prompt",
    messages: str = "messages",
    params: pyggml.SamplingParams | None = None,
    column: str = "answer",
    batch_tokens: int = BATCH_TOKENS,
    n_actors: int | None = None,
    **load: Any,
) -> Dataset:
    """Adds the answers of a model to a dataset, as :func:`pyggml.batch.run` does to a file.

    It is lazy, as Ray's own is, except that the first rows are read now, to learn how long they are. Ray Data's
    checkpoints work with it: see docs/how-to/run-batch-jobs.md. Where Ray Data shows progress bars, each process of a
    model says every ten seconds how many tokens per second it generates.

    Args:
        dataset: rows with a prompt or messages, perhaps ``params``.
        model: as for :func:`pyggml.load`; this machine and every node must have it under this name.
        prompt: name of the column with the text to continue, or its token ids.
        messages: name of the column with the conversation to answer.
        params: sampling parameters of rows that do not set them.
        column: name of the column for the answer; those beside it are named after it.
        batch_tokens: tokens of a batch, prompts and answers together, by the first rows.
        n_actors: number of actors. None: as many as the nodes have room for.
        **load: options of :func:`pyggml.load`; ``n_parallel`` is 16 if it is left out.

    Raises:
        OutOfMemoryError: no node has room for the model.
        InvalidParameterError: an option is invalid.
        EngineError: there is no cluster.
    """
    connect("auto")
    load = {"n_parallel": N_PARALLEL, **load}
    work = Work(model, params, Names(prompt, messages, "params", column), False, load)
    n_spared = _SPARED_CPUS + _SPARED_CPUS_FOR_CHECKPOINTS * (dataset.context.checkpoint_config is not None)
    plan = planned(work, n_actors, n_spared=n_spared)
    sample = dataset.limit(_SAMPLED_ROWS).take_all()
    if taken := [name for name in answer_fields(column) for row in sample[:1] if name in row]:
        raise pyggml.InvalidParameterError(f"the dataset has a column {taken[0]!r} already: choose another column")
    n_rows = max(1, batch_tokens * len(sample) // max(1, sum(map(work.n_tokens, sample))))
    # Enough batches at a time for the engine to be full while one ends.
    n_batches = 1 + math.ceil(load["n_parallel"] / n_rows)
    return dataset.repartition(target_num_rows_per_block=n_rows).map_batches(
        _Tables,
        fn_constructor_args=(work.on(plan),),
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


class _Tables:
    """Adds answers to tables. Ray Data calls it for several at a time, in one event loop."""

    def __init__(self, work: Work) -> None:
        self._column = work.names.column
        self._llm = work.loaded()
        self._answering = PlainAnswering(self._llm, work.params, work.names)
        self._rate = Rate(self._column, is_shown=ray.data.DataContext.get_current().enable_progress_bars)

    async def __call__(self, table: pa.Table) -> AsyncIterator[pa.Table]:
        found: dict[int, dict[str, Any]] = {}

        def keep(index: int, answer: dict[str, Any]) -> None:
            found[index] = answer
            self._rate.count(answer)

        await answer_all(self._answering, enumerate(table.to_pylist()), self._llm.n_parallel, keep)
        for column in answer_schema(self._column):
            values = [fitting(found[index][column.name], column.type) for index in range(table.num_rows)]
            table = table.append_column(column, pa.array(values, column.type))
        yield table

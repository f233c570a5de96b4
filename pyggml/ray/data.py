"""Batch jobs on Ray Data: actors with a model each, and one journal of what they have answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
import ray.data

import pyggml
from pyggml.batch import (
    Answering,
    BatchProgress,
    BatchReport,
    Broken,
    Job,
    Names,
    Rows,
    answer_all,
    answer_fields,
    identity,
    open_answering,
)
from pyggml.ray.plan import Node, Plan, plan

if TYPE_CHECKING:
    from ray.data import Dataset

Json = dict[str, Any]

#: Tokens of a batch, prompts and answers together: half a minute of a slow model, many steps of a fast one.
BATCH_TOKENS = 32_768
#: Requests computed together by each actor where the caller says nothing.
N_PARALLEL = 16
# Of texts that no tokenizer has seen yet; a guess decides only where a batch ends.
_CHARS_PER_TOKEN = 4
_SAMPLED_ROWS = 32


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
    """Adds the answers of a model to a dataset, as :func:`pyggml.batch.run` does to a file. Lazy, as Ray's own is.

    Args:
        dataset: rows with a prompt or messages, perhaps ``params``.
        model: as for :func:`pyggml.load`; every node must have it under this name. Processes of a node share its
            weights.
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
    """
    work = _Work(model, params, Names(prompt, messages, "params", column), False, {"n_parallel": N_PARALLEL, **load})
    sample = dataset.limit(_SAMPLED_ROWS).take_all()
    mean = sum(_n_tokens(row, work) for row in sample) / max(len(sample), 1)
    return _mapped(dataset, _Tables, work, n_actors, max(1, int(batch_tokens / max(mean, 1))))


def run_batch(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    *,
    address: str = "auto",
    params: pyggml.SamplingParams | None = None,
    prompt: str = "prompt",
    messages: str = "messages",
    column: str = "answer",
    overwrite: bool = False,
    restart: bool = False,
    progress: Callable[[BatchProgress], object] | None = None,
    batch_tokens: int = BATCH_TOKENS,
    n_actors: int | None = None,
    **load: Any,
) -> BatchReport:
    """Does what :func:`pyggml.batch.run` does, on a Ray cluster.

    Batches are sent to actors and come back in any order; this process keeps the journal and writes ``out``, so files
    need not be shared between nodes. A node that dies costs the batches that it was computing.

    Args:
        source: as for :func:`pyggml.batch.run`, like all that is not told here.
        out: the file of answers.
        model: what every node can load under this name.
        address: the cluster's address, "auto" for that of this machine, "local" for a new one on this machine. Not used
            if this process is connected already.
        params: sampling parameters.
        prompt: name of a field.
        messages: name of a field.
        column: name of a field.
        overwrite: replace ``out`` if it exists.
        restart: forget what an earlier run has done.
        progress: called with a BatchProgress after each row.
        batch_tokens: tokens of a batch, prompts and answers together, by the length of texts.
        n_actors: number of actors. None: as many as the nodes have room for.
        **load: options of :func:`pyggml.load`.

    Raises:
        EngineError: the cluster could not go on; what is done is kept.
        InferError: as :func:`pyggml.batch.run`.
    """
    rows, names = Rows(source), Names(prompt, messages, "params", column)
    about = identity(model, params, load)
    work = _Work(model, params, names, rows.is_openai, {"n_parallel": N_PARALLEL, **load})
    with Job(rows, Path(out), about, names, overwrite=overwrite, restart=restart, progress=progress) as job:
        _connect(address)
        tables = [_table(batch) for batch in _batches(job.missing(), work, batch_tokens)]
        if tables:
            for index, answer in _answers(tables, work, n_actors):
                job.add(index, answer)
        return job.finish()


def _answers(tables: list[pa.Table], work: _Work, n_actors: int | None) -> Iterator[tuple[int, Json]]:
    """The answers of the cluster, in any order."""
    mapped = _mapped(ray.data.from_arrow(tables), _Parts, work, n_actors, None)
    try:
        for table in mapped.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for index, answer in zip(table["index"].to_pylist(), table["answer"].to_pylist(), strict=True):
                yield index, json.loads(answer)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise pyggml.EngineError(f"the Ray cluster could not go on: {lines[-1] if lines else error!r}") from error


def _mapped(dataset: Dataset, actor: type, work: _Work, n_actors: int | None, batch_size: int | None) -> Dataset:
    planned = _plan(work) if n_actors is None else None
    n = n_actors or (planned.n_actors if planned else 1)
    load = {"n_threads": planned.n_cpus, **work.load} if planned and not planned.n_gpus else work.load
    own = _Work(work.model, work.params, work.names, work.is_openai, load)
    return dataset.map_batches(
        actor,
        fn_constructor_args=(own,),
        batch_size=batch_size,
        batch_format="pyarrow",
        # Two batches at a time, so that the engine is full while one ends.
        compute=ray.data.ActorPoolStrategy(
            min_size=1, max_size=n, initial_size=n, max_tasks_in_flight_per_actor=2, enable_true_multi_threading=True
        ),
        max_concurrency=2,
        num_cpus=planned.n_cpus if planned else 1,
        num_gpus=planned.n_gpus or None if planned else None,
        memory=planned.memory_bytes or None if planned else None,
    )


def _plan(work: _Work) -> Plan:
    _connect("auto")
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return plan(
        (Node(each.get("CPU", 0), each.get("GPU", 0), each.get("memory", 0)) for each in alive), work.model, work.load
    )


def _connect(address: str) -> None:
    if not ray.is_initialized():
        ray.init(address, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False


# --- batches ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """What an actor is to do.

    Attributes:
        model: what to load.
        params: sampling parameters.
        names: names of fields.
        is_openai: whether rows are requests in OpenAI's format.
        load: options of load.
    """

    model: str | os.PathLike[str] | None
    params: pyggml.SamplingParams | None
    names: Names
    is_openai: bool
    load: Mapping[str, Any] = field(default_factory=dict)


def _batches(rows: Iterable[tuple[int, Any]], work: _Work, most: int) -> Iterator[list[tuple[int, Any]]]:
    """The rows in batches of about so many tokens."""
    batch: list[tuple[int, Any]] = []
    n_tokens = 0
    for index, row in rows:
        n_own = _n_tokens(row, work)
        if batch and n_tokens + n_own > most:
            yield batch
            batch, n_tokens = [], 0
        batch.append((index, row))
        n_tokens += n_own
    if batch:
        yield batch


def _n_tokens(row: Any, work: _Work) -> int:
    """About how many tokens a row takes, its answer included, by what can be seen without its model."""
    if not isinstance(row, dict):
        return 1
    own = row.get("body") if work.is_openai else row.get(work.names.params)
    limit = own.get("max_tokens") if isinstance(own, Mapping) else None
    default = (work.params or pyggml.SamplingParams()).max_tokens
    return len(str(row)) // _CHARS_PER_TOKEN + (limit if isinstance(limit, int) and limit >= 0 else default)


def _table(batch: list[tuple[int, Any]]) -> pa.Table:
    """A batch on its way: rows as JSON; those that are broken as the text that says how."""
    rows = [json.dumps(row, default=str) for _, row in batch]
    return pa.table({"index": pa.array([index for index, _ in batch], pa.int64()), "row": rows})


# --- actors -------------------------------------------------------------------------------------------------------


class _Actor:
    """A model, and an event loop in a thread of its own in which it answers."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._llm = pyggml.load(work.model, **work.load)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._held = contextlib.AsyncExitStack()
        self._answering: Answering = self._wait(
            self._held.enter_async_context(open_answering(self._llm, work.params, work.names, work.is_openai))
        )

    def answers(self, rows: list[tuple[int, Any]]) -> dict[int, Json]:
        """The answers to rows; called from several threads."""
        found: dict[int, Json] = {}
        self._wait(answer_all(self._answering, rows, self._llm.n_parallel, found.__setitem__))
        return found

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Parts(_Actor):
    """Answers the batches of a job."""

    def __call__(self, table: pa.Table) -> pa.Table:
        indices = table["index"].to_pylist()
        rows = [_row(text) for text in table["row"].to_pylist()]
        found = self.answers(list(zip(indices, rows, strict=True)))
        return pa.table({"index": table["index"], "answer": [json.dumps(found[index]) for index in indices]})


class _Tables(_Actor):
    """Adds answers to tables."""

    def __call__(self, table: pa.Table) -> pa.Table:
        found = self.answers(list(enumerate(table.to_pylist())))
        for name, kind in answer_fields(self._work.names.column).items():
            values = [found[index][name] for index in range(table.num_rows)]
            if kind is object:
                values = [None if value is None else json.dumps(value) for value in values]
            table = table.append_column(name, pa.array(values, pa.int64() if kind is int else pa.string()))
        return table


def _row(text: str) -> Any:
    row = json.loads(text)
    return Broken(row) if isinstance(row, str) else row

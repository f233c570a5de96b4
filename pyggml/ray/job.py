"""A batch job (:mod:`pyggml.batch`) that is computed on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyggml.batch import (
    N_PARALLEL,
    BatchProgress,
    BatchReport,
    FieldNames,
    Job,
    Params,
    Rows,
    checked_params,
    job_id,
    require_load_options,
)
from pyggml.ray.actor import WorkerSpec
from pyggml.ray.cluster import connect, plan_actors
from pyggml.ray.pool import ActorPool, RowBatch

#: Target tokens of a batch, prompts and answers together: enough to amortise a message, few enough to recompute.
BATCH_TOKENS = 8192


def run_batch(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    *,
    address: str = "auto",
    params: Params = None,
    prompt: str = "prompt",
    messages: str = "messages",
    column: str = "answer",
    overwrite: bool = False,
    restart: bool = False,
    strict: bool = False,
    progress: Callable[[BatchProgress], object] | None = None,
    batch_tokens: int = BATCH_TOKENS,
    n_actors: int | None = None,
    **load: Any,
) -> BatchReport:
    """Run :func:`pyggml.batch.run` on a Ray cluster.

    Rows are sent to actors in batches, and answers return in any order. This process writes the journal and ``out``, so
    the nodes need no shared file system. If a node is lost, only the batches that it was computing are recomputed.

    Args:
        source: as for :func:`pyggml.batch.run`, like all arguments not described here.
        out: the file of answers.
        model: a model that this machine and every node can load under this name.
        address: the cluster's address, "auto" for this machine's cluster, "local" for a new one on this machine.
            Ignored if this process is connected already.
        params: sampling parameters.
        prompt: name of a field.
        messages: name of a field.
        column: name of a field.
        overwrite: replace ``out`` if it exists.
        restart: discard the journal of an earlier run.
        strict: raise at the first row that fails.
        progress: called with a BatchProgress after each row.
        batch_tokens: target tokens of a batch, prompts and answers together, estimated from the length of texts.
        n_actors: number of actors. None: as many as fit on the nodes.
        **load: options of :func:`pyggml.load`.

    Raises:
        EngineError: there is no such cluster, or its actors keep crashing; the journal keeps the answers so far.
        InferError: as :func:`pyggml.batch.run`.
    """
    params = checked_params(params)
    require_load_options(load, run_batch)
    rows, names = Rows(source), FieldNames(prompt, messages, "params", column)
    spec = WorkerSpec(model, params, names, rows.is_openai, {"n_parallel": N_PARALLEL, **load})
    identity = job_id(model, params, load)
    with Job(
        rows, Path(out), identity, names, overwrite=overwrite, restart=restart, strict=strict, progress=progress
    ) as job:
        if not job.is_done:
            connect(address)
            plan = plan_actors(spec, n_actors)
            with ActorPool(spec.with_threads(plan), plan) as pool:
                for index, answer in pool.process(_batches(job.pending_rows(), spec, batch_tokens)):
                    job.add(index, answer)
        return job.finish()


def _batches(rows: Iterable[tuple[int, Any]], spec: WorkerSpec, batch_tokens: int) -> Iterator[RowBatch]:
    """Group rows into batches of about ``batch_tokens`` tokens."""
    batch, n_tokens = RowBatch([]), 0
    for index, row in rows:
        n_row = spec.estimate_tokens(row)
        if batch.rows and n_tokens + n_row > batch_tokens:
            yield batch
            batch, n_tokens = RowBatch([]), 0
        batch.rows.append((index, row))
        n_tokens += n_row
    if batch.rows:
        yield batch

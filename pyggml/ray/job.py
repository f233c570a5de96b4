"""A job from a file of rows to a file of answers, as :mod:`pyggml.batch` has it, computed by a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyggml
from pyggml.batch import N_PARALLEL, BatchProgress, BatchReport, Job, Names, Rows, identity
from pyggml.ray.actor import Work
from pyggml.ray.cluster import connect, planned
from pyggml.ray.pool import Part, Pool

#: Tokens of a part, prompts and answers together: many for one message, few to be computed again.
BATCH_TOKENS = 8192


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

    Rows go out in parts and come back in any order; this process keeps the journal and writes ``out``, so files need
    not be shared between nodes. A node that dies costs the parts that it was computing.

    Args:
        source: as for :func:`pyggml.batch.run`, like all that is not told here.
        out: the file of answers.
        model: what this machine and every node can load under this name.
        address: the cluster's address, "auto" for that of this machine, "local" for a new one on this machine. Not used
            if this process is connected already.
        params: sampling parameters.
        prompt: name of a field.
        messages: name of a field.
        column: name of a field.
        overwrite: replace ``out`` if it exists.
        restart: forget what an earlier run has done.
        progress: called with a BatchProgress after each row.
        batch_tokens: tokens of a part, prompts and answers together, by the length of texts.
        n_actors: number of actors. None: as many as the nodes have room for.
        **load: options of :func:`pyggml.load`.

    Raises:
        EngineError: there is no such cluster, or it could not go on; what is done is kept.
        InferError: as :func:`pyggml.batch.run`.
    """
    rows, names = Rows(source), Names(prompt, messages, "params", column)
    work = Work(model, params, names, rows.is_openai, {"n_parallel": N_PARALLEL, **load})
    about = identity(model, params, load)
    with Job(rows, Path(out), about, names, overwrite=overwrite, restart=restart, progress=progress) as job:
        if not job.is_done:
            connect(address)
            plan = planned(work, n_actors)
            with Pool(work.on(plan), plan) as pool:
                for index, answer in pool.answers(_parts(job.missing(), work, batch_tokens)):
                    job.add(index, answer)
        return job.finish()


def _parts(rows: Iterable[tuple[int, Any]], work: Work, most: int) -> Iterator[Part]:
    """The rows in parts of about so many tokens."""
    part, n_tokens = Part([]), 0
    for index, row in rows:
        n_own = work.n_tokens(row)
        if part.rows and n_tokens + n_own > most:
            yield part
            part, n_tokens = Part([]), 0
        part.rows.append((index, row))
        n_tokens += n_own
    if part.rows:
        yield part

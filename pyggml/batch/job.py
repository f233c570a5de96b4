"""A job from its file of rows to its file of answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.batch import output
from pyggml.batch.journal import Journal
from pyggml.batch.row_processor import Json, Names, answer_all, answer_fields, open_answering, usage
from pyggml.batch.rows import Broken, Row, Rows, is_parquet, require_pyarrow

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

#: Options of load that change how fast answers come, and not which.
_HOW_FAST = ("n_parallel", "n_threads", "n_batch", "n_ubatch", "device", "n_gpu_layers", "prefix_cache", "progress")
#: Requests computed together where the caller says nothing: nobody waits for a single one.
N_PARALLEL = 16


@dataclass(frozen=True)
class BatchProgress:
    """How far a job is.

    Attributes:
        n_rows: number of rows.
        n_done: rows that have an answer, those of earlier runs included.
        n_kept: rows that had one before this run.
        n_failed: rows that this run could not answer.
        prompt_tokens: tokens of the prompts that this run answered.
        generated_tokens: tokens that this run generated.
        elapsed_s: seconds since this run's first row was begun.
    """

    n_rows: int
    n_done: int
    n_kept: int
    n_failed: int
    prompt_tokens: int
    generated_tokens: int
    elapsed_s: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated per second, in this run."""
        return self.generated_tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at the rate so far; None: it is not known yet."""
        n_new = self.n_done - self.n_kept
        return (self.n_rows - self.n_done) * self.elapsed_s / n_new if n_new else None


@dataclass(frozen=True)
class BatchReport(BatchProgress):
    """A job that is done.

    Attributes:
        path: the file of answers.
    """

    path: Path


class Job:
    """A job on its way: what it was, what is done, what is missing. Closing it keeps what is done.

    Attributes:
        rows: the rows.
        names: names of their fields.
    """

    def __init__(
        self,
        rows: Rows,
        out: Path,
        about: Mapping[str, Any],
        names: Names,
        *,
        overwrite: bool = False,
        restart: bool = False,
        progress: Callable[[BatchProgress], object] | None = None,
    ) -> None:
        """Begins a job, or goes on with one; arguments as :func:`run`, and ``about``, which says which job it is."""
        self.rows, self.names = rows, names
        self._out, self._progress = out, progress
        journal = out.with_name(f"{out.name}.part")
        _check(rows, out, journal, names, overwrite)
        about = {"pyggml_batch": 1, "input": rows.digest, "rows": rows.n_rows, "fields": asdict(names), **about}
        self._journal = Journal(journal, about, rows.n_rows, restart=restart)
        self._n_kept = self._journal.n_done
        self._n_failed = self._n_prompt = self._n_generated = 0
        self._began_s = time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether every row has an answer."""
        return self._journal.n_done == self.rows.n_rows

    def missing(self) -> Iterator[tuple[int, Row | Broken]]:
        """The rows without an answer, in order."""
        self._began_s = time.monotonic()
        return ((index, row) for index, row in enumerate(self.rows) if index not in self._journal)

    def add(self, index: int, answer: Json) -> None:
        """Keeps the answer to a row, and reports progress."""
        if index in self._journal:
            return
        self._journal.add(index, answer)
        failed, n_prompt, n_generated = usage(answer, self.names.column)
        self._n_failed += failed
        self._n_prompt += n_prompt
        self._n_generated += n_generated
        if self._progress is not None:
            self._progress(BatchProgress(**self._counts()))

    def finish(self) -> BatchReport:
        """Writes the output of a job without missing rows, and removes the journal."""
        output.write(self._out, self.rows, self._journal, self.names.column)
        self._journal.remove()
        return BatchReport(**self._counts(), path=self._out)

    def __enter__(self) -> Self:
        self._journal.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._journal.__exit__(kind, value, tb)

    def _counts(self) -> dict[str, Any]:
        return {
            "n_rows": self.rows.n_rows,
            "n_done": self._journal.n_done,
            "n_kept": self._n_kept,
            "n_failed": self._n_failed,
            "prompt_tokens": self._n_prompt,
            "generated_tokens": self._n_generated,
            "elapsed_s": time.monotonic() - self._began_s,
        }


def run(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    model: str | os.PathLike[str] | pyggml.LLM | None = None,
    *,
    params: pyggml.SamplingParams | None = None,
    prompt: str = "prompt",
    messages: str = "messages",
    column: str = "answer",
    overwrite: bool = False,
    restart: bool = False,
    progress: Callable[[BatchProgress], object] | None = None,
    **load: Any,
) -> BatchReport:
    """Answers every row of a file, and writes a file of answers in the same order.

    Rows that fail are kept with their error. Each answer is on disk soon after it came, in a journal beside ``out``:
    the same call goes on where a killed one stopped. Call it from a thread without a running event loop.

    Args:
        source: a file of JSON lines or a Parquet file (".parquet"). A row has a prompt or messages, perhaps ``params``
            (fields of SamplingParams) and ``tools``, and whatever else is to stand beside its answer. Or lines in the
            format of OpenAI's batch API, which the first line says.
        out: the file of answers; ".parquet" says that it is one.
        model: as for :func:`pyggml.load`, or an open model, which stays open.
        params: sampling parameters of rows that do not set them; not for OpenAI's format, whose bodies have their own.
        prompt: name of the field with the text to continue, or its token ids.
        messages: name of the field with the conversation to answer.
        column: name of the field for the answer. ``column`` + "_error", "_finish_reason", "_prompt_tokens", "_tokens",
            "_reasoning" and "_tool_calls" are the others.
        overwrite: replace ``out`` if it exists.
        restart: forget what an earlier run has done.
        progress: called with a BatchProgress after each row.
        **load: options of :func:`pyggml.load`; ``n_parallel`` is 16 if it is left out.

    Raises:
        InvalidParameterError: there is no such file, ``out`` exists, or input or options changed since the job began.
        MissingPackageError: a Parquet file needs pyarrow, or OpenAI's format the packages of the server.
        InferError: the model cannot be loaded, or the engine failed; what is done is kept.
    """
    rows, names = Rows(source), Names(prompt, messages, "params", column)
    with Job(
        rows,
        Path(out),
        identity(model, params, load),
        names,
        overwrite=overwrite,
        restart=restart,
        progress=progress,
    ) as job:
        with _opened(model, load) as llm:
            asyncio.run(_answer(job, llm, params))
        return job.finish()


async def _answer(job: Job, llm: pyggml.LLM, params: pyggml.SamplingParams | None) -> None:
    async with open_answering(llm, params, job.names, job.rows.is_openai) as answering:
        await answer_all(answering, job.missing(), llm.n_parallel, job.add)


def identity(
    model: str | os.PathLike[str] | pyggml.LLM | None, params: pyggml.SamplingParams | None, load: Mapping[str, Any]
) -> Json:
    """What decides about the answers of a job: the model, its file if it is one, the parameters and the options."""
    source = model.source if isinstance(model, pyggml.LLM) else model
    found: list[Any] = [None if source is None else str(source)]
    with contextlib.suppress(OSError, TypeError):
        status = Path(source).stat()  # type: ignore[arg-type]
        found += [status.st_size, status.st_mtime_ns]
    options = {name: repr(value) for name, value in sorted(load.items()) if name not in _HOW_FAST}
    return {"model": found, "params": repr(params or pyggml.SamplingParams()), "options": options}


@contextlib.contextmanager
def _opened(model: str | os.PathLike[str] | pyggml.LLM | None, load: Mapping[str, Any]) -> Iterator[pyggml.LLM]:
    if not isinstance(model, pyggml.LLM):
        with pyggml.load(model, **{"n_parallel": N_PARALLEL, **load}) as llm:
            yield llm
        return
    if load:
        raise pyggml.InvalidParameterError(f"the model is open, so {', '.join(load)} cannot be set: pass its path")
    yield model


def _check(rows: Rows, out: Path, journal: Path, names: Names, overwrite: bool) -> None:
    if not out.parent.is_dir():
        raise pyggml.InvalidParameterError(f"there is no directory {out.parent} to write {out.name} in")
    if out.is_dir() or (out.exists() and out.samefile(rows.path)):
        raise pyggml.InvalidParameterError(f"{out} cannot be written: it is the input, or a directory")
    if out.exists() and not overwrite and not journal.exists():
        raise pyggml.InvalidParameterError(f"{out} exists: name another output, or say overwrite=True")
    if is_parquet(out):
        require_pyarrow()
    if not rows.is_openai and (taken := [name for name in answer_fields(names.column) if name in rows.first]):
        raise pyggml.InvalidParameterError(
            f"the rows have a field {taken[0]!r} already: give answers another column than {names.column!r}"
        )

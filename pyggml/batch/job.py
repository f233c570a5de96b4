"""A batch job, from its file of rows to its file of answers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyggml
from pyggml.batch import output
from pyggml.batch.journal import Journal
from pyggml.batch.row_processor import (
    FieldNames,
    Params,
    answer_fields,
    checked_params,
    failure,
    missing_prompt_message,
    open_row_processor,
    process_rows,
    usage,
)
from pyggml.batch.rows import InvalidRow, Row, Rows, is_parquet, require_pyarrow, require_writable
from pyggml.options import BATCH_N_PARALLEL, LoadOptions, fields_of, hints, require_known
from pyggml.progress import progress_bar

#: Options of load that affect only speed, not answers.
_SPEED_OPTIONS = (
    "n_parallel",
    "n_threads",
    "n_batch",
    "n_ubatch",
    "device",
    "n_gpu_layers",
    "prefix_cache",
    "prefix_cache_bytes",
    "prefix_cache_dir",
    "prefix_cache_disk_bytes",
    "progress",
)
#: Default number of parallel sequences.
N_PARALLEL = BATCH_N_PARALLEL


@dataclass(frozen=True)
class BatchProgress:
    """Progress of a job.

    Attributes:
        n_rows: number of rows.
        n_done: rows with an answer, including those of earlier runs.
        n_kept: rows that already had an answer before this run.
        n_failed: rows that failed, including those of earlier runs.
        prompt_tokens: prompt tokens of the rows answered in this run.
        generated_tokens: tokens generated in this run.
        elapsed_s: seconds since this run started its first row.
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
        """Tokens generated per second in this run."""
        return self.generated_tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the job is done, at the average rate so far; None: not known yet."""
        n_new = self.n_done - self.n_kept
        return (self.n_rows - self.n_done) * self.elapsed_s / n_new if n_new else None


@dataclass(frozen=True)
class BatchReport(BatchProgress):
    """Report of a finished job.

    Attributes:
        path: the file of answers.
    """

    path: Path


#: The parameter ``progress`` of :func:`run`.
BatchProgressOption = Callable[[BatchProgress], object] | Literal[False] | None


class Job(contextlib.AbstractContextManager["Job"]):
    """A running job: its rows, the names of their fields, and its journal, which closing the job keeps."""

    def __init__(
        self,
        rows: Rows,
        out: Path,
        job_id: Mapping[str, Any],
        names: FieldNames,
        *,
        overwrite: bool = False,
        restart: bool = False,
        strict: bool = False,
        progress: Callable[[BatchProgress], object] | None = None,
    ) -> None:
        """Start or resume a job; arguments as for :func:`run`, with the ``job_id`` of :func:`job_id`.

        Args:
            rows: the rows.
            out: the file of answers.
            job_id: the result of :func:`job_id`, which a resumed job must have, too.
            names: names of the rows' fields.
            overwrite: as for :func:`run`.
            restart: as for :func:`run`.
            strict: as for :func:`run`.
            progress: as for :func:`run`.
        """
        self.rows, self.names = rows, names
        self._out, self._progress, self._strict = out, progress, strict
        journal = out.with_name(f"{out.name}.part")
        _check(rows, out, journal, names, overwrite)
        header = {"pyggml_batch": 1, "input": rows.sha256, "rows": rows.n_rows, "fields": asdict(names), **job_id}
        self._n_failed = self._n_prompt = self._n_generated = 0
        self._journal = Journal(journal, header, rows.n_rows, self._count_failure, restart=restart)
        self._n_kept = self._journal.n_done
        self._start_s = time.monotonic()

    @property
    def is_done(self) -> bool:
        """True if every row has an answer."""
        return self._journal.n_done == self.rows.n_rows

    def pending_rows(self) -> Generator[tuple[int, Row | InvalidRow]]:
        """Return the rows without an answer, in order, each with its index."""
        self._start_s = time.monotonic()
        return ((index, row) for index, row in enumerate(self.rows) if index not in self._journal)

    def add(self, index: int, answer: dict[str, Any]) -> None:
        """Append the answer to a row to the journal, and report progress.

        Args:
            index: the row's index, from 0.
            answer: the fields of the answer.

        Raises:
            InferError: the row failed, and the job is strict.
        """
        if index in self._journal:
            return
        if self._strict and (message := failure(answer, self.names.column)) is not None:
            raise pyggml.InferError(f"row {index + 1} of {self.rows.n_rows} failed: {message}")
        self._journal.add(index, answer)
        self._count_failure(answer)
        _, n_prompt, n_generated = usage(answer, self.names.column)
        self._n_prompt += n_prompt
        self._n_generated += n_generated
        if self._progress is not None:
            self._progress(BatchProgress(**self._counts()))

    def finish(self) -> BatchReport:
        """Write the output of a job without pending rows, and remove the journal."""
        output.write(self._out, self.rows, self._journal, self.names.column)
        self._journal.remove()
        return BatchReport(**self._counts(), path=self._out)

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    def _count_failure(self, answer: dict[str, Any]) -> None:
        self._n_failed += failure(answer, self.names.column) is not None

    def _counts(self) -> dict[str, Any]:
        return {
            "n_rows": self.rows.n_rows,
            "n_done": self._journal.n_done,
            "n_kept": self._n_kept,
            "n_failed": self._n_failed,
            "prompt_tokens": self._n_prompt,
            "generated_tokens": self._n_generated,
            "elapsed_s": time.monotonic() - self._start_s,
        }


def run(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    model: str | os.PathLike[str] | pyggml.LLM | None = None,
    *,
    params: Params = None,
    prompt: str = "prompt",
    messages: str = "messages",
    column: str = "answer",
    overwrite: bool = False,
    restart: bool = False,
    strict: bool = False,
    progress: BatchProgressOption = None,
    **load: Any,
) -> BatchReport:
    """Answer every row of a file, and write a file of answers in the same order.

    Rows that fail are written with their error. Answers are saved in a journal (``out`` + ".part") as they are
    computed: after a crash, the same call resumes the job. Call it from a thread without a running event loop.

    Args:
        source: a file of JSON lines (".jsonl"), CSV (".csv", ".tsv") or a Parquet file (".parquet"). A row has a prompt
            or messages, optionally ``params`` (fields of SamplingParams) and ``tools``, and any other fields, which are
            copied to the output. Or plain text (".txt") with a prompt per line, or a file in the format of OpenAI's
            batch API, which is detected from its first line.
        out: the file of answers; the extension ".jsonl" or ".parquet" selects the format.
        model: as for :func:`pyggml.load`, or an open model, which stays open.
        params: default sampling parameters of rows: SamplingParams, or a mapping of some of its fields, to which
            conversations add the defaults of :meth:`LLM.chat <pyggml.LLM.chat>`. Not for OpenAI's format, whose bodies
            have their own.
        prompt: name of the field with the prompt: text or token ids.
        messages: name of the field with the conversation.
        column: name of the field for the answer. The other fields are named after it: ``column`` + "_error",
            "_finish_reason", "_prompt_tokens", "_tokens", "_reasoning" and "_tool_calls".
        overwrite: replace ``out`` if it exists.
        restart: discard the journal of an earlier run.
        strict: raise at the first row that fails, instead of writing its error; the journal keeps the other answers.
        progress: called with a BatchProgress after each row. None: a bar in a notebook; False: no bar.
        **load: options of :func:`pyggml.load`; ``n_parallel`` defaults to 16.

    Raises:
        UnknownParameterError: there is no such option; a sampling parameter belongs in ``params``.
        InvalidParameterError: there is no such file, ``out`` exists, or input or options changed since the job began.
        MissingPackageError: a Parquet file needs pyarrow, or OpenAI's format the packages of the server.
        InferError: the model cannot be loaded, the engine failed, or a row of a ``strict`` job; the journal keeps the
            answers so far.
    """
    params = checked_params(params)
    require_load_options(load, run)
    rows, names = Rows(source), FieldNames(prompt, messages, "params", column)
    identity = job_id(model, params, load)
    flags = {"overwrite": overwrite, "restart": restart, "strict": strict}
    with _reporting(progress) as report, Job(rows, Path(out), identity, names, **flags, progress=report) as job:
        with _open_model(model, load) as llm:
            asyncio.run(_process(job, llm, params))
        return job.finish()


@contextlib.contextmanager
def _reporting(progress: BatchProgressOption) -> Iterator[Callable[[BatchProgress], object] | None]:
    """Yield the caller's function, or the one that moves a bar in a notebook."""
    with progress_bar("Answering rows", progress, counts=True) as report:
        has_bar = progress is None and report is not None
        yield (lambda state: report(state.n_done, state.n_rows)) if has_bar else report


async def _process(job: Job, llm: pyggml.LLM, params: Params) -> None:
    async with open_row_processor(llm, params, job.names, job.rows.is_openai) as processor:
        with contextlib.closing(job.pending_rows()) as rows:
            await process_rows(processor, rows, llm.n_parallel, job.add)


def require_load_options(given: Iterable[str], function: Callable[..., object]) -> None:
    """Check the names of the options for :func:`pyggml.load` that a function for jobs was given.

    Args:
        given: the names.
        function: the function, whose own parameters are not options.

    Raises:
        UnknownParameterError: one of them does not exist, such as a sampling parameter, which belongs in ``params``.
    """
    sampling = {name: name for name in fields_of(pyggml.SamplingParams)}
    sampling |= {name: own for name, own in pyggml.SamplingParams.HINTS.items() if own in sampling}
    found = {name: f"pass params={{{own!r}: ...}}" for name, own in sampling.items()}
    found |= {name: "model" for name, own in LoadOptions.HINTS.items() if own == "source"}
    known = {*fields_of(LoadOptions), *inspect.signature(function).parameters} - {"source", "load"}
    require_known(LoadOptions, given, known=known, more_hints={**found, **hints("batch")})


def job_id(
    model: str | os.PathLike[str] | pyggml.LLM | None, params: Params, load: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the part of a job's identity that its input lacks: model, model file, sampling parameters and options.

    Args:
        model: as for :func:`run`.
        params: as for :func:`run`.
        load: options of :func:`pyggml.load`.
    """
    source = model.source if isinstance(model, pyggml.LLM) else model
    found: list[Any] = [None if source is None else str(source)]
    with contextlib.suppress(OSError, TypeError):
        status = Path(source).stat()  # type: ignore[arg-type]
        found += [status.st_size, status.st_mtime_ns]
    options = {name: repr(value) for name, value in sorted(load.items()) if name not in _SPEED_OPTIONS}
    return {"model": found, "params": repr(params or None), "options": options}


@contextlib.contextmanager
def _open_model(model: str | os.PathLike[str] | pyggml.LLM | None, load: Mapping[str, Any]) -> Iterator[pyggml.LLM]:
    if not isinstance(model, pyggml.LLM):
        with pyggml.load(model, **{"n_parallel": N_PARALLEL, **load}) as llm:
            yield llm
        return
    if load:
        raise pyggml.InvalidParameterError(
            f"{', '.join(load)}: an open model cannot be given load options. Pass the path of the model instead."
        )
    yield model


def _check(rows: Rows, out: Path, journal: Path, names: FieldNames, overwrite: bool) -> None:
    if not out.parent.is_dir():
        raise pyggml.InvalidParameterError(f"there is no directory {out.parent} to write {out.name} in")
    if out.is_dir() or (out.exists() and out.samefile(rows.path)):
        raise pyggml.InvalidParameterError(f"{out} cannot be written: it is the input, or a directory")
    require_writable(out)
    if out.exists() and not overwrite and not journal.exists():
        raise pyggml.InvalidParameterError(f"{out} exists: name another output, or say overwrite=True")
    if is_parquet(out):
        require_pyarrow()
    if rows.is_table and rows.first and not rows.is_openai and not {names.prompt, names.messages} & rows.first.keys():
        separators = ". Commas separate the columns of a .csv file, and tabs those of a .tsv file"
        raise pyggml.InvalidParameterError(
            missing_prompt_message(names, rows.first, f"{rows.path} has")
            + separators * (rows.format == "csv" and len(rows.first) == 1)
        )
    if not rows.is_openai and (taken := [name for name in answer_fields(names.column) if name in rows.first]):
        raise pyggml.InvalidParameterError(
            f"the rows already have a field {taken[0]!r}: choose another column for answers than {names.column!r} with "
            "--column NAME (column= in Python)"
        )

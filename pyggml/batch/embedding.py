"""Embeddings of the rows of a file: every row once, in order, and resumable after a crash."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml.batch.job import _open_model, job_id, require_load_options
from pyggml.batch.journal import fsync_directory
from pyggml.batch.rows import InvalidRow, Row, Rows, is_parquet, require_pyarrow
from pyggml.batch.vector_journal import VectorJournal
from pyggml.progress import progress_bar

if TYPE_CHECKING:
    import pyarrow as pa

DType = Literal["float32", "float16", "int8", "binary"]
_EXTENSIONS = (".npy", ".jsonl", ".parquet")
_CHUNK_ROWS = 1024
_WRITE_ROWS = 4096
# Embedded in the place of rows without a text, whose vectors are dropped.
_PLACEHOLDER = "-"


@dataclass(frozen=True)
class EmbedProgress:
    """Progress of a job that embeds.

    Attributes:
        n_rows: number of rows.
        n_done: rows that are done, including those of earlier runs.
        n_kept: rows that were done before this run.
        elapsed_s: seconds since this run started its first row.
    """

    n_rows: int
    n_done: int
    n_kept: int
    elapsed_s: float

    @property
    def rows_per_s(self) -> float:
        """Rows per second in this run."""
        return (self.n_done - self.n_kept) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the job is done, at the average rate so far; None: not known yet."""
        return (self.n_rows - self.n_done) / self.rows_per_s if self.rows_per_s else None


@dataclass(frozen=True)
class EmbedReport(EmbedProgress):
    """Report of a finished job that embeds.

    Attributes:
        path: the file of vectors.
        n_failed: rows without a text.
        n_dimensions: numbers of each vector; of bits, eight in a number.
    """

    path: Path
    n_failed: int
    n_dimensions: int


#: The parameter ``progress`` of :func:`embed`.
EmbedProgressOption = Callable[[EmbedProgress], object] | Literal[False] | None


class TextRow(NamedTuple):
    """A row, its text, and the error if it has none."""

    row: Row
    text: str
    error: str | None


def embed(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    model: str | os.PathLike[str] | pyggml.LLM | None = None,
    *,
    text: str = "text",
    column: str = "embedding",
    prompt_name: str | None = None,
    dimensions: int | None = None,
    normalize: bool | None = None,
    dtype: DType = "float32",
    truncate: bool = True,
    max_tokens: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: EmbedProgressOption = None,
    **load: Any,
) -> EmbedReport:
    """Embed a text of every row of a file, and write a file of vectors in the same order.

    Vectors are saved in a file next to it (``out`` + ".part") as they are computed: after a crash, the same call
    resumes the job. Memory does not grow with the number of rows. A row without a text gets zeros in a .npy file,
    else null, with its error in the field ``column`` + "_error".

    Args:
        source: a file of rows, as for :func:`run`, or plain text (".txt") with a text per line.
        out: the file of vectors: ".npy" (an array with a row for each row), or ".jsonl" or ".parquet" with the rows and
            a field ``column``.
        model: as for :func:`pyggml.load`, or an open model, which stays open.
        text: name of the field with the text.
        column: name of the field for the vector.
        prompt_name: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        dimensions: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        normalize: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        dtype: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        truncate: cut off texts that are too long. False: raise at the first one.
        max_tokens: as for :meth:`LLM.embed <pyggml.LLM.embed>`.
        overwrite: replace ``out`` if it exists.
        restart: discard the progress of an earlier run.
        progress: called with an EmbedProgress after each chunk of rows. None: a bar in a notebook; False: no bar.
        **load: options of :func:`pyggml.load`.

    Raises:
        UnknownParameterError: there is no such option.
        InvalidParameterError: there is no such file, ``out`` exists, input or options changed since the job began, or
            the model embeds tokens instead of texts.
        MissingPackageError: a Parquet file needs pyarrow.
        InferError: as :meth:`LLM.embed <pyggml.LLM.embed>`; the vectors so far are kept.
    """
    require_load_options(load, embed)
    rows, path = Rows(source), Path(out)
    _require_output(rows, path, overwrite)
    options = {
        "prompt_name": prompt_name,
        "dimensions": dimensions,
        "normalize": normalize,
        "dtype": dtype,
        "truncate": truncate,
        "max_tokens": max_tokens,
    }
    identity = job_id(model, None, load)
    job = {"input": rows.sha256, "rows": rows.n_rows, "text": text, "vectors": options}
    job |= {name: identity[name] for name in ("model", "options")}
    with _open_model(model, load) as llm:
        empty = np.asarray(llm.embed([], **options))  # type: ignore[call-overload]
        if empty.ndim != 2:
            raise pyggml.InvalidParameterError(
                f"{llm.source} embeds tokens instead of texts, and a file has one vector for each row: use llm.embed"
            )
        with VectorJournal(_part(path), job, empty.dtype, empty.shape[1], restart=restart) as journal:
            state = _run(llm, rows, text, options, journal, progress)
            n_failed = _write(path, text_rows(rows, text), journal.vectors(), column, rows)
            journal.remove()
    return EmbedReport(**vars(state), path=path, n_failed=n_failed, n_dimensions=empty.shape[1])


def text_rows(rows: Rows, text: str) -> Iterator[TextRow]:
    """Yield the rows of a file with their texts, those of plain text as rows with a field ``text``.

    Args:
        rows: the rows.
        text: name of the field with the text.
    """
    for row in rows:
        if isinstance(row, InvalidRow):
            yield TextRow({}, _PLACEHOLDER, str(row))
            continue
        if rows.format == "text":
            row = {text: row["prompt"]}
        found = row.get(text)
        if isinstance(found, str) and found and "\0" not in found:
            yield TextRow(row, found, None)
        else:
            yield TextRow(row, _PLACEHOLDER, f"the field {text!r} has no text")


# --- computing ----------------------------------------------------------------------------------------------------


def _run(
    llm: pyggml.LLM,
    rows: Rows,
    text: str,
    options: dict[str, Any],
    journal: VectorJournal,
    progress: EmbedProgressOption,
) -> EmbedProgress:
    n_kept, start_s = journal.n_done, time.monotonic()

    def state() -> EmbedProgress:
        return EmbedProgress(rows.n_rows, journal.n_done, n_kept, time.monotonic() - start_s)

    left = itertools.islice(text_rows(rows, text), n_kept, None)
    with (
        progress_bar("Embedding rows", progress, counts=True) as report,
        contextlib.closing(
            llm.embed_iter(left, key=lambda row: row.text, chunk_size=_CHUNK_ROWS, progress=False, **options)
        ) as chunks,
    ):
        for chunk, vectors in chunks:
            vectors[[row.error is not None for row in chunk]] = 0
            journal.append(vectors)
            if report is not None:
                report(*((journal.n_done, rows.n_rows) if progress is None else (state(),)))
    return state()


# --- output -------------------------------------------------------------------------------------------------------


def _part(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


def _require_output(rows: Rows, out: Path, overwrite: bool) -> None:
    if out.suffix.lower() not in _EXTENSIONS:
        raise pyggml.InvalidParameterError(
            f"{out} must end in {', '.join(_EXTENSIONS[:-1])} or {_EXTENSIONS[-1]}, the formats of vectors"
        )
    if not out.parent.is_dir():
        raise pyggml.InvalidParameterError(f"there is no directory {out.parent} to write {out.name} in")
    if out.is_dir() or (out.exists() and out.samefile(rows.path)):
        raise pyggml.InvalidParameterError(f"{out} cannot be written: it is the input, or a directory")
    if out.exists() and not overwrite and not _part(out).exists():
        raise pyggml.InvalidParameterError(f"{out} exists: name another output, or say overwrite=True")
    if is_parquet(out):
        require_pyarrow()


def _write(out: Path, rows: Iterator[TextRow], vectors: npt.NDArray[Any], column: str, source: Rows) -> int:
    """Write the output, and replace an existing file by it when it is complete. Return the number of failed rows."""
    unfinished = out.with_name(f"{out.name}.writing")
    write = {".npy": _write_npy, ".jsonl": _write_jsonl, ".parquet": _write_parquet}[out.suffix.lower()]
    n_failed = write(unfinished, rows, vectors, column, source)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(out)
    fsync_directory(out.parent)
    return n_failed


def _write_npy(path: Path, rows: Iterator[TextRow], vectors: npt.NDArray[Any], _column: str, _source: Rows) -> int:
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": vectors.dtype.str, "fortran_order": False, "shape": vectors.shape}
        )
        for first in range(0, len(vectors), _WRITE_ROWS):
            file.write(np.ascontiguousarray(vectors[first : first + _WRITE_ROWS]).data)
    return sum(row.error is not None for row in rows)


def _write_jsonl(path: Path, rows: Iterator[TextRow], vectors: npt.NDArray[Any], column: str, _source: Rows) -> int:
    n_failed = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace") as lines:
        for row, vector in zip(rows, vectors, strict=True):
            found: Row = {column: vector.tolist()}
            if row.error is not None:
                found, n_failed = {column: None, f"{column}_error": row.error}, n_failed + 1
            lines.write(json.dumps({**row.row, **found}, ensure_ascii=False, default=str) + "\n")
    return n_failed


def _write_parquet(path: Path, rows: Iterator[TextRow], vectors: npt.NDArray[Any], column: str, source: Rows) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pyggml.batch.output import fit_to_column

    kind = pa.list_(pa.from_numpy_dtype(vectors.dtype), vectors.shape[1])
    fields = [field for field in _row_schema(source) if field.name not in (column, f"{column}_error")]
    schema = pa.schema([*fields, (column, kind), (f"{column}_error", pa.string())])
    n_failed = first = 0
    with pq.ParquetWriter(path, schema) as writer:
        while part := list(itertools.islice(rows, _WRITE_ROWS)):
            errors = [row.error for row in part]
            n_failed += sum(error is not None for error in errors)
            columns = [
                pa.array([fit_to_column(row.row.get(field.name), field.type) for row in part], field.type)
                for field in fields
            ]
            numbers = pa.array(np.ascontiguousarray(vectors[first : first + len(part)]).ravel())
            missing = pa.array([error is not None for error in errors])
            lists = pa.FixedSizeListArray.from_arrays(numbers, type=kind, mask=missing)
            table = pa.Table.from_arrays([*columns, lists, pa.array(errors, pa.string())], schema=schema)
            writer.write_table(table)
            first += len(part)
    return n_failed


def _row_schema(source: Rows) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("text", pa.string())]) if source.format == "text" else source.schema()

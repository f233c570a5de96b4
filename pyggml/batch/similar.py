"""Search of a file of rows by similarity to a query."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import pyggml
from pyggml.batch.embedding import text_rows
from pyggml.batch.rows import InvalidRow, Row, Rows

_CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Match:
    """A row that is similar to a query.

    Attributes:
        index: index of the row, from 0.
        score: its similarity; higher is more similar.
        row: the row without its vector; {} for an array of vectors.
    """

    index: int
    score: float
    row: Row


def similar(
    llm: pyggml.LLM,
    query: str,
    source: str | os.PathLike[str],
    *,
    text: str = "text",
    column: str = "embedding",
    top_n: int = 10,
) -> list[Match]:
    """Return the rows of a file that are most similar to a query, the most similar first.

    Args:
        llm: the model that embedded the rows.
        query: the query, which is embedded as :meth:`LLM.embed_query <pyggml.LLM.embed_query>` does.
        source: a file of :func:`embed`; or another file of rows, whose texts are embedded now.
        text: name of the field with the text, for rows without vectors.
        column: name of the field with the vector.
        top_n: number of rows to return.

    Raises:
        InvalidParameterError: there is no such file, or its vectors are not of this model.
        InferError: as :meth:`LLM.embed <pyggml.LLM.embed>`.
    """
    best: list[Match] = []
    wanted: npt.NDArray[Any] | None = None
    for found in _chunks(llm, Path(source), text, column):
        if not len(found.vectors):
            continue
        if wanted is None:
            wanted = _query_vector(llm, query, found.vectors)
        scores = llm.similarity(wanted, found.vectors)
        best += [found.match(i, float(scores[i])) for i in np.argsort(-scores, kind="stable")[:top_n].tolist()]
        best = sorted(best, key=lambda match: (-match.score, match.index))[:top_n]
    return best


class _Chunk(NamedTuple):
    """Rows with vectors: their indices in the file, the rows, and the vectors. An array of vectors has no rows."""

    indices: npt.NDArray[np.intp]
    rows: list[Row]
    vectors: npt.NDArray[Any]

    def match(self, i: int, score: float) -> Match:
        return Match(int(self.indices[i]), score, self.rows[i] if self.rows else {})


def _query_vector(llm: pyggml.LLM, query: str, vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Embed a query in the form of the vectors that it will be compared with."""
    width = vectors.shape[1] * (8 if vectors.dtype == np.uint8 else 1)
    if width > llm.n_dimensions:
        raise pyggml.InvalidParameterError(
            f"the file has vectors of {width} dimensions, and those of {llm.source} have {llm.n_dimensions}: load the "
            "model that made them"
        )
    form: Any = {np.dtype(np.uint8): "binary", np.dtype(np.int8): "int8"}.get(vectors.dtype, "float32")
    return llm.embed_query(query, dtype=form, dimensions=width, truncate=True)


def _chunks(llm: pyggml.LLM, path: Path, text: str, column: str) -> Iterator[_Chunk]:
    """Yield the rows of a file that have vectors, or whose texts are embedded now."""
    if path.suffix.lower() == ".npy":
        yield from _of_array(path)
        return
    rows = Rows(path)
    yield from _of_vectors(rows, column) if column in rows.first else _of_texts(llm, rows, text)


def _of_array(path: Path) -> Iterator[_Chunk]:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise pyggml.InvalidParameterError(f"{path} is not an array of vectors: {error}") from None
    if vectors.ndim != 2:
        raise pyggml.InvalidParameterError(f"{path} has the shape {vectors.shape}; vectors in rows were expected")
    for first in range(0, len(vectors), _CHUNK_ROWS):
        part = np.asarray(vectors[first : first + _CHUNK_ROWS])
        yield _Chunk(np.arange(first, first + len(part)), [], part)


def _of_vectors(rows: Rows, column: str) -> Iterator[_Chunk]:
    numbered = ((i, row) for i, row in enumerate(rows) if not isinstance(row, InvalidRow) and row.get(column))
    while chunk := list(itertools.islice(numbered, _CHUNK_ROWS)):
        try:
            vectors = _typed(np.array([row[column] for _, row in chunk]))
        except ValueError:
            raise pyggml.InvalidParameterError(f"the field {column!r} must have vectors of one length") from None
        others = [{name: value for name, value in row.items() if name != column} for _, row in chunk]
        yield _Chunk(np.array([i for i, _ in chunk], np.intp), others, vectors)


def _typed(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers of JSON or Parquet in their original type, as far as it matters: bits, int8 or floats."""
    if vectors.ndim != 2 or vectors.dtype.kind not in "iuf":
        raise ValueError
    if vectors.dtype.kind == "f":
        return vectors.astype(np.float32)
    return vectors.astype(np.int8 if vectors.min(initial=0) < 0 else np.uint8)


def _of_texts(llm: pyggml.LLM, rows: Rows, text: str) -> Iterator[_Chunk]:
    first = 0
    options: Any = {"progress": False, "truncate": True}
    for items, vectors in llm.embed_iter(text_rows(rows, text), key=lambda item: item.text, **options):
        kept = np.array([i for i, item in enumerate(items) if item.error is None], np.intp)
        yield _Chunk(first + kept, [items[i].row for i in kept.tolist()], vectors[kept])
        first += len(items)

"""Matrices of a checkpoint as rows: read, rearranged and encoded a few at a time, never as a whole.

A vector is a matrix with one column, a stack of matrices is one below the other; what shape they have in the file is
somebody else's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import quant
from pyggml.errors import ModelLoadError
from pyggml.quant import GGMLType

#: Which rows: consecutive ones, or some by their numbers.
Rows = slice | npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]


class Weight(ABC):
    """A matrix.

    Attributes:
        n_rows: of it.
        n_cols: values in a row.
        type: the element type that holds it without loss, or with the least.
        error: the largest relative one that this type makes.
    """

    n_rows: int
    n_cols: int
    type: GGMLType
    error: float = 0.0

    @abstractmethod
    def floats(self, rows: Rows) -> Floats:
        """The values of some rows: float32, (n, n_cols)."""

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """Some rows as :attr:`type` stores them: (n, n_cols), or (n, bytes of a row) for quantised types."""
        return encode(self.floats(rows), self.type)


class Plain(Weight):
    """An array of numbers."""

    def __init__(self, array: npt.NDArray[Any], type: GGMLType, file: tuple[Path, int] | None = None) -> None:
        """Wraps an array of at least one dimension, whose first counts the rows; BF16 as its bits.

        Args:
            array: the numbers.
            type: what they are.
            file: where they lie: a path and an offset. Rows that follow each other are read from there, in half the
                time that it takes to touch the pages of a mapped file for the first time.
        """
        self.n_rows = array.shape[0]
        self._array = array.reshape(self.n_rows, -1)
        self.n_cols = self._array.shape[1]
        self.type = type
        self._file = file

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return widen(self._rows(rows), self.type)

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        return self._rows(rows)

    def _rows(self, rows: Rows) -> npt.NDArray[Any]:
        if self._file is None or not isinstance(rows, slice):
            return self._array[rows]
        path, offset = self._file
        start, stop, _ = rows.indices(self.n_rows)
        count = (stop - start) * self.n_cols
        offset += start * self.n_cols * self._array.itemsize
        found = np.fromfile(path, self._array.dtype, count, offset=offset)
        if found.size != count:
            raise ModelLoadError(f"{path} has become shorter since its header was read")
        return found.reshape(-1, self.n_cols)


class Reordered(Weight):
    """Rows of another matrix, in another order."""

    def __init__(self, source: Weight, order: npt.NDArray[np.intp]) -> None:
        """Takes for each row the number of the row it is in ``source``."""
        self._source, self._order = source, order
        self.n_rows, self.n_cols, self.type = len(order), source.n_cols, source.type
        self.error = source.error

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return self._source.floats(self._order[rows])

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        return self._source.stored(self._order[rows])


class Stacked(Weight):
    """Matrices of the same width below each other."""

    def __init__(self, parts: Sequence[Weight]) -> None:
        """Takes them from top to bottom."""
        self._parts = parts
        self.n_rows, self.n_cols = sum(part.n_rows for part in parts), parts[0].n_cols
        types = {part.type for part in parts}
        self.type = types.pop() if len(types) == 1 else GGMLType.F32
        self.error = max(part.error for part in parts)

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return np.concatenate([part.floats(inside) for part, inside in self._overlaps(rows)])

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        if any(part.type != self.type for part in self._parts):
            return self.floats(rows)
        return np.concatenate([part.stored(inside) for part, inside in self._overlaps(rows)])

    def _overlaps(self, rows: Rows) -> list[tuple[Weight, slice]]:
        if not isinstance(rows, slice):
            raise TypeError("stacked matrices are read in the order they are in")
        start, stop, _ = rows.indices(self.n_rows)
        found, top = [], 0
        for part in self._parts:
            inside = slice(max(start - top, 0), min(stop - top, part.n_rows))
            if inside.start < inside.stop:
                found.append((part, inside))
            top += part.n_rows
        return found


class PlusOne(Weight):
    """A matrix to which 1 was added: norms that are stored as their distance from 1."""

    type = GGMLType.F32

    def __init__(self, source: Weight) -> None:
        """Wraps what 1 is to be added to."""
        self._source = source
        self.n_rows, self.n_cols = source.n_rows, source.n_cols

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return np.add(self._source.floats(rows), 1, dtype=np.float32)


def widen(array: npt.NDArray[Any], type: GGMLType) -> Floats:
    """Numbers of a plain type as float32: a copy, exact but for F64 and large integers."""
    if type == GGMLType.BF16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    floats: Floats = array.astype(np.float32, copy=False)
    return floats


def encode(values: Floats, type: GGMLType, importances: Floats | None = None) -> npt.NDArray[np.generic]:
    """Floats as a type stores them, by how much their columns matter; F32 is no copy.

    Raises:
        InvalidParameterError: the type cannot hold one of them.
    """
    if type == GGMLType.F32:
        return values
    encoded = quant.quantize(values, type, importances)
    return encoded if type.is_quantized else encoded.view(type.dtype)

"""Matrices of a checkpoint, whose rows are read, rearranged and encoded a few at a time.

A vector is a matrix with one column; a stack of matrices is one matrix with their rows concatenated. Shapes in the GGUF
file are handled by the import plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import quant
from pyggml.errors import ModelLoadError
from pyggml.quant import GGMLType

#: A selection of rows: consecutive ones, or indices.
Rows = slice | npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]


class Weight(ABC):
    """A matrix.

    Attributes:
        n_rows: number of rows.
        n_cols: values per row.
        type: the element type that stores it without loss, or with the least loss.
        error: the largest relative error of that type.
        compact: the same matrix in a smaller type that holds it as well, but that the engine multiplies with rounded
            activations; None if there is none.
        factored: the same matrix in a smaller type, but for :attr:`factors`; None if there is none.
        factors: factors that the engine has to multiply with, (n_matrices,), because the type lacks them; None: none.
    """

    n_rows: int
    n_cols: int
    type: GGMLType
    error: float = 0.0
    compact: Weight | None = None
    factored: Weight | None = None
    factors: Floats | None = None

    @abstractmethod
    def floats(self, rows: Rows) -> Floats:
        """The values of some rows: float32, (n, n_cols)."""

    def in_type(self, type: GGMLType) -> Weight | None:
        """This matrix or :attr:`compact`, whichever has this type; None if neither has."""
        return next((each for each in (self, self.compact) if each is not None and each.type == type), None)

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """Some rows as stored by :attr:`type`: (n, n_cols), or (n, bytes per row) for quantised types."""
        return encode(self.floats(rows), self.type)


class Plain(Weight):
    """An array of numbers."""

    def __init__(self, array: npt.NDArray[Any], type: GGMLType, file: tuple[Path, int] | None = None) -> None:
        """Wrap an array whose first dimension counts the rows; BF16 as its bits.

        Consecutive rows are read from ``file``, a path and an offset, in half the time of touching the pages of a
        mapped file for the first time.
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
            raise ModelLoadError(f"{path} became shorter after its header was read")
        return found.reshape(-1, self.n_cols)


class Reordered(Weight):
    """Rows of another matrix, in another order."""

    def __init__(self, source: Weight, order: npt.NDArray[np.intp]) -> None:
        """Take the index in ``source`` of each row."""
        self._source, self._order = source, order
        self.n_rows, self.n_cols, self.type = len(order), source.n_cols, source.type
        self.error, self.factors = source.error, source.factors
        self.compact = None if source.compact is None else Reordered(source.compact, order)
        self.factored = None if source.factored is None else Reordered(source.factored, order)

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return self._source.floats(self._order[rows])

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        return self._source.stored(self._order[rows])


class Stacked(Weight):
    """Matrices of the same width, stacked vertically."""

    def __init__(self, parts: Sequence[Weight]) -> None:
        """Take them from top to bottom."""
        self._parts = parts
        self.n_rows, self.n_cols = sum(part.n_rows for part in parts), parts[0].n_cols
        types = {part.type for part in parts}
        self.type = types.pop() if len(types) == 1 else GGMLType.F32
        self.error = max(part.error for part in parts)
        compact = [part.compact for part in parts if part.compact is not None]
        self.compact = Stacked(compact) if len(compact) == len(parts) else None
        factored = [part.factored for part in parts if part.factored is not None]
        self.factored = Stacked(factored) if len(factored) == len(parts) else None
        factors = [part.factors for part in parts if part.factors is not None]
        self.factors = np.concatenate(factors) if factors else None

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
            raise TypeError("rows of stacked matrices must be read with a slice")
        start, stop, _ = rows.indices(self.n_rows)
        found, top = [], 0
        for part in self._parts:
            inside = slice(max(start - top, 0), min(stop - top, part.n_rows))
            if inside.start < inside.stop:
                found.append((part, inside))
            top += part.n_rows
        return found


class Transposed(Weight):
    """A stack of matrices that are stored with rows and columns exchanged."""

    def __init__(self, array: npt.NDArray[Any], type: GGMLType) -> None:
        """Wrap an array of shape (n_matrices, n_cols, rows of a matrix); BF16 as its bits."""
        self._array = array
        n_matrices, self.n_cols, self._n_each = array.shape
        self.n_rows, self.type = n_matrices * self._n_each, type

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return widen(self.stored(rows), self.type)

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        matrices, columns = np.divmod(np.arange(self.n_rows)[rows], self._n_each)
        found = np.empty((len(columns), self.n_cols), self._array.dtype)
        for matrix in np.unique(matrices):
            here = matrices == matrix
            wanted = columns[here]
            first = wanted.min()
            # Copied in the order of the file first: two to three times as fast as gathering single numbers.
            block = np.ascontiguousarray(self._array[matrix, :, first : wanted.max() + 1])
            found[here] = block.T[wanted - first]
        return found


class Columns(Weight):
    """Some columns of another matrix, whose type has no blocks."""

    def __init__(self, source: Weight, columns: slice) -> None:
        """Take the columns to keep."""
        self._source, self._columns = source, columns
        self.n_rows, self.type = source.n_rows, source.type
        self.n_cols = len(range(source.n_cols)[columns])

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return self._source.floats(rows)[:, self._columns]

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """See :class:`Weight`."""
        return self._source.stored(rows)[:, self._columns]


class Elementwise(Weight):
    """A float32 matrix computed value by value from another matrix."""

    type = GGMLType.F32

    def __init__(self, source: Weight, function: Callable[[Floats], Floats]) -> None:
        """Take the other matrix, and the function of its values."""
        self._source, self._function = source, function
        self.n_rows, self.n_cols = source.n_rows, source.n_cols

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        return self._function(self._source.floats(rows))


def widen(array: npt.NDArray[Any], type: GGMLType) -> Floats:
    """Convert numbers of an unquantised type to float32: exact except for F64 and large integers."""
    if type == GGMLType.BF16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    floats: Floats = array.astype(np.float32, copy=False)
    return floats


def encode(values: Floats, type: GGMLType, importances: Floats | None = None) -> npt.NDArray[np.generic]:
    """Encode floats as a type, using the columns' importances; F32 is not copied.

    Raises:
        InvalidParameterError: the type cannot hold a value.
    """
    if type == GGMLType.F32:
        return values
    encoded = quant.quantize(values, type, importances)
    return encoded if type.is_quantized else encoded.view(type.dtype)

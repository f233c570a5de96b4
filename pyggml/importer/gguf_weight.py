"""A tensor of a GGUF file as a matrix."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml import quant
from pyggml.errors import ModelLoadError
from pyggml.files.weights import Floats, Rows, Weight
from pyggml.gguf import TensorInfo


class GGUFWeight(Weight):
    """A tensor of a file as one matrix: leading dimensions are merged into the rows."""

    def __init__(self, path: Path, info: TensorInfo) -> None:
        """Store its location. Rows are read on demand, so that few are in memory at a time."""
        self.n_rows, self.n_cols = math.prod(info.shape[:-1]), info.shape[-1]
        self.type = info.type
        self._path, self._offset = path, info.offset
        self._row_bytes = quant.nbytes(info.type, info.shape[-1:])

    def floats(self, rows: Rows) -> Floats:
        """See :class:`Weight`."""
        raw = self.stored(rows)
        return quant.dequantize(raw, self.type, (len(raw), self.n_cols))

    def stored(self, rows: Rows) -> npt.NDArray[np.generic]:
        """Read rows as stored in the file: uint8, (n, bytes per row)."""
        if not isinstance(rows, slice):
            raise TypeError("rows of a file must be read with a slice")
        start, stop, _ = rows.indices(self.n_rows)
        n_bytes = (stop - start) * self._row_bytes
        raw = np.fromfile(self._path, np.uint8, n_bytes, offset=self._offset + start * self._row_bytes)
        if len(raw) != n_bytes:
            raise ModelLoadError(f"{self._path} became shorter while it was read")
        return raw.reshape(stop - start, self._row_bytes)

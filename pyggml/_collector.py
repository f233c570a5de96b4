"""Collects the inputs of weights while contexts compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._checks import flag
from pyggml._ffi import ffi, lib

if TYPE_CHECKING:
    from pyggml._ffi import CData

#: Sums of squares and of values, (n_counts, n_columns) float32, and counts, (n_counts,) int64.
Sums = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]


class Collector:
    """Sums up the input activations of each weight, in all contexts created with it. Thread-safe."""

    def __init__(self, *, process_output: bool) -> None:
        """Starts empty; ``process_output``: include the output matrix."""
        self._handle = errors.create(
            "pyg_imatrix", lib.pyg_imatrix_free, lib.pyg_imatrix_new, flag("process_output", process_output)
        )

    def sums(self) -> dict[str, Sums]:
        """Returns copies of the sums, by tensor name. Do not call it while a context decodes.

        Raises:
            EngineError: an activation was infinite or NaN.
        """
        count, entry = ffi.new("size_t *"), ffi.new("pyg_imatrix_entry *")
        errors.call(lib.pyg_imatrix_count, self._handle, count)
        sums: dict[str, Sums] = {}
        for index in range(count[0]):
            errors.call(lib.pyg_imatrix_get, self._handle, index, entry)
            shape = (entry.n_counts, entry.n_values // entry.n_counts)
            sums[ffi.string(entry.name).decode("utf-8", "surrogateescape")] = (
                _copy(entry.squares, shape, np.float32),
                _copy(entry.activations, shape, np.float32),
                _copy(entry.counts, shape[:1], np.int64),
            )
        return sums


def _copy(numbers: CData, shape: tuple[int, ...], dtype: type[np.generic]) -> npt.NDArray[Any]:
    copy = np.empty(shape, dtype)
    ffi.memmove(ffi.from_buffer(copy), numbers, copy.nbytes)
    return copy

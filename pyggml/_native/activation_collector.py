"""Collection of the input activations of weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyggml._core import c_calls
from pyggml._core.checks import flag
from pyggml._core.ffi import ffi, lib

#: Sums of squares and of values, (n_counts, n_columns) float32, and counts, (n_counts,) int64.
Sums = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]


class Collector:
    """The sums of each weight's input activations, over all contexts created with it. Thread-safe."""

    def __init__(self, *, process_output: bool) -> None:
        """Create an empty collector; ``process_output``: include the output matrix."""
        self._handle = c_calls.create(
            "pyg_imatrix", lib.pyg_imatrix_free, lib.pyg_imatrix_new, flag("process_output", process_output)
        )

    def sums(self) -> dict[str, Sums]:
        """Return copies of the sums by tensor name. While a context decodes, they are incomplete.

        Raises:
            EngineError: an activation was infinite or NaN.
        """
        n_values, n_counts = ffi.new("size_t *"), ffi.new("size_t *")
        sums: dict[str, Sums] = {}
        name: bytes | None = b""
        while name := c_calls.call_for_text(lib.pyg_imatrix_next, self._handle, name, n_values, n_counts):
            shape = (n_counts[0], n_values[0] // n_counts[0])
            arrays = np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(shape[:1], np.int64)
            types = "float[]", "float[]", "int64_t[]"
            pointers = [ffi.from_buffer(type, array) for type, array in zip(types, arrays, strict=True)]
            c_calls.call(lib.pyg_imatrix_copy, self._handle, name, *pointers)
            sums[name.decode("utf-8", "surrogateescape")] = arrays
        return sums

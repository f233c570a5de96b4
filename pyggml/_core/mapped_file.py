"""Files as arrays, which may be cut short or become unreadable meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml._core import c_calls
from pyggml._core.ffi import lib


class MappedFile:
    """A file's bytes as an array, read when they are touched.

    Attributes:
        data: uint8, (size of the file,), read-only. What is no longer in the file when it is touched reads as zeros, as
            long as the array or a view of it exists (on Linux; elsewhere it ends the process).
    """

    def __init__(self, path: Path) -> None:
        """Maps a file that is not empty.

        Raises:
            OSError: it cannot be opened or mapped.
        """
        self._watch = c_calls.create(
            "pyg_mapped_file", lib.pyg_mapped_file_free, lib.pyg_mapped_file_watch, os.fsencode(path)
        )
        mapped = np.memmap(path, np.uint8, "r")
        mapped.watch = self._watch  # type: ignore[attr-defined]  # every view keeps `mapped` alive
        self.data: npt.NDArray[np.uint8] = mapped.view(np.ndarray)

    def require_whole(self) -> None:
        """To be called after reading, and before what was read is believed.

        Raises:
            ModelLoadError: a part was touched that was no longer there.
        """
        c_calls.call(lib.pyg_mapped_file_require_whole, self._watch)

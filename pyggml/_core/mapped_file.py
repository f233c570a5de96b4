"""Memory-mapped files, which may be truncated or become unreadable while they are mapped."""

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
        data: uint8, (size of the file,), read-only. Bytes that are no longer in the file read as zeros, as long as the
            array or a view of it exists (on Linux; elsewhere the process crashes).
    """

    def __init__(self, path: Path) -> None:
        """Map a file that is not empty.

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
        """Check that all bytes read so far were in the file. Call it after reading, before using the values.

        Raises:
            ModelLoadError: a part was read that was no longer there.
        """
        c_calls.call(lib.pyg_mapped_file_require_whole, self._watch)

"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


class PartialFile:
    """A file in the making, under another name beside the one it will have.

    Nothing is left of it when it is discarded, dropped, or alive at the end of the process. One thread at a
    time. Errors of the file system are the OSError they are.
    """

    def __init__(self, target: Path, head: bytes) -> None:
        """Creates the file and writes its beginning; offsets below count from where that ends."""
        self._target = target
        self._path = target.parent / f".pyggml-{secrets.token_hex(8)}.part"
        # A bare descriptor: the buffer of a file object would be flushed by a forked child as well.
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._close = weakref.finalize(self, _abandon, self._descriptor, self._path, os.getpid())
        self._body_offset = len(head)
        _write_all(self._descriptor, memoryview(head), 0)

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        """Writes a C-contiguous array; what is skipped reads as zeros."""
        _write_all(self._descriptor, data.reshape(-1).view(np.uint8).data, self._body_offset + offset)

    def publish(self, n_bytes: int, *, is_lasting: bool = True) -> None:
        """Makes ``n_bytes`` of what was written, padded with zeros, appear under the target's name.

        What is lasting survives a power cut, for which the disk has to be waited for.
        """
        os.ftruncate(self._descriptor, self._body_offset + n_bytes)
        if is_lasting:
            os.fsync(self._descriptor)
        self._path.replace(self._target)
        self._close.detach()
        os.close(self._descriptor)
        if is_lasting:
            _sync_directory(self._target.parent)

    def discard(self) -> None:
        """Removes the file, unless it has been published. May be repeated."""
        self._close()


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:  # one call writes 2 GiB at most
        n_written = os.pwrite(descriptor, data, offset)
        data, offset = data[n_written:], offset + n_written


def _abandon(descriptor: int, path: Path, pid: int) -> None:
    os.close(descriptor)
    if os.getpid() == pid:  # a forked child ends with copies of its parent's objects, whose file it is not
        path.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    """Makes a new name in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

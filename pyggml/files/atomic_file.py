"""Files that appear under their name only when complete.

Until then they have a temporary name, and their writer holds their lock. The next writer in the same directory removes
the files whose lock is free, because their process was killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml._core.platforms import call_in_forked_child
from pyggml.files import locks

_PREFIX, _SUFFIX = ".pyggml-", ".part"

_open_files: weakref.WeakSet[PartialFile]


class PartialFile:
    """An unfinished file, under a temporary name in the target's directory.

    It has a header, then a body of parts written in any order; offsets count from the end of the header. The file is
    removed when it is discarded, garbage-collected, or still open at the end of the process. Use it from one thread at
    a time. File system errors are raised as OSError.
    """

    _finalizer: weakref.finalize[..., PartialFile]

    def __init__(self, target: Path) -> None:
        """Create an empty file, and remove those that killed processes left in the same directory."""
        _remove_leftovers(target.parent)
        while not self._create(target):
            self._finalizer()

    def _create(self, target: Path) -> bool:
        """Create the file; False: another process removed it as a leftover, before it had its lock."""
        path = target.parent / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        descriptors: list[int] = []
        # Created before the file: a signal handler may raise as soon as the file exists.
        self._finalizer = weakref.finalize(self, _close_and_remove, descriptors, path, os.getpid())
        # A bare descriptor: a forked child would also flush the buffer of a file object.
        descriptors.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        with contextlib.suppress(locks.NoLocks):  # then leftovers are recognised by their age
            if not locks.try_lock(descriptors[0]) or not locks.is_at(descriptors[0], path):
                return False
        self._attach(target, path, descriptors[0])
        return True

    def begin(self, header: bytes, n_body: int, n_parts: int) -> frozenset[int]:
        """Write the header, before a body of parts; return the indices of the parts that have already been written."""
        del n_parts
        self._header_size, self._n_body = len(header), n_body
        write_at(self._descriptor, memoryview(header), 0)
        return frozenset()

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        """Write a C-contiguous array; gaps read as zeros."""
        write_at(self._descriptor, data.reshape(-1).view(np.uint8).data, self._header_size + offset)

    def complete(self, part: int) -> None:
        """Record that all data of a part has been written."""

    def publish(self, *, is_durable: bool = True) -> None:
        """Pad the file with zeros and move it to the target.

        With ``is_durable``, wait for the disk, so that the file survives a power failure.
        """
        os.ftruncate(self._descriptor, self._header_size + self._n_body)
        if is_durable:
            os.fsync(self._descriptor)
        self._path.replace(self._target)
        self._finalizer.detach()
        os.close(self._descriptor)
        if is_durable:
            _sync_directory(self._target.parent)

    def discard(self) -> None:
        """Remove the file, unless it has been published. Can be called repeatedly."""
        self._finalizer()

    @property
    def n_allocated(self) -> int:
        """Bytes that the file takes on disk."""
        return os.fstat(self._descriptor).st_blocks * 512

    def _attach(self, target: Path, path: Path, descriptor: int) -> None:
        self._target, self._path, self._descriptor = target, path, descriptor
        self._header_size = self._n_body = 0
        _open_files.add(self)

    def _close_in_child(self) -> None:
        if self._finalizer.detach():
            os.close(self._descriptor)


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all data, in several system calls if needed: one writes 2 GiB at most."""
    while data:
        n_written = os.pwrite(descriptor, data, offset)
        data, offset = data[n_written:], offset + n_written


def _remove_leftovers(directory: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                locks.remove(Path(entry.path))


def _close_and_remove(descriptors: list[int], path: Path, pid: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    if os.getpid() == pid:
        path.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    """Sync a directory, so that new names in it survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _close_all_in_child() -> None:
    """Close a forked child's copies of its parent's files; a lock is held as long as any copy is open."""
    for file in list(_open_files):
        file._close_in_child()


_open_files = weakref.WeakSet()
call_in_forked_child(_close_all_in_child)

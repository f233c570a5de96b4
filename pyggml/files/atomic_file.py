"""Files that appear under their name only when complete.

Until then they have a temporary name, and their writer holds their lock. So whoever writes in the same directory next
can tell which of them nobody will complete, because their process was killed, and removes those.
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

from pyggml.files import locks

_PREFIX, _SUFFIX = ".pyggml-", ".part"

_open_files: weakref.WeakSet[PartialFile]


class PartialFile:
    """An unfinished file, under a temporary name in the target's directory.

    It has a head, then a body of parts written in any order; offsets count from the end of the head. The file is
    removed when it is discarded, garbage-collected, or still open at the end of the process. Use it from one thread at
    a time. File system errors are raised as OSError.
    """

    _let_go: weakref.finalize[..., PartialFile]

    def __init__(self, target: Path) -> None:
        """Creates an empty file, and removes those that killed processes left in the same directory."""
        _remove_leftovers(target.parent)
        while not self._create(target):
            self._let_go()

    def _create(self, target: Path) -> bool:
        """Creates the file; False: somebody who looked for leftovers has taken it for one, before it had its lock."""
        path = target.parent / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        descriptors: list[int] = []
        # Ready before there is a file: the handler of a signal may raise as soon as there is one.
        self._let_go = weakref.finalize(self, _abandon, descriptors, path, os.getpid())
        # A bare descriptor: the buffer of a file object would be flushed by a forked child as well.
        descriptors.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        with contextlib.suppress(locks.NoLocks):  # then leftovers are told by their age
            if not locks.try_lock(descriptors[0]) or not locks.is_at(descriptors[0], path):
                return False
        self._own(target, path, descriptors[0])
        return True

    def begin(self, head: bytes, n_body: int, n_parts: int) -> frozenset[int]:
        """Writes the head.

        Args:
            head: the file up to the body.
            n_body: size of the body.
            n_parts: number of its parts.

        Returns:
            The indices of the parts that have already been written.
        """
        del n_parts
        self._head_size, self._n_body = len(head), n_body
        write_at(self._descriptor, memoryview(head), 0)
        return frozenset()

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        """Writes a C-contiguous array; gaps read as zeros."""
        write_at(self._descriptor, data.reshape(-1).view(np.uint8).data, self._head_size + offset)

    def complete(self, part: int) -> None:
        """Must be called once all data of a part has been written."""

    def publish(self, *, is_lasting: bool = True) -> None:
        """Pads the file with zeros and moves it to the target.

        With ``is_lasting``, waits for the disk, so that the file survives a power cut.
        """
        os.ftruncate(self._descriptor, self._head_size + self._n_body)
        if is_lasting:
            os.fsync(self._descriptor)
        self._path.replace(self._target)
        self._let_go.detach()
        os.close(self._descriptor)
        if is_lasting:
            _sync_directory(self._target.parent)

    def discard(self) -> None:
        """Removes the file, unless it has been published. Can be called repeatedly."""
        self._let_go()

    @property
    def n_allocated(self) -> int:
        """Bytes that the file takes on disk."""
        return os.fstat(self._descriptor).st_blocks * 512

    def _own(self, target: Path, path: Path, descriptor: int) -> None:
        self._target, self._path, self._descriptor = target, path, descriptor
        self._head_size = self._n_body = 0
        _open_files.add(self)

    def _leave_to_parent(self) -> None:
        if self._let_go.detach():
            os.close(self._descriptor)


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Writes all data, in several system calls if needed: one writes 2 GiB at most."""
    while data:
        n_written = os.pwrite(descriptor, data, offset)
        data, offset = data[n_written:], offset + n_written


def _remove_leftovers(directory: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                locks.remove(Path(entry.path))


def _abandon(descriptors: list[int], path: Path, pid: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    if os.getpid() == pid:
        path.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    """Makes a new name in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _leave_all_to_parent() -> None:
    """Closes a forked child's copies of its parent's files; a lock is held as long as any copy is open."""
    for file in list(_open_files):
        file._leave_to_parent()


_open_files = weakref.WeakSet()
os.register_at_fork(after_in_child=_leave_all_to_parent)

"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_open_files: weakref.WeakSet[PartialFile]


class PartialFile:
    """A file in the making, under another name beside the one it will have.

    It has a head, then a body made of parts, which come in any order; offsets count from where the head ends. Nothing
    is left of it when it is discarded, dropped, or alive at the end of the process. One thread at a time. Errors of
    the file system are the OSError they are.
    """

    _let_go: weakref.finalize[..., PartialFile]

    def __init__(self, target: Path) -> None:
        """Creates the file, empty."""
        path = target.parent / f".pyggml-{secrets.token_hex(8)}.part"
        # A bare descriptor: the buffer of a file object would be flushed by a forked child as well.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._own(target, path, descriptor)
        self._let_go = weakref.finalize(self, _abandon, descriptor, path, os.getpid())

    def begin(self, head: bytes, n_body: int, n_parts: int) -> frozenset[int]:
        """Writes the head.

        Args:
            head: the file up to the body.
            n_body: bytes of the body.
            n_parts: how many parts it is made of.

        Returns:
            The numbers of the parts that are there already.
        """
        del n_parts
        self._head_size, self._n_body = len(head), n_body
        write_at(self._descriptor, memoryview(head), 0)
        return frozenset()

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        """Writes a C-contiguous array; what is skipped reads as zeros."""
        write_at(self._descriptor, data.reshape(-1).view(np.uint8).data, self._head_size + offset)

    def complete(self, part: int) -> None:
        """To be called when all data of a part has been written."""

    def publish(self, *, is_lasting: bool = True) -> None:
        """Makes what was written, padded with zeros, appear under the target's name.

        What is lasting survives a power cut, for which the disk has to be waited for.
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
        """Removes the file, unless it has been published. May be repeated."""
        self._let_go()

    @property
    def n_allocated(self) -> int:
        """Bytes that it takes on the disk."""
        return os.fstat(self._descriptor).st_blocks * 512

    def _own(self, target: Path, path: Path, descriptor: int) -> None:
        self._target, self._path, self._descriptor = target, path, descriptor
        self._head_size = self._n_body = 0
        _open_files.add(self)

    def _leave_to_parent(self) -> None:
        if self._let_go.detach():
            os.close(self._descriptor)


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Writes all of it: one call of the system writes 2 GiB at most."""
    while data:
        n_written = os.pwrite(descriptor, data, offset)
        data, offset = data[n_written:], offset + n_written


def _abandon(descriptor: int, path: Path, pid: int) -> None:
    os.close(descriptor)
    if os.getpid() == pid:
        path.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    """Makes a new name in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _leave_all_to_parent() -> None:
    """A forked child begins with copies of its parent's files, and a lock lasts as long as any copy is open."""
    for file in list(_open_files):
        file._leave_to_parent()


_open_files = weakref.WeakSet()
os.register_at_fork(after_in_child=_leave_all_to_parent)

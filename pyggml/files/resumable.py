"""Files that appear whole or not at all, and whose making goes on where it stopped, however it stopped.

The file in the making is called after the one it will be, and behind its body it has a mark for each part:

    head | body | one mark for each part

A mark is written when its part is known to be on the disk, and depends on the head: whatever else may be there after a
crash of the machine is no mark. A file with another head is begun anew. Publishing cuts the marks off.

Whoever makes the file holds the lock on it (flock), which ends with its holder, whatever ends that. The lock is on the
file and not on its name: who gets one looks whether the name still means that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pyggml._log import logger
from pyggml.files.partial import PartialFile, write_at

#: What nobody has written to for so long may be removed.
STALE_S = 24 * 3600

_POLL_S = 0.05
_MARK_SIZE = 16

_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def part_path(target: Path) -> Path:
    """Where a file is in the making that will be ``target``."""
    return target.with_name(f"{target.name}.part")


def claim(target: Path, waiting: Callable[[], object]) -> PartialFile | None:
    """The file in the making for ``target``; None when another has made it.

    Args:
        target: what it will be called.
        waiting: called again and again while another thread or process makes it; what it raises ends the wait.
    """
    path = part_path(target)
    while not target.exists():
        try:
            file = _locked(target, path)
        except _NoLocks as error:
            logger.warning(
                "%s has no locks (%s): %s is made from its beginning, without waiting for others that make it",
                target.parent,
                error,
                target.name,
            )
            return PartialFile(target)
        if file is None:
            waiting()
            time.sleep(_POLL_S)
        elif target.exists():  # made since we looked
            file.discard()
        else:
            return file
    return None


def remove(path: Path) -> int:
    """Removes a file in the making, unless somebody makes it.

    Returns:
        How many bytes it took, 0 when it is still there.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # gone, or not ours
        return 0
    try:
        if not _is_free(descriptor) or not _is_at(descriptor, path):
            return 0
        path.unlink(missing_ok=True)
        return os.fstat(descriptor).st_blocks * 512
    finally:
        os.close(descriptor)


class ResumableFile(PartialFile):
    """A file in the making that is kept when it is discarded."""

    def __init__(self, target: Path, path: Path, descriptor: int) -> None:
        """Takes ownership of a descriptor with the lock on the file at ``path``; :func:`claim` makes these."""
        self._own(target, path, descriptor)
        self._marks = _Marks(descriptor)
        self._let_go = weakref.finalize(self, _keep, descriptor, path, self._marks, os.getpid())

    def begin(self, head: bytes, n_body: int, n_parts: int) -> frozenset[int]:
        """As of any; the parts that are there are those with a mark, if the head is the same."""
        is_same = os.pread(self._descriptor, len(head), 0) == head
        if not is_same:
            os.ftruncate(self._descriptor, 0)
            super().begin(head, n_body, n_parts)
        self._head_size, self._n_body = len(head), n_body
        return self._marks.begin(head, len(head) + n_body, n_parts)

    def complete(self, part: int) -> None:
        """As of any."""
        self._marks.add(part)

    def publish(self, *, is_lasting: bool = True) -> None:
        """As of any. All is on the disk before the marks go, so that little can be lost between the two."""
        self._marks.flush()
        super().publish(is_lasting=is_lasting)


class _Marks:
    """Says which parts are on the disk.

    Writing goes on while the disk is waited for: one sync is under way at a time, and marks all parts that were
    complete when it began.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._offset = 0
        self._marks: list[bytes] = []
        self._complete: list[int] = []
        self._thread: ThreadPoolExecutor | None = None
        self._sync: Future[None] | None = None

    def begin(self, head: bytes, offset: int, n_parts: int) -> frozenset[int]:
        """Reads the marks, and takes their place on the disk."""
        key = hashlib.sha256(head).digest()
        self._offset = offset
        self._marks = [hashlib.blake2b(b"%d" % i, digest_size=_MARK_SIZE, key=key).digest() for i in range(n_parts)]
        found = os.pread(self._descriptor, n_parts * _MARK_SIZE, offset).ljust(n_parts * _MARK_SIZE, b"\0")
        write_at(self._descriptor, memoryview(found), offset)
        there = [found[i * _MARK_SIZE : (i + 1) * _MARK_SIZE] for i in range(n_parts)]
        return frozenset(i for i in range(n_parts) if there[i] == self._marks[i])

    def add(self, part: int) -> None:
        self._complete.append(part)
        if self._sync is not None and not self._sync.done():
            return
        if self._sync is not None:
            self._sync.result()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "pyggml-sync")
        parts, self._complete = self._complete, []
        self._sync = self._thread.submit(self._write, parts)

    def flush(self) -> None:
        """Marks everything that is complete."""
        if self._thread is not None:
            self._thread.shutdown()
        if self._sync is not None:
            self._sync.result()  # a disk tells of what it has lost only once
        parts, self._complete = self._complete, []
        if parts:
            self._write(parts)

    def _write(self, parts: list[int]) -> None:
        _sync_data(self._descriptor)
        for part in parts:
            write_at(self._descriptor, memoryview(self._marks[part]), self._offset + part * _MARK_SIZE)


def _keep(descriptor: int, path: Path, marks: _Marks, pid: int) -> None:
    if os.getpid() == pid:
        try:
            with contextlib.suppress(OSError):  # a full disk, say: what has no mark is written again
                marks.flush()
            if not os.fstat(descriptor).st_size:
                path.unlink(missing_ok=True)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing would not do where a child has a copy
    os.close(descriptor)


def _locked(target: Path, path: Path) -> ResumableFile | None:
    """The file at ``path``, new or left by somebody; None while somebody has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if _try_lock(descriptor) and _is_at(descriptor, path):
            return ResumableFile(target, path, descriptor)
    except _NoLocks:
        if not os.fstat(descriptor).st_size:
            path.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    except BaseException:  # Ctrl-C: nobody could have the lock again
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


class _NoLocks(Exception):
    """The file system has none; why."""


def _try_lock(descriptor: int) -> bool:
    """Whether the lock was free.

    Raises:
        _NoLocks: there are none here.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _NoLocks(error.strerror) from None
    return True


def _is_free(descriptor: int) -> bool:
    """Whether nobody makes a file; where there are no locks, nobody has written to it for long."""
    try:
        return _try_lock(descriptor)
    except _NoLocks:
        return os.fstat(descriptor).st_mtime < time.time() - STALE_S


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a name still means the file that was opened by it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

"""Files that appear only when complete, and whose writing resumes after any interruption.

The unfinished file is named after its target; after its body it has a mark for each part:

    header | body | one mark per part

A mark is written once its part is known to be on disk. It depends on the header, so that garbage from a crash is not
mistaken for one. A file with another header is started over. Publishing truncates the marks. The writer holds a lock on
the file; see :mod:`pyggml.files.locks`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pyggml._core.log import logger
from pyggml.files.atomic_file import PartialFile, write_at
from pyggml.files.locks import NoLocks, is_at, try_lock, unlock

_POLL_S = 0.05
_MARK_SIZE = 16

_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def part_path(target: Path) -> Path:
    """The path of the unfinished file for ``target``."""
    return target.with_name(f"{target.name}.part")


def acquire(target: Path, waiting: Callable[[], object]) -> PartialFile | None:
    """Return the unfinished file for ``target``, locked; None if another thread or process has finished it.

    ``waiting`` is called repeatedly while another thread or process writes the file; it may raise to stop waiting.
    """
    path = part_path(target)
    while not target.exists():
        try:
            file = _open_locked(target, path)
        except NoLocks as error:
            logger.warning(
                "%s does not support locks (%s): writing %s from the start, without protection from other writers",
                target.parent,
                str(error),  # a stored log record would keep the error's frames and their open files alive
                target.name,
            )
            return PartialFile(target)
        if file is None:
            waiting()
            time.sleep(_POLL_S)
        elif target.exists():  # finished meanwhile
            file.discard()
        else:
            return file
    return None


class ResumableFile(PartialFile):
    """An unfinished file that stays on disk when it is discarded."""

    def __init__(self, target: Path, path: Path, descriptor: int) -> None:
        """Take ownership of a descriptor that holds the lock on the file at ``path``; created by :func:`acquire`."""
        self._attach(target, path, descriptor)
        self._marks = _Marks(descriptor)
        self._finalizer = weakref.finalize(self, _close_and_keep, descriptor, path, self._marks, os.getpid())

    def begin(self, header: bytes, n_body: int, n_parts: int) -> frozenset[int]:
        """See :class:`PartialFile`; if the header is the same, return the marked parts."""
        is_same = os.pread(self._descriptor, len(header), 0) == header
        if not is_same:
            os.ftruncate(self._descriptor, 0)
            super().begin(header, n_body, n_parts)
        self._header_size, self._n_body = len(header), n_body
        return self._marks.begin(header, len(header) + n_body, n_parts)

    def complete(self, part: int) -> None:
        """See :class:`PartialFile`."""
        self._marks.add(part)

    def publish(self, *, is_durable: bool = True) -> None:
        """See :class:`PartialFile`. Everything is on disk before the marks are truncated."""
        self._marks.flush()
        super().publish(is_durable=is_durable)


class _Marks:
    """Marks of the parts that are on disk.

    Syncing does not block writing: one sync runs at a time, and marks all parts that were complete when it began.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._offset = 0
        self._marks: list[bytes] = []
        self._complete: list[int] = []
        self._thread: ThreadPoolExecutor | None = None
        self._sync: Future[None] | None = None

    def begin(self, header: bytes, offset: int, n_parts: int) -> frozenset[int]:
        """Read the marks, and reserve space for them on disk."""
        key = hashlib.sha256(header).digest()
        self._offset = offset
        self._marks = [hashlib.blake2b(b"%d" % i, digest_size=_MARK_SIZE, key=key).digest() for i in range(n_parts)]
        found = os.pread(self._descriptor, n_parts * _MARK_SIZE, offset).ljust(n_parts * _MARK_SIZE, b"\0")
        write_at(self._descriptor, memoryview(found), offset)
        stored = [found[i * _MARK_SIZE : (i + 1) * _MARK_SIZE] for i in range(n_parts)]
        return frozenset(i for i in range(n_parts) if stored[i] == self._marks[i])

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
        """Mark all complete parts."""
        if self._thread is not None:
            self._thread.shutdown()
        if self._sync is not None:
            self._sync.result()  # the system reports lost writes only once, to the sync that failed
        parts, self._complete = self._complete, []
        if parts:
            self._write(parts)

    def _write(self, parts: list[int]) -> None:
        _sync_data(self._descriptor)
        for part in parts:
            write_at(self._descriptor, memoryview(self._marks[part]), self._offset + part * _MARK_SIZE)


def _close_and_keep(descriptor: int, path: Path, marks: _Marks, pid: int) -> None:
    if os.getpid() == pid:
        try:
            with contextlib.suppress(OSError):  # for example a full disk; parts without a mark are written again
                marks.flush()
            if not os.fstat(descriptor).st_size:
                path.unlink(missing_ok=True)
        finally:
            unlock(descriptor)
    os.close(descriptor)


def _open_locked(target: Path, path: Path) -> ResumableFile | None:
    """The file at ``path``, new or left behind, with its lock; None while another holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if try_lock(descriptor) and is_at(descriptor, path):
            return ResumableFile(target, path, descriptor)
    except NoLocks:
        if not os.fstat(descriptor).st_size:
            path.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    except BaseException:  # such as Ctrl-C: release the lock
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None

"""The journal of a job: an append-only log of answers on disk, from which a job resumes.

A file of JSON lines: a header that identifies the job, then a record ``[row index, answer]`` per answered row, in
completion order. A crash can truncate only the last record, and a power failure only records since the last fsync.
On resume, the file is truncated after the last valid record.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from pyggml import InvalidParameterError

if sys.platform != "win32":
    import fcntl

#: Seconds between two fsyncs: a power failure loses at most the answers since the last one.
SYNC_S = 1.0

Json = dict[str, Any]


class Journal:
    """The answers of a job so far. Used from one thread at a time. ``n_done`` counts the rows with an answer."""

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Any],
        n_rows: int,
        replayed: Callable[[Json], object] = lambda _: None,
        *,
        restart: bool = False,
    ) -> None:
        """Open the journal of the job that ``header`` identifies, or create one; ``restart`` discards an existing one.

        ``replayed`` is called with each answer that it has already.

        Raises:
            InvalidParameterError: the journal belongs to another job, or another process is writing it.
        """
        self.path = path
        self.n_done = 0
        self._offsets = array("q", [-1]) * n_rows
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            lock(self._file, self.path)
            if restart:  # only now: another process may have been writing
                self._file.truncate(0)
            self._replay(json.loads(json.dumps(header)), replayed)
        except BaseException:
            self._file.close()
            raise
        self._synced_s = time.monotonic()

    def __contains__(self, index: int) -> bool:
        """Return True if a row has an answer."""
        return self._offsets[index] >= 0

    def __getitem__(self, index: int) -> Json:
        """Return the answer to a row that has one."""
        self._file.flush()
        answer = json.loads(self._read_line_at(self._offsets[index]))[1]
        assert isinstance(answer, dict)
        return answer

    def add(self, index: int, answer: Json) -> None:
        """Append the answer to a row, unless the row has one."""
        if index in self:
            return
        self._index_record(index, self._file.tell())
        self._file.write(_encode_line([index, answer]))
        now = time.monotonic()
        if now - self._synced_s >= SYNC_S:
            self.sync()
            self._synced_s = now
        else:
            self._file.flush()  # survives a crash of this process

    def sync(self) -> None:
        """Flush the journal to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Remove the file, once the output is complete."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Flush the journal to the disk and close it; without an answer, remove it."""
        with self._file:
            self.sync()
            if not self.n_done:  # there is nothing to resume, and a corrected job may have the same output
                self.remove()

    def _replay(self, header: Json, replayed: Callable[[Json], object]) -> None:
        line = self._file.readline()
        found = _decode_line(line)
        if found is None and not _encode_line(header).startswith(line):  # neither new nor killed in its header
            raise InvalidParameterError(
                f"{self.path} is not a journal and would be overwritten. Move it away, or name another output."
            )
        has_answers = bool(self._file.readline())
        if found is None or (found != header and _is_header(found) and not has_answers):
            self._start(header)
            return
        if found != header:
            raise InvalidParameterError(_mismatch_message(self.path, found, header))
        self._file.seek(len(line))
        end = len(line)
        while self._is_record(record := _decode_line(line := self._file.readline())):
            self._index_record(record[0], end)
            replayed(record[1])
            end += len(line)
        self._file.truncate(end)
        self._file.seek(end)

    def _start(self, header: Json) -> None:
        self._file.truncate(0)
        self._file.seek(0)
        self._file.write(_encode_line(header))
        self.sync()
        fsync_directory(self.path.parent)

    def _is_record(self, value: Any) -> bool:
        return (
            isinstance(value, list)
            and len(value) == 2
            and isinstance(value[0], int)
            and 0 <= value[0] < len(self._offsets)
            and isinstance(value[1], dict)
        )

    def _index_record(self, index: int, offset: int) -> None:
        self.n_done += index not in self
        self._offsets[index] = offset

    def _read_line_at(self, offset: int) -> bytes:
        """Read the line at an offset, in several reads if the file system returns fewer bytes than requested."""
        line = b""
        while part := os.pread(self._file.fileno(), max(4096, len(line)), offset + len(line)):
            line += part
            if b"\n" in part:
                return line.partition(b"\n")[0]
        raise OSError(errno.EIO, "the journal was truncated while the job was running; run it again", str(self.path))


def lock(file: IO[bytes], path: Path) -> None:
    """Lock a job's file until it is closed, where the system has locks.

    Raises:
        InvalidParameterError: another process has locked it.
    """
    if sys.platform == "win32":
        return  # it has no flock
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidParameterError(f"another process is running this job: it has locked {path}") from None
    except OSError:
        pass  # a file system without locks


def fsync_directory(path: Path) -> None:
    """Flush a directory's entries to the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _encode_line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _decode_line(line: bytes) -> Any:
    """Return the value of a line; None if the line is truncated or invalid."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _is_header(value: Any) -> bool:
    return isinstance(value, dict) and "pyggml_batch" in value


def _mismatch_message(path: Path, found: Any, header: Json) -> str:
    names = [name for name in header if not isinstance(found, dict) or found.get(name) != header[name]]
    return (
        f"{path} is the journal of another job: {' and '.join(names) or 'its version'} changed since. "
        "Restore the earlier values, name another output, or say restart=True to start over"
    )

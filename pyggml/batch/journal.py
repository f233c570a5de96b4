"""The journal of a job: the answers so far, in the order in which they came, on disk.

A file of JSON lines. The first says which job it is, each other is ``[index of the row, answer]``. Lines are only
appended, so a process that dies tears the last one at most, and a machine that loses power the last ones: what comes
after the first line that is not whole is cut off.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml import InvalidParameterError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

#: Seconds after which an answer also waits for the disk: a power cut costs those since the last that did.
SYNC_S = 1.0

Json = dict[str, Any]


class Journal:
    """The answers so far. Used from one thread at a time.

    Attributes:
        path: the file.
        n_done: number of rows that have an answer.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], n_rows: int, *, restart: bool = False) -> None:
        """Opens the journal of a job, or begins one.

        Args:
            path: the file.
            about: JSON values that say which job it is.
            n_rows: number of rows of the job.
            restart: forget what there is.

        Raises:
            InvalidParameterError: the journal is of another job, or another process is writing it.
        """
        self.path = path
        self.n_done = 0
        self._offsets = array("q", [-1]) * n_rows
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            self._lock()
            if restart:  # only now: another process may have been at work
                self._file.truncate(0)
            self._read(json.loads(json.dumps(about)))
        except BaseException:
            self._file.close()
            raise
        self._synced_s = time.monotonic()

    def __contains__(self, index: int) -> bool:
        """Whether a row has an answer."""
        return self._offsets[index] >= 0

    def __getitem__(self, index: int) -> Json:
        """The answer to a row that has one."""
        self._file.flush()
        answer = json.loads(self._line_at(self._offsets[index]))[1]
        assert isinstance(answer, dict)
        return answer

    def add(self, index: int, answer: Json) -> None:
        """Appends the answer to a row; the first one counts if there are several."""
        if index in self:
            return
        self._append([index, answer], index)
        now = time.monotonic()
        if now - self._synced_s >= SYNC_S:
            self.sync()
            self._synced_s = now
        else:
            self._file.flush()  # from here on, only the machine's end can lose it

    def sync(self) -> None:
        """Waits until everything is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Removes the file: the output is whole."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        with self._file:
            self.sync()

    # --- inside -------------------------------------------------------------------------------------------

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidParameterError(f"another process is at work on this job: it holds {self.path}") from None
        except OSError:
            pass  # a file system without locks

    def _read(self, about: Json) -> None:
        head = self._file.readline()
        known = _whole(head)
        if known is None:  # new, or it was killed at once
            if not _line(about).startswith(head):
                raise InvalidParameterError(f"{self.path} is no journal, and would be overwritten: move it away")
            self._file.truncate(0)
            self._file.seek(0)
            self._append(about)
            self.sync()
            sync_folder(self.path.parent)
            return
        if known != about:
            raise InvalidParameterError(_difference(self.path, known, about))
        end = len(head)
        while (entry := _whole(line := self._file.readline())) is not None:
            if not self._is_entry(entry):
                break
            self._note(entry[0], end)
            end += len(line)
        self._file.truncate(end)
        self._file.seek(end)

    def _is_entry(self, entry: Any) -> bool:
        return (
            isinstance(entry, list)
            and len(entry) == 2
            and isinstance(entry[0], int)
            and 0 <= entry[0] < len(self._offsets)
            and isinstance(entry[1], dict)
        )

    def _append(self, entry: Any, index: int | None = None) -> None:
        if index is not None:
            self._note(index, self._file.tell())
        self._file.write(_line(entry))

    def _note(self, index: int, offset: int) -> None:
        self.n_done += index not in self
        self._offsets[index] = offset

    def _line_at(self, offset: int) -> bytes:
        """A line that was written; in parts, for a file system may return less than it was asked for."""
        line = b""
        while part := os.pread(self._file.fileno(), max(4096, len(line)), offset + len(line)):
            line += part
            if b"\n" in part:
                return line.partition(b"\n")[0]
        raise OSError(errno.EIO, "the journal became shorter while the job was at work; run it again", str(self.path))


def sync_folder(path: Path) -> None:
    """Waits until the names of a folder's files are on the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _line(entry: Any) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _whole(line: bytes) -> Any:
    """What a line holds; None if it is torn."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _difference(path: Path, known: Any, about: Json) -> str:
    names = [name for name in about if not isinstance(known, dict) or known.get(name) != about[name]]
    return (
        f"{path} is the journal of another job: {' and '.join(names) or 'its version'} changed since. "
        "Go on with what there was, name another output, or say restart=True to begin anew"
    )

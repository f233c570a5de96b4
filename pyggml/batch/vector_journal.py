"""The vectors of a job on disk, in the order of the rows, from which the job resumes.

A file with a header, one line of JSON that identifies the job, and then the numbers of each row's vector. A crash can
truncate only the last vector, and a power failure only those since the last fsync. On resume, the file is truncated
after the last whole vector.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import InvalidParameterError
from pyggml.batch.journal import SYNC_S, fsync_directory, lock

if TYPE_CHECKING:
    from typing_extensions import Self

_MARK = "pyggml_embed"
_MAX_HEADER_BYTES = 1 << 20


class VectorJournal:
    """The vectors so far. Used from one thread at a time, and as a context manager.

    Attributes:
        path: the file.
        n_done: number of rows with a vector.
    """

    def __init__(
        self, path: Path, job: Mapping[str, Any], dtype: npt.DTypeLike, n_columns: int, *, restart: bool = False
    ) -> None:
        """Open the file of the job that ``job`` identifies, or create one; ``restart`` discards an existing one.

        Raises:
            InvalidParameterError: the file belongs to another job, or another process is writing it.
        """
        self.path = path
        self._dtype, self._n_columns = np.dtype(dtype), n_columns
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        try:
            lock(self._file, self.path)
            if restart:  # only now: another process may have been writing
                self._file.truncate(0)
            self._header_bytes = self._read_header({_MARK: 1, **json.loads(json.dumps(job))})
            self.n_done = (os.fstat(self._file.fileno()).st_size - self._header_bytes) // self._row_bytes
            self._file.truncate(self._header_bytes + self.n_done * self._row_bytes)
            self._file.seek(0, os.SEEK_END)
        except BaseException:
            self._file.close()
            raise
        self._synced_s = time.monotonic()

    def append(self, vectors: npt.NDArray[Any]) -> None:
        """Append the vectors of the next rows, (n, n_columns)."""
        self._file.write(np.ascontiguousarray(vectors, self._dtype).data)
        self.n_done += len(vectors)
        self._file.flush()  # survives a crash of this process
        if time.monotonic() - self._synced_s >= SYNC_S:
            os.fsync(self._file.fileno())
            self._synced_s = time.monotonic()

    def vectors(self) -> npt.NDArray[Any]:
        """Return all vectors so far, (n_done, n_columns), mapped from the file."""
        if self.n_done == 0:
            return np.empty((0, self._n_columns), self._dtype)
        shape = self.n_done, self._n_columns
        return np.memmap(self._file, self._dtype, mode="r", offset=self._header_bytes, shape=shape)

    def remove(self) -> None:
        """Remove the file, once the output is complete."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            os.fsync(self._file.fileno())
            if not self.n_done:  # there is nothing to resume, and a corrected job may have the same output
                self.remove()

    @property
    def _row_bytes(self) -> int:
        return self._n_columns * self._dtype.itemsize

    def _read_header(self, job: dict[str, Any]) -> int:
        """Return the length of the header, after writing it to a new file."""
        own = json.dumps(job).encode() + b"\n"
        line = self._file.readline(_MAX_HEADER_BYTES)
        if own.startswith(line) and line != own:  # a new file, or one of a job that was killed in its header
            self._file.truncate(0)
            self._file.seek(0)
            self._file.write(own)
            self._file.flush()
            fsync_directory(self.path.parent)
        elif line != own:
            raise InvalidParameterError(_mismatch_message(self.path, line, job))
        return len(own)


def _mismatch_message(path: Path, line: bytes, job: Mapping[str, Any]) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or _MARK not in found:
        return f"{path} is not a file of vectors and would be overwritten. Move it away, or name another output."
    names = [name for name in job if found.get(name) != job[name]]
    return (
        f"{path} belongs to another job: {' and '.join(names) or 'its version'} changed since. Restore the earlier "
        "values, name another output, or say restart=True to start over"
    )

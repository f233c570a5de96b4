"""One file comes from the hub: in any number of pieces, from any number of connections, processes and days."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout
from huggingface_hub import constants
from huggingface_hub.utils import WeakFileLock, build_hf_headers, get_session, hf_raise_for_status

from pyggml._version import __version__
from pyggml.errors import DownloadError
from pyggml.hub.failures import translated
from pyggml.hub.reference import Reference

if TYPE_CHECKING:
    from typing_extensions import Self

# So often in a row a connection may bring nothing; it is waited after the first so long, and twice as long after each.
_MAX_FAILURES = 5
_FIRST_WAIT_S = 0.5
# Whoever waits is asked this often whether to go on.
_TICK_S = 0.2


@dataclass(frozen=True)
class RemoteFile:
    """A file on the hub.

    Attributes:
        reference: that it is a part of.
        endpoint: address of the hub.
        name: path in the repository.
        url: address of the file.
        etag: hash of the content: SHA-256 of large files, git's SHA-1 of others.
        n_bytes: of it.
    """

    reference: Reference
    endpoint: str
    name: str
    url: str
    etag: str
    n_bytes: int


def download(file: RemoteFile, blob: Path, lock: Path) -> Generator[int]:
    """Makes a file appear as ``blob``, whole and checked.

    What has come stays beside it when something goes wrong or the iterator is closed, and the next download goes on
    from there.

    Args:
        file: to download.
        blob: where to; its directory is made.
        lock: file to lock meanwhile, as huggingface_hub does; it is waited for.

    Yields:
        How many bytes are there, whenever some came, and now and then while nothing does.

    Raises:
        ModelNotFoundError: it is not there any more.
        DownloadError: it does not come, or not as it should be.
        OSError: it cannot be written.
    """
    with ExitStack() as stack:
        yield from _acquire(stack, lock)
        if blob.exists():  # from whoever had the lock
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        partial = stack.enter_context(_Partial(blob.with_name(f"{blob.name}.pyggml.incomplete"), file))
        yield from _complete(partial, file)
        partial.publish(blob)


def _acquire(stack: ExitStack, lock: Path) -> Iterator[int]:
    while True:
        try:
            stack.enter_context(WeakFileLock(lock, timeout=_TICK_S))
            return
        except Timeout:
            yield 0


def _complete(partial: _Partial, file: RemoteFile) -> Iterator[int]:
    n_failures = 0
    while partial.n_bytes < file.n_bytes:
        n_before = partial.n_bytes
        try:
            yield from _go_on(partial, file)
            reason = DownloadError(f"{file.endpoint} sent {partial.n_bytes} of {file.n_bytes} bytes of {file.name}")
        except DownloadError as error:
            if not error.is_temporary:
                raise
            reason = error
        n_failures = 1 if partial.n_bytes > n_before else n_failures + 1
        if partial.n_bytes < file.n_bytes:
            if n_failures > _MAX_FAILURES:
                raise reason
            yield from _wait(_FIRST_WAIT_S * 2 ** (n_failures - 1), partial.n_bytes)
    partial.check()


def _go_on(partial: _Partial, file: RemoteFile) -> Iterator[int]:
    """One connection: the rest of the file, or as much of it as comes."""
    with ExitStack() as stack:
        with translated(file.reference, file.endpoint):
            headers = build_hf_headers(library_name="pyggml", library_version=__version__)
            headers |= {"Accept-Encoding": "identity", "Range": f"bytes={partial.n_bytes}-"}
            timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
            response = stack.enter_context(
                get_session().stream("GET", file.url, headers=headers, timeout=timeout, follow_redirects=True)
            )
            hf_raise_for_status(response)
            pieces = response.iter_bytes()
        if response.status_code != 206:
            partial.restart()
        while piece := _next(pieces, file):
            partial.write(piece)
            yield partial.n_bytes
            if partial.n_bytes > file.n_bytes:  # and perhaps without end
                return


def _next(pieces: Iterator[bytes], file: RemoteFile) -> bytes:
    with translated(file.reference, file.endpoint):
        return next(pieces, b"")


def _wait(seconds: float, n_bytes: int) -> Iterator[int]:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        yield n_bytes
        time.sleep(min(left, _TICK_S))


class _Partial:
    """What has come of a file, and the hash of it."""

    def __init__(self, path: Path, file: RemoteFile) -> None:
        self._path = path
        self._file = file
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._hash = _hash(file)
        self.n_bytes = 0
        if os.fstat(self._descriptor).st_size > file.n_bytes:
            self.restart()
        while piece := os.read(self._descriptor, 2**20):
            self._count(piece)

    def write(self, piece: bytes) -> None:
        while piece:
            n_written = os.write(self._descriptor, piece)
            self._count(piece[:n_written])
            piece = piece[n_written:]

    def restart(self) -> None:
        """Forgets what has come."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.ftruncate(self._descriptor, 0)
        self._hash = _hash(self._file)
        self.n_bytes = 0

    def check(self) -> None:
        """Holds what is there against what the hub says of it; what differs is not kept."""
        found, expected = self._hash.hexdigest(), self._file.etag
        if self.n_bytes != self._file.n_bytes or (len(found) == len(expected) and found != expected):
            self._path.unlink(missing_ok=True)
            raise DownloadError(
                f"{self._file.name} of {self._file.reference} did not come as {self._file.endpoint} describes it: "
                f"{self.n_bytes} bytes with the hash {found}, where {self._file.n_bytes} with {expected} were expected"
            )

    def publish(self, blob: Path) -> None:
        os.fsync(self._descriptor)
        self._path.replace(blob)

    def _count(self, piece: bytes) -> None:
        self._hash.update(piece)
        self.n_bytes += len(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _hash(file: RemoteFile) -> hashlib._Hash:
    """The hash that the hub calls a file by; of a hub that calls it otherwise nothing is checked but the size."""
    if len(file.etag) == 40:
        return hashlib.sha1(f"blob {file.n_bytes}\0".encode(), usedforsecurity=False)
    return hashlib.sha256()

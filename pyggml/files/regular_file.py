"""Untrusted files, open for reading."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pyggml.errors import InferError, ModelLoadError, ModelNotFoundError, TokenizerError, TokenizerNotFoundError

if TYPE_CHECKING:
    from typing_extensions import Self

_MISSING: dict[type[InferError], type[InferError]] = {
    ModelLoadError: ModelNotFoundError,
    TokenizerError: TokenizerNotFoundError,
}


class RegularFile:
    """A regular file, open for reading. A context manager.

    Attributes:
        path: the file's path.
        size: its size in bytes.
    """

    def __init__(self, path: Path, failure: type[InferError] = ModelLoadError) -> None:
        """Open the file.

        Raises:
            ModelNotFoundError, TokenizerNotFoundError: there is no such file; which one depends on ``failure``.
            ModelLoadError, TokenizerError: as ``failure`` says, also from :meth:`read`: it cannot be opened, or is a
                directory, a pipe or the like.
        """
        self.path = path
        self._failure = failure
        try:
            # O_NONBLOCK: opening a pipe would otherwise wait for a writer.
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            raise _MISSING[failure](f"there is no file {path}") from None
        except OSError as error:
            raise failure(f"{path} cannot be read: {error.strerror}") from None
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            os.close(self._descriptor)
            raise failure(f"{path} is not a file")

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Read ``n_bytes`` bytes at an offset."""
        parts = []
        while n_bytes:
            part = os.pread(self._descriptor, n_bytes, offset)
            if not part:
                raise self._failure(f"{self.path} became shorter while it was being read")
            parts.append(part)
            offset, n_bytes = offset + len(part), n_bytes - len(part)
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

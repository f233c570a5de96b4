"""Checks that a disk has room for a large file, before and while it is written."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from pyggml.errors import DiskFullError, InvalidParameterError
from pyggml.units import bytes_text

#: The errors for a full disk, an exhausted quota and a file that is too large for its file system.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# For metadata, padding and the file system's own overhead.
_SPARE_BYTES = 16 * 2**20


@contextlib.contextmanager
def room_for(target: Path, n_bytes: int, n_allocated: int = 0) -> Iterator[None]:
    """Wraps code that writes a file.

    Args:
        target: the file.
        n_bytes: size of its tensors.
        n_allocated: bytes that an unfinished file already takes.

    Raises:
        InvalidParameterError: its directory does not exist.
        DiskFullError: it will not fit, or the disk became full.
    """
    if not target.parent.is_dir():
        raise InvalidParameterError(f"there is no directory {target.parent} to write {target.name} to")
    required, available = _SPARE_BYTES + n_bytes, n_allocated + shutil.disk_usage(target.parent).free
    if required > available:
        raise DiskFullError(
            f"{target} needs {bytes_text(required)}, but {target.parent} has only {bytes_text(available)} free",
            required,
            available,
        )
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        available = shutil.disk_usage(target.parent).free
        message = f"{target} needs {bytes_text(required)}, but the disk is full: {error.strerror}"
        raise DiskFullError(message, required, available) from None

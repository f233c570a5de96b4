"""Disk space checks, before and while a large file is written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pyggml._core.checks import is_path, shown
from pyggml.errors import DiskFullError, InvalidParameterError
from pyggml.units import bytes_text

#: The errors for a full disk, an exhausted quota and a file that is too large for its file system.
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def target_path(name: str, target: object) -> Path:
    """Validate the path of a file to write, the value of the parameter ``name``.

    Raises:
        InvalidParameterError: it is not a path, is a directory, a device or a pipe, has no parent directory, or is
            too long for the file system.
    """
    if not is_path(target):
        raise InvalidParameterError(f"{name} must be the path of the file to write, without a NUL, not {shown(target)}")
    path = Path(target)
    try:
        path.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            longest = max(path.parts, key=_n_bytes)
            raise InvalidParameterError(
                f"{name} is too long for the file system: {_n_bytes(str(path))} bytes, {_n_bytes(longest)} of them in "
                f"'{longest[:40]}...'; most file systems allow 255 in a name and 4,095 in a path"
            ) from None
    if path.is_dir():
        raise InvalidParameterError(f"{path} is a directory; the path of a file was expected")
    if path.exists() and not path.is_file():
        raise InvalidParameterError(f"{path} is a device, a pipe or a socket; the path of a file was expected")
    if not path.parent.is_dir():
        raise InvalidParameterError(f"there is no directory {path.parent} to write {path.name} to")
    return path


def _n_bytes(text: str) -> int:
    return len(os.fsencode(text))


@contextlib.contextmanager
def require_disk_space(target: Path, n_bytes: int, n_allocated: int = 0) -> Iterator[None]:
    """Raise DiskFullError if a file of ``n_bytes`` does not fit, or if the enclosed code fills the disk.

    ``n_allocated`` are bytes that an unfinished file already occupies.
    """
    if not target.parent.is_dir():
        raise InvalidParameterError(f"there is no directory {target.parent} to write {target.name} to")
    available = n_allocated + shutil.disk_usage(target.parent).free
    if n_bytes > available:
        raise DiskFullError(
            f"{target} needs {bytes_text(n_bytes)}, but {target.parent} has only {bytes_text(available)} free",
            n_bytes,
            available,
        )
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        available = shutil.disk_usage(target.parent).free
        message = f"{target} needs {bytes_text(n_bytes)}, but the disk is full: {error.strerror}"
        raise DiskFullError(message, n_bytes, available) from None

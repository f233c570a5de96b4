"""Room on a disk for a large file: looked for before it is written, and missed while it is."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from pyggml.errors import DiskFullError, InvalidParameterError
from pyggml.units import bytes_text

#: What systems call it: the disk is full, a user's share of it is, or its files can be no larger.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# For metadata, padding and what the file system itself takes.
_SPARE_BYTES = 16 * 2**20


@contextlib.contextmanager
def room_for(target: Path, n_bytes: int, n_allocated: int = 0) -> Iterator[None]:
    """Around what writes a file.

    Args:
        target: the file.
        n_bytes: of its tensors.
        n_allocated: of what is there already.

    Raises:
        InvalidParameterError: its directory is not there.
        DiskFullError: it would not fit, or turned out not to.
    """
    if not target.parent.is_dir():
        raise InvalidParameterError(f"there is no directory {target.parent} to write {target.name} in")
    required, available = _SPARE_BYTES + n_bytes, n_allocated + shutil.disk_usage(target.parent).free
    if required > available:
        raise DiskFullError(
            f"{target} would take {bytes_text(required)}, and {target.parent} has room for {bytes_text(available)}",
            required,
            available,
        )
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        available = shutil.disk_usage(target.parent).free
        message = f"{target} takes {bytes_text(required)}, and the disk is full: {error.strerror}"
        raise DiskFullError(message, required, available) from None

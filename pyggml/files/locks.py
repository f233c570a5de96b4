"""File locks (flock) of the writers of unfinished files, released at the latest when the process ends.

A lock belongs to the file, not to its name, so after taking it, check that the name still refers to that file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl

#: Without locks, an unfinished file that has not been written to for this long may be removed.
STALE_S = 24 * 3600


class NoLocks(Exception):
    """The file system does not support locks; the message is the reason."""


def try_lock(descriptor: int) -> bool:
    """Try to take the lock, and return whether it was free.

    Raises:
        NoLocks: the file system does not support locks.
    """
    if sys.platform == "win32":
        raise NoLocks("Windows has no flock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise NoLocks(error.strerror) from None
    return True


def unlock(descriptor: int) -> None:
    """Release the lock; closing is not enough if a child process has a copy of the descriptor."""
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _is_free(descriptor: int) -> bool:
    """Check whether no process writes the file; without locks, whether it is stale."""
    try:
        return try_lock(descriptor)
    except NoLocks:
        return os.fstat(descriptor).st_mtime < time.time() - STALE_S


def is_at(descriptor: int, path: Path) -> bool:
    """Check whether a path still refers to the opened file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def remove(path: Path) -> int:
    """Remove an unfinished file, unless it is being written; return the number of bytes freed."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # already removed, or owned by another user
        return 0
    try:
        if not _is_free(descriptor) or not is_at(descriptor, path):
            return 0
        path.unlink(missing_ok=True)
        return os.fstat(descriptor).st_blocks * 512
    finally:
        os.close(descriptor)

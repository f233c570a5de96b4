"""Tells whether anything opens a file, Python or native code, by the kernel's word."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_IN_OPEN = 0x20
_IN_ACCESS = 0x1


@contextlib.contextmanager
def opens_of(path: Path) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether the file, or one in the directory, has been opened since."""
    if sys.platform != "linux":
        pytest.skip("inotify is Linux's")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    try:
        watch = libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_OPEN | _IN_ACCESS)
        assert watch >= 0, os.strerror(ctypes.get_errno())

        def was_opened() -> bool:
            with contextlib.suppress(BlockingIOError):
                return bool(os.read(descriptor, 4096))
            return False

        yield was_opened
    finally:
        os.close(descriptor)

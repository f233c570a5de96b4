"""Calls of the system that fail when they are told to, in a process that was started with `environment()`."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("interpose.c")
LIBRARY = SOURCE.parents[3] / "build" / "faults" / "interpose.so"


class Kind(enum.IntFlag):
    """Kinds of calls that fail, by their numbers in interpose.c."""

    ALLOCATION = 1
    THREAD = 2
    DESCRIPTOR = 4
    READ = 8
    WRITE = 16
    MAPPING = 32


#: How reads and writes fail; 0: they do half of what was asked for.
ERRORS = {Kind.READ: (errno.EIO, errno.EINTR, 0), Kind.WRITE: (errno.ENOSPC, errno.EIO, errno.EINTR, 0)}


def environment() -> dict[str, str]:
    """Return the environment of a process with injected faults. Compiles the library that is preloaded.

    Raises:
        FileNotFoundError: there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("faults need a C compiler")
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < SOURCE.stat().st_mtime:
        LIBRARY.parent.mkdir(parents=True, exist_ok=True)
        unfinished = LIBRARY.with_suffix(f".{os.getpid()}")
        command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(SOURCE), "-o", str(unfinished), "-ldl"]
        subprocess.run(command, check=True)
        unfinished.rename(LIBRARY)
    return {"LD_PRELOAD": str(LIBRARY)}


@dataclass
class Count:
    """Counts of the calls that could fail.

    Attributes:
        calls: how many there were.
        hits: how many failed.
    """

    calls: int = 0
    hits: int = 0


class Faults:
    """The faults of this process. The compiled module has to be loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.faults_range.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self._library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_int]
        self._library.faults_counted.restype = self._library.faults_hit.restype = ctypes.c_long
        self._library.faults_wall_clock.argtypes = [ctypes.c_long]
        for begin, end in _code():
            self._library.faults_range(begin, end)

    @contextlib.contextmanager
    def failing(self, kind: Kind, nth: int, folder: Path, *, lasts: bool = False, error: int = 0) -> Iterator[Count]:
        """The `nth` call fails, and with `lasts` all after it; none for 0. The count is filled in at the end."""
        count = Count()
        self._library.faults_arm(os.fsencode(folder), int(kind), nth, int(lasts), error)
        try:
            yield count
        finally:
            self._library.faults_disarm()
            count.calls, count.hits = self._library.faults_counted(), self._library.faults_hit()

    def set_wall_clock(self, seconds: int) -> None:
        """Moves the clock that tells dates, and not the one that only goes forward."""
        self._library.faults_wall_clock(seconds)


def _code() -> Iterator[tuple[int, int]]:
    """Yield the address ranges of the code of the module and of the C++ library."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, *_, path = line.split(maxsplit=5)
        name = Path(path).name
        if "x" in permissions and (name.startswith(("_pyggml.", "libstdc++.so", "libggml"))):
            begin, end = addresses.split("-")
            yield int(begin, 16), int(end, 16)

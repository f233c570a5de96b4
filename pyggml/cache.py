"""The folder of imported models: where it is, what is in it, and how to make room.

The folder is ``PYGGML_CACHE``, or where the platform keeps such things. It may grow to ``PYGGML_CACHE_GB`` gigabytes
(64); beyond that, importing another model removes those that were not used for the longest time.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from pyggml.errors import InvalidParameterError
from pyggml.files import resumable

_DEFAULT_LIMIT_GB = 64.0
_PART = ".part"  # how the name of a file ends while it is being written
_NAME = re.compile(r"(?P<model>.+)-(?P<outtype>[a-z0-9_]+)-[0-9a-f]{24}\.gguf(\.part)?")


@dataclass(frozen=True)
class CacheEntry:
    """A model in the cache, or the part of one that is there so far.

    Attributes:
        path: of the file.
        n_bytes: that it takes on the disk.
        used: when it was last loaded or written to, in seconds since the epoch.
        is_complete: it is a GGUF file. Otherwise its import is still running, or was stopped and can go on from there.
    """

    path: Path
    n_bytes: int
    used: float
    is_complete: bool = True

    @property
    def model(self) -> str:
        """Name of the directory that it was imported from."""
        match = _NAME.fullmatch(self.path.name)
        return match["model"] if match else self.path.stem

    @property
    def outtype(self) -> str:
        """The type that was asked for, as :func:`pyggml.convert` takes it; "" if the file's name does not say."""
        match = _NAME.fullmatch(self.path.name)
        return match["outtype"] if match else ""


def cache_dir() -> Path:
    """Where imported models are kept. The folder may not exist yet.

    Raises:
        InvalidParameterError: ``PYGGML_CACHE`` is not set, and there is no home directory.
    """
    given = os.environ.get("PYGGML_CACHE")
    if given:
        return Path(given)
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "pyggml"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyggml"
    except RuntimeError:
        raise InvalidParameterError(
            "this user has no home directory to keep imported models in: set PYGGML_CACHE to a folder for them"
        ) from None


def cache_limit() -> int:
    """How many bytes the cache may take, by ``PYGGML_CACHE_GB``.

    Raises:
        InvalidParameterError: that is not a number of gigabytes.
    """
    given = os.environ.get("PYGGML_CACHE_GB") or _DEFAULT_LIMIT_GB
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise InvalidParameterError(f"PYGGML_CACHE_GB is {given!r}; it must be a number of gigabytes")
    return round(limit * 1e9)


def cache_entries() -> list[CacheEntry]:
    """What is in the cache, the most recently used first."""
    found = []
    folder = cache_dir()
    for path in folder.iterdir() if folder.is_dir() else ():
        is_complete = path.suffix != _PART
        if path.suffix in (".gguf", _PART):
            with contextlib.suppress(FileNotFoundError):  # another process may have removed it
                status = path.stat()
                n_bytes = status.st_size if is_complete else status.st_blocks * 512
                found.append(CacheEntry(path, n_bytes, status.st_mtime, is_complete))
    return sorted(found, key=lambda entry: -entry.used)


def remove_entry(entry: CacheEntry) -> int:
    """Removes a file from the cache unless it is being written, and returns how many bytes that freed."""
    if not entry.is_complete:
        return resumable.remove(entry.path)
    entry.path.unlink(missing_ok=True)
    return entry.n_bytes


def clear_cache() -> int:
    """Empties the cache and returns how many bytes that freed. Loaded models stay usable, running imports go on."""
    return sum(map(remove_entry, cache_entries()))

"""The cache of imported models: its folder, its entries, and their removal.

The folder is ``PYGGML_CACHE``, or the platform's usual place for caches. It may grow to ``PYGGML_CACHE_GB`` gigabytes
(default 64); beyond that, importing a model removes the least recently used ones.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from pyggml._core.checks import shown
from pyggml.errors import InvalidParameterError
from pyggml.files import locks

_DEFAULT_LIMIT_GB = 64.0
_PART = ".part"  # suffix of an unfinished file
_NAME = re.compile(r"(?P<model>.+)-(?P<outtype>[a-z0-9_]+)-[0-9a-f]{24}\.gguf(\.part)?")


@dataclass(frozen=True)
class CacheEntry:
    """A model in the cache, complete or not.

    Attributes:
        path: the file.
        n_bytes: its size on disk.
        used: time of its last loading or writing, in seconds since the epoch.
        is_complete: True if it is a complete GGUF file. Otherwise its import is running, or was stopped and can be
            resumed.
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
        """The output type, as for :func:`pyggml.convert`; "" if the file's name has none."""
        match = _NAME.fullmatch(self.path.name)
        return match["outtype"] if match else ""


def display_name(path: Path) -> str:
    """Return a model file's name for messages; for a file of the cache, the imported directory's name.

    Args:
        path: the model's file.
    """
    match = _NAME.fullmatch(path.name)
    return match["model"] if match else path.name


shown_name = display_name  # its name in earlier versions


def cache_dir() -> Path:
    """Return the folder for imported models, which may not exist yet.

    Raises:
        InvalidParameterError: ``PYGGML_CACHE`` is not set, and the user has no home directory.
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
            "this user has no home directory for imported models: set PYGGML_CACHE to a folder for them"
        ) from None


def cache_limit() -> int:
    """Return the largest size of the cache in bytes, from ``PYGGML_CACHE_GB``.

    Raises:
        InvalidParameterError: the variable is not a number of gigabytes.
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
    """Return the entries of the cache, most recently used first."""
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
    """Remove an entry from the cache, unless it is being written, and return the number of bytes freed.

    Args:
        entry: one of :func:`cache_entries`.
    """
    if not isinstance(entry, CacheEntry):
        raise InvalidParameterError(f"a CacheEntry was expected, not {shown(entry)}")
    if not entry.is_complete:
        return locks.remove(entry.path)
    entry.path.unlink(missing_ok=True)
    return entry.n_bytes


def clear_cache() -> int:
    """Empty the cache and return the number of bytes freed. Loaded models and running imports are not affected."""
    return sum(map(remove_entry, cache_entries()))

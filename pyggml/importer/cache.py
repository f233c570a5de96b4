"""Imported models, kept for the next time.

A file is named by what it was made of: the place, size and time of each file of the directory, and what was asked
for. It appears when it is whole; whatever happens before that leaves nothing that has such a name. The directory is
``PYGGML_CACHE``, or where the platform keeps such things; when it holds more than ``PYGGML_CACHE_GB`` gigabytes (64),
the files that were not used for the longest time go.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyggml._version import __version__
from pyggml.errors import InvalidParameterError
from pyggml.gguf import GGUFReader
from pyggml.importer.convert import NEEDS_HF_TOKENIZER, Progress, convert
from pyggml.importer.encoding import require_outtype
from pyggml.importer.plan import place_name, read_config

_DEFAULT_LIMIT_GB = 64.0
_SUFFIXES = (".json", ".safetensors", ".model", ".jinja", ".txt")
# What a process that was killed left behind is older than this before anybody removes it.
_STALE_S = 24 * 3600


@dataclass(frozen=True)
class Imported:
    """A directory's model in the cache.

    Attributes:
        path: of the GGUF file.
        tokenizer: the directory, where only its own tokenizer cuts every text as the model was taught; else None.
    """

    path: Path
    tokenizer: Path | None


@dataclass(frozen=True)
class CacheEntry:
    """A model in the cache.

    Attributes:
        path: of the GGUF file.
        n_bytes: of it.
        used: seconds since the epoch when it was loaded last.
    """

    path: Path
    n_bytes: int
    used: float


def imported(directory: Path, outtype: str = "auto", progress: Progress | None = None) -> Imported:
    """The model of a Hugging Face directory as a GGUF file: the one in the cache, made first where it is not there.

    Args:
        directory: with ``config.json``, safetensors and a tokenizer.
        outtype: as for :func:`~pyggml.importer.convert.convert`.
        progress: called with 0..1 while the file is made; returning False stops.

    Raises:
        As :func:`~pyggml.importer.convert.convert`.
    """
    outtype = require_outtype(outtype)
    read_config(directory)  # says what is wrong with something that is no such directory
    path = cache_dir() / _file_name(directory, outtype)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path.parent)
        convert(directory, path, outtype, progress)
        _shrink(keep=path)
    os.utime(path)
    with GGUFReader(path) as reader:
        needs_own = NEEDS_HF_TOKENIZER in reader.metadata
    return Imported(path, directory if needs_own else None)


def cache_dir() -> Path:
    """Where imported models are kept; it need not exist."""
    given = os.environ.get("PYGGML_CACHE")
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pyggml"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyggml"


def cache_entries() -> list[CacheEntry]:
    """The models in the cache, the one used last first."""
    found = []
    for path in _files(cache_dir(), ".gguf"):
        with contextlib.suppress(FileNotFoundError):  # another process may have removed it
            status = path.stat()
            found.append(CacheEntry(path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: -entry.used)


def clear_cache() -> int:
    """Removes the models in the cache, and returns how many bytes they took. Loaded ones stay usable."""
    entries = cache_entries()
    for entry in entries:
        entry.path.unlink(missing_ok=True)
    return sum(entry.n_bytes for entry in entries)


def _file_name(directory: Path, outtype: str) -> str:
    place = directory.resolve()
    identity = [__version__, str(place), outtype]
    for file in sorted(place.iterdir()):
        if file.suffix in _SUFFIXES:
            with contextlib.suppress(OSError):  # what cannot be read is named by who reads it
                status = file.stat()
                identity.append(f"{file.name} {status.st_ino} {status.st_size} {status.st_mtime_ns}")
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", place_name(place))[:64]
    return f"{readable}-{outtype}-{digest}.gguf"


def _shrink(keep: Path) -> None:
    limit = _limit_bytes()
    total = 0
    for entry in cache_entries():
        total += entry.n_bytes
        if total > limit and entry.path != keep:
            entry.path.unlink(missing_ok=True)


def _limit_bytes() -> float:
    given = os.environ.get("PYGGML_CACHE_GB", "")
    try:
        limit = float(given or _DEFAULT_LIMIT_GB)
    except ValueError:
        raise InvalidParameterError(f"PYGGML_CACHE_GB is {given!r}; a number of gigabytes was expected") from None
    return limit * 1e9


def _remove_stale(directory: Path) -> None:
    for part in _files(directory, ".part"):
        with contextlib.suppress(FileNotFoundError):
            if part.stat().st_mtime < time.time() - _STALE_S:
                part.unlink()


def _files(directory: Path, suffix: str) -> Iterator[Path]:
    if directory.is_dir():
        yield from (path for path in directory.iterdir() if path.suffix == suffix)

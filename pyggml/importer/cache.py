"""The cache of imported models.

A cached file's name contains a hash of its inputs: the path, size and modification time of each file in the directory,
and the output type. While a file is being made, it is a ``.part`` file locked by its maker; the next import resumes an
interrupted one. :mod:`pyggml.cache` manages the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from pyggml._core.log import logger
from pyggml._version import __version__
from pyggml.cache import cache_dir, cache_entries, cache_limit, remove_entry
from pyggml.errors import DiskFullError, InferError, InvalidParameterError, ModelLoadError
from pyggml.files import locks, resumable_file
from pyggml.files.atomic_file import PartialFile
from pyggml.files.model_files import ModelFiles, is_companion_in_folder
from pyggml.importer.convert import (
    Accept,
    GGUFContents,
    StoppedError,
    check_vocabulary,
    read_contents,
    report_progress,
    write_model,
)
from pyggml.importer.encoding import require_outtype
from pyggml.importer.notes import conversion_warnings
from pyggml.importer.plan import directory_name
from pyggml.progress import Progress

_SUFFIXES = (".json", ".safetensors", ".model", ".jinja", ".txt")


def imported(
    files: ModelFiles,
    outtype: str = "auto",
    progress: Progress | None = None,
    tokenizer: object = None,
    accept: Accept | None = None,
) -> Path:
    """Return the cached GGUF file of a Hugging Face directory, converting the directory first if needed.

    If another thread or process is already converting it, this waits for the result. An interrupted import is resumed.

    Args:
        files: the directory.
        outtype: as for :func:`~pyggml.importer.convert.convert`.
        progress: called with 0..1 during the conversion, and with 0 while another thread or process converts; returning
            False stops.
        tokenizer: the tokenizer the caller will encode with; checked before the conversion.
        accept: called before the conversion, with a GGUF file that lacks only the weights; if it raises, the import
            stops.

    Raises:
        InferError: as :func:`~pyggml.importer.convert.convert`; also if ``tokenizer`` does not match this model.
    """
    outtype = require_outtype(outtype)
    directory = files.path
    path = cache_dir() / _file_name(directory, outtype)
    if not path.exists():
        limit = cache_limit()
        contents = read_contents(files, outtype)
        check_vocabulary(contents, path.name, tokenizer, accept)
        file = _acquire(path, lambda: report_progress(progress, 0.0, directory))
        if file is not None:
            _remove_leftovers()
            _write(file, contents, path, progress)
            _evict(limit, keep=path)
    with contextlib.suppress(OSError):  # the cache may be shared and read-only for this user
        os.utime(path)
    return path


def _acquire(path: Path, waiting: Callable[[], None]) -> PartialFile | None:
    """The file to write; None if another thread or process has written it meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return resumable_file.acquire(path, waiting)
    except InferError:  # some are OSErrors as well
        raise
    except OSError as error:
        raise InvalidParameterError(
            f"cannot write to {path.parent}, the cache of imported models: {error.strerror}. "
            "Set PYGGML_CACHE to use another folder"
        ) from None


def _write(file: PartialFile, contents: GGUFContents, path: Path, progress: Progress | None) -> None:
    for note in conversion_warnings(contents.plan, contents.types):
        logger.warning("%s: %s", contents.plan.config.path.parent, note)
    try:
        write_model(contents, path, progress, file=file)
    except (StoppedError, DiskFullError):
        raise
    except InferError:  # a retry would fail the same way, so there is nothing to resume
        file.discard()
        locks.remove(resumable_file.part_path(path))
        raise
    except OSError as error:
        raise ModelLoadError(f"{path} could not be written: {error}") from error
    finally:
        file.discard()


def _remove_leftovers() -> None:
    for entry in cache_entries():
        if not entry.is_complete and entry.used < time.time() - locks.STALE_S:
            remove_entry(entry)


def _file_name(directory: Path, outtype: str) -> str:
    place = directory.resolve()
    identity = [__version__, str(place), outtype]
    for file in sorted([*place.iterdir(), *place.glob("*/*")]):
        if file.suffix in _SUFFIXES and (file.parent == place or is_companion_in_folder(file.relative_to(place))):
            with contextlib.suppress(OSError):  # an unreadable file is reported by the code that needs it
                status = file.stat()
                identity.append(f"{file.relative_to(place)} {status.st_ino} {status.st_size} {status.st_mtime_ns}")
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", directory_name(place))[:64]
    return f"{readable}-{outtype}-{digest}.gguf"


def _evict(limit: int, keep: Path) -> None:
    total = 0
    for entry in cache_entries():
        total += entry.n_bytes
        if total > limit and entry.path != keep:
            remove_entry(entry)

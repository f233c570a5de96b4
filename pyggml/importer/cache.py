"""Imported models, kept for the next time.

A file is named after what it was made from: the place, size and time of each file of the directory, and what was
asked for. It appears when it is whole; until then it is a ``.part`` file, which whoever makes it has locked, and from
which the next one goes on. :mod:`pyggml.cache` says where the folder is and what is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyggml._version import __version__
from pyggml.cache import cache_dir, cache_entries, cache_limit, remove_entry
from pyggml.errors import DiskFullError, InferError, InvalidParameterError, ModelLoadError
from pyggml.files import resumable
from pyggml.files.model_files import ModelFiles
from pyggml.files.partial import PartialFile
from pyggml.gguf import GGUFReader
from pyggml.importer.convert import (
    NEEDS_HF_TOKENIZER,
    GGUFContents,
    StoppedError,
    read_contents,
    report_progress,
    write_model,
    write_vocabulary,
)
from pyggml.importer.encoding import require_outtype
from pyggml.importer.plan import place_name, read_config
from pyggml.model import Model, Progress
from pyggml.tokenizer.hugging_face import tokenizer_for

#: Looks at a GGUF file, and raises what is wrong with it.
Accept = Callable[[Path], None]

_SUFFIXES = (".json", ".safetensors", ".model", ".jinja", ".txt")


@dataclass(frozen=True)
class Imported:
    """A directory's model in the cache.

    Attributes:
        path: of the GGUF file.
        tokenizer: the directory, where only its own tokenizer cuts every text as the model was taught; else None.
    """

    path: Path
    tokenizer: Path | None


def imported(
    files: ModelFiles,
    outtype: str = "auto",
    progress: Progress | None = None,
    tokenizer: object = None,
    accept: Accept | None = None,
) -> Imported:
    """The model of a Hugging Face directory as a GGUF file: the one in the cache, made first where it is not there.

    What another thread or process is making is waited for. What was stopped, in whatever way, goes on from there.

    Args:
        files: the directory.
        outtype: as for :func:`~pyggml.importer.convert.convert`.
        progress: called with 0..1 while the file is made, and with 0 while it is waited for; returning False stops.
        tokenizer: what the caller is going to encode with; looked at before a file is made.
        accept: called before a file is made, with one that has all of it but the weights; what it raises is the end.

    Raises:
        TokenizerError, TokenizerNotFoundError: also where ``tokenizer`` is not this model's.
        As :func:`~pyggml.importer.convert.convert`.
    """
    outtype = require_outtype(outtype)
    read_config(files)  # a directory without one would end in an error about something else
    directory = files.path
    path = cache_dir() / _file_name(directory, outtype)
    if not path.exists():
        limit = cache_limit()
        contents = read_contents(files, outtype)
        _look_ahead(contents, path.name, directory, tokenizer, accept)
        file = _claim(path, lambda: report_progress(progress, 0.0, directory))
        if file is not None:
            _remove_leftovers()
            _make(file, contents, path, progress)
            _shrink(limit, keep=path)
    with contextlib.suppress(OSError):  # others may keep a cache that this user only reads
        os.utime(path)
    with GGUFReader(path) as reader:
        needs_own = NEEDS_HF_TOKENIZER in reader.metadata
    return Imported(path, directory if needs_own else None)


def _look_ahead(contents: GGUFContents, name: str, directory: Path, tokenizer: object, accept: Accept | None) -> None:
    """Raises now what would be raised when the model is there."""
    if tokenizer is None and contents.vocabulary.needs_hf_tokenizer is not None:
        tokenizer = directory
    if tokenizer is None and accept is None:
        return
    with tempfile.TemporaryDirectory(prefix="pyggml-") as folder:
        path = Path(folder) / name
        write_vocabulary(contents, path)
        if accept is not None:
            accept(path)
        if tokenizer is not None:
            with Model(path, device="cpu", vocab_only=True) as model:
                tokenizer_for(model, tokenizer)


def _claim(path: Path, waiting: Callable[[], None]) -> PartialFile | None:
    """The file to make; None when another has made it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return resumable.claim(path, waiting)
    except InferError:  # some are OSErrors as well
        raise
    except OSError as error:
        raise InvalidParameterError(
            f"imported models are kept in {path.parent}, where nothing can be written: {error.strerror}. "
            "PYGGML_CACHE names another place"
        ) from None


def _make(file: PartialFile, contents: GGUFContents, path: Path, progress: Progress | None) -> None:
    try:
        write_model(contents, path, progress, file=file)
    except (StoppedError, DiskFullError):
        raise
    except InferError:  # the same would come of it the next time
        file.discard()
        resumable.remove(resumable.part_path(path))
        raise
    except OSError as error:
        raise ModelLoadError(f"{path} could not be written: {error}") from error
    finally:
        file.discard()


def _remove_leftovers() -> None:
    for entry in cache_entries():
        if not entry.is_complete and entry.used < time.time() - resumable.STALE_S:
            remove_entry(entry)


def _file_name(directory: Path, outtype: str) -> str:
    place = directory.resolve()
    identity = [__version__, str(place), outtype]
    for file in sorted([*place.iterdir(), *place.glob("*/*.jinja")]):
        if file.suffix in _SUFFIXES:
            with contextlib.suppress(OSError):  # what cannot be read is named by who reads it
                status = file.stat()
                identity.append(f"{file.relative_to(place)} {status.st_ino} {status.st_size} {status.st_mtime_ns}")
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", place_name(place))[:64]
    return f"{readable}-{outtype}-{digest}.gguf"


def _shrink(limit: int, keep: Path) -> None:
    total = 0
    for entry in cache_entries():
        total += entry.n_bytes
        if total > limit and entry.path != keep:
            remove_entry(entry)

"""Selection of the files in a repository that make up a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyggml.errors import ModelLoadError, ModelNotFoundError
from pyggml.files.model_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    INDEX,
    SINGLE,
    companion_files,
    explain_missing_weights,
    is_adapter_among,
    main_weights,
    shards,
    split_set,
)
from pyggml.hub.reference import Reference
from pyggml.progress import Progress

# GGUF files that are not models: multimodal projectors and importance matrices.
_COMPANIONS = ("mmproj", "imatrix")
_MAX_LISTED = 20


class Files(Protocol):
    """The files of a repository at one revision, on the hub or in the cache.

    Attributes:
        names: paths of all files.
    """

    names: Collection[str]

    def fetch(self, names: Sequence[str], progress: Progress | None = None) -> Path:
        """Download missing files, and return their local directory; see :func:`pyggml.hub.fetch`."""


@dataclass(frozen=True)
class Choice:
    """The paths of the files to download, and the file to load; None: load their directory."""

    names: tuple[str, ...]
    main: str | None


def choose(reference: Reference, files: Files) -> Choice:
    """Choose the files of a reference.

    Raises:
        ModelNotFoundError: there is no such file, or one of a split set is missing.
        ModelLoadError: there is no model, or more than one.
    """
    if reference.file is not None:
        return _complete(reference, _named(reference, reference.file, files.names))
    main = main_weights(files.names)
    if main is not None:
        parts = _shards(reference, files) if main == INDEX else []
        return Choice((*companion_files(files.names), main, *parts), None)
    if is_adapter_among(files.names) and {ADAPTER_CONFIG, ADAPTER_WEIGHTS} <= set(files.names):
        return Choice((ADAPTER_CONFIG, ADAPTER_WEIGHTS), None)
    return _complete(reference, _only(reference, files.names))


def _shards(reference: Reference, files: Files) -> list[str]:
    names = sorted(shards(files.fetch([INDEX]) / INDEX))
    missing = [name for name in names if name not in files.names]
    if missing:
        raise ModelNotFoundError(f"{reference} has no {missing[0]}, which its {INDEX} lists")
    return names


def models_among(names: Collection[str]) -> list[list[str]]:
    """Return the files of each GGUF model, in order, even if incomplete, but without companion files."""
    return [files for files in _models(names).values() if not _is_companion(files[0])]


def _models(names: Collection[str]) -> dict[str, list[str]]:
    """Group GGUF files by model: name of the first file, even if missing -> the existing files, in order."""
    models: dict[str, list[str]] = {}
    for name in sorted(name for name in names if name.lower().endswith(".gguf")):
        first, *_ = split_set(name) or [name]
        models.setdefault(first, []).append(name)
    return models


def _only(reference: Reference, names: Collection[str]) -> list[str]:
    models = models_among(names)
    if not models:
        message = f"{reference} holds no model: it has no {SINGLE}, no {INDEX} and no GGUF file"
        raise ModelLoadError(explain_missing_weights(str(reference), names) or message)
    if len(models) > 1:
        raise ModelLoadError(_several(reference, models))
    return models[0]


def _named(reference: Reference, file: str, names: Collection[str]) -> list[str]:
    models = _models(names)
    for model in models.values():
        if file in model:
            return model
    if file in names:
        raise ModelLoadError(f"{reference} is not a GGUF file; {reference.repository} is the whole repository")
    found = [model for model in models.values() if not _is_companion(model[0]) and has_type(model[0], file)]
    if len(found) > 1:
        raise ModelLoadError(_several(reference, found))
    if not found:
        others = models_among(names)
        listed = f"it has {_listed(others)}" if others else "it has no GGUF files"
        raise ModelNotFoundError(f"{reference.repository} has no GGUF file or quantisation called {file!r}: {listed}")
    return found[0]


def has_type(name: str, quantisation: str) -> bool:
    """Check whether a file name has a quantisation, as in ``model-Q4_K_M.gguf`` or ``q4_k_m/model.gguf``."""
    return re.search(rf"(?:^|[-._/]){re.escape(quantisation)}(?=[-./]|$)", name, re.IGNORECASE) is not None


def _is_companion(name: str) -> bool:
    return any(word in name.rpartition("/")[2].lower() for word in _COMPANIONS)


def _complete(reference: Reference, model: list[str]) -> Choice:
    missing = [name for name in split_set(model[0]) or [] if name not in model]
    if missing:
        raise ModelNotFoundError(f"{reference.repository} has no {missing[0]}, a part of {model[0]}")
    return Choice(tuple(model), model[0])


def _several(reference: Reference, models: list[list[str]]) -> str:
    example = f"{reference.repository}:{models[0][0]}"
    return f"{reference} matches {len(models)} models; choose one, such as {example!r}: {_listed(models)}"


def _listed(models: list[list[str]]) -> str:
    rest = len(models) - _MAX_LISTED
    return ", ".join(model[0] for model in models[:_MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")

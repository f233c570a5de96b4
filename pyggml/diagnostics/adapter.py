"""Inspection of a LoRA adapter."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pyggml.errors import InvalidParameterError
from pyggml.files.model_files import ModelFiles
from pyggml.importer.adapter import AdapterReport, Base, BaseModel, check_adapter, gguf_adapter, is_adapter
from pyggml.source import locate


def inspect_adapter(source: str | os.PathLike[str], base: Base | None = None) -> AdapterReport:
    """Check a LoRA adapter, and report what it changes.

    All of the file is read: values that are infinite or NaN are refused, as is every tensor that would have no effect.

    Args:
        source: path of a GGUF adapter or of a PEFT directory, or a reference to one, ``hf:org/repo``.
        base: the model to check it against: a GGUF file, a Hugging Face directory or a reference, of which only headers
            are read. None: for a GGUF adapter, no model; for a directory, the one that it names.

    Raises:
        ModelNotFoundError: there is no such file, or no such model.
        ModelLoadError: it is broken, is no LoRA adapter, or has tensors that would have no effect.
        ArchitectureMismatchError: it was made for another model than ``base``.
        UnsupportedArchitectureError: it has settings that pyggml does not know, or changes a weight that the engine
            cannot add to.
        InvalidParameterError: an argument is invalid, or a directory's base model is needed.
        DownloadError, DiskFullError, MissingPackageError: as for :func:`~pyggml.load`, with a reference.
    """
    path = locate(source)
    model = None if base is None else BaseModel.of(base)
    with gguf_adapter(path, model) as file:
        return replace(check_adapter(file, model), path=path)


def require_model(files: ModelFiles) -> None:
    """Raise InvalidParameterError for the file of an adapter.

    Args:
        files: what a source names.
    """
    path: Path = files.path
    if files.format == "gguf" and is_adapter(path):
        raise InvalidParameterError(f"{path} is a LoRA adapter: pyggml.inspect_adapter(path) reports on it")

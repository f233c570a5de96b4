"""Loading of the adapter that a source names."""

from __future__ import annotations

import os
from pathlib import Path

from pyggml._native.adapter import Adapter
from pyggml._native.model import Model
from pyggml.errors import InvalidParameterError, ModelNotFoundError
from pyggml.generation.adapters import Adapters
from pyggml.hub import is_reference, parse_reference
from pyggml.importer.adapter import BaseModel, check_adapter, gguf_adapter
from pyggml.source import locate


def load_adapter(
    adapters: Adapters, model: Model, source: str | os.PathLike[str], name: str | None, scale: float
) -> Adapter:
    """Load an adapter of a model; args and errors as for :meth:`LLM.load_adapter <pyggml.LLM.load_adapter>`.

    Args:
        adapters: the collection that it is added to.
        model: the model.
        source: the adapter.
        name: its name; None: that of the file, of the directory or of the repository.
        scale: its default scale.
    """
    if source is None:
        raise InvalidParameterError("an adapter must be given as a path or a reference, not None")
    located = locate(source, noun="adapter")
    if not os.path.lexists(located):
        raise ModelNotFoundError(f"there is no adapter file at {source}")
    name = _default_name(source, located) if name is None else name
    if adapters.takes_sources:
        return adapters.load(located, name, scale)
    base = BaseModel.of_gguf(Path(model.path))
    with gguf_adapter(located, base) as file:
        check_adapter(file, base, data=False)  # the engine refuses values that are not finite
        adapter = adapters.load(file, name, scale)
    adapter.path = os.fspath(located)  # of a PEFT directory, the file is gone
    return adapter


def _default_name(source: str | os.PathLike[str], path: Path) -> str:
    """The name of an adapter's file or directory, or of its repository."""
    if path.is_dir() and is_reference(source):
        return parse_reference(os.fspath(source)).repo_id.rpartition("/")[2]
    return path.resolve().name if path.is_dir() else path.stem

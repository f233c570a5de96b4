"""Models of integrations: loaded once and shared by all objects that name the same file with the same options."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyggml import LLM, ClosedError, InvalidParameterError, load

#: A model as integrations take it: loaded, or as for :func:`pyggml.load`.
ModelLike = LLM | str | os.PathLike[str] | None

_lock = threading.Lock()
# Frameworks copy their objects freely; a model lives as long as any object that uses it.
_loaded: weakref.WeakValueDictionary[str, LLM] = weakref.WeakValueDictionary()


def open_llm(model: ModelLike, options: Mapping[str, Any] | None = None) -> LLM:
    """Return a model, loaded once per process for all callers that pass the same source and options.

    Safe to call from any thread. A model that the caller passes stays the caller's; one that is loaded here is freed
    when the last object that uses it is.

    Args:
        model: an open LLM; a file, directory or reference; None: the demonstration model.
        options: parameters of :func:`pyggml.load`.

    Raises:
        InvalidParameterError: there are options for a model that is already loaded.
        InferError: as :func:`pyggml.load`.
    """
    options = dict(options or {})
    if isinstance(model, LLM):
        if options:
            raise InvalidParameterError(f"model is loaded already: pass {', '.join(options)} to pyggml.load instead")
        return model
    source = None if model is None else os.fspath(model)
    key = repr((source, sorted(options.items())))
    with _lock:
        found = _loaded.get(key)
        if found is None or not _is_open(found):
            found = _loaded[key] = load(source, **options)
        return found


class SharedOnCopy:
    """A base of objects that frameworks copy deeply together with their own: a copy is the object itself."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def _is_open(llm: LLM) -> bool:
    try:
        return bool(llm.model.handle)
    except ClosedError:
        return False


def model_name(model: ModelLike) -> str:
    """Return a short name of a model for traces and results, as the user would recognise it."""
    source = model.source if isinstance(model, LLM) else model
    name = "pyggml-demo" if source is None else Path(source).name
    return name.removesuffix(".gguf") or "pyggml"

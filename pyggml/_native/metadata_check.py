"""Check of a model's metadata by the engine, without loading the model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml._native.model import Model
from pyggml.gguf import GGUFReader
from pyggml.gguf.values import write_texts, write_value

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

_MERGES = b"tokenizer.ggml.merges"

ROPE_TYPES: dict[int, str] = {
    getattr(lib, f"LLAMA_ROPE_TYPE_{name.upper()}"): name
    for name in ("none", "norm", "neox", "mrope", "imrope", "vision")
}
ROPE_SCALINGS: dict[int, str] = {
    getattr(lib, f"LLAMA_ROPE_SCALING_TYPE_{name.upper()}"): name for name in ("linear", "yarn", "longrope")
}


@dataclass(frozen=True)
class TensorMismatch:
    """A tensor that is missing, or whose shape contradicts the model's sizes.

    Attributes:
        name: the tensor's name.
        expected: the shape it should have, columns last.
        found: the shape it has; None if it is missing.
    """

    name: str
    expected: tuple[int, ...]
    found: tuple[int, ...] | None


@dataclass(frozen=True)
class MetadataCheck:
    """The engine's report.

    Attributes:
        model: the model with its vocabulary but without weights, which the caller closes; None if it cannot be read.
        failed: the step that failed: "architecture", "sizes", "vocabulary" or "tensors"; "" for none.
        message: the engine's error message.
        sizes: the model's sizes as the engine reads them, single or per layer; empty if it failed before.
        findings: missing tensors, and tensors of a wrong shape.
        unknown: names of tensors that such models do not have.
    """

    model: Model | None
    failed: str
    message: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[TensorMismatch, ...] = ()
    unknown: tuple[str, ...] = ()


def check_metadata(ggufs: Sequence[CData], path: Path) -> MetadataCheck:
    """Let the engine check the metadata of a model.

    ``ggufs`` are its files in order, each a ``pyg_gguf *``; ``path`` is the first file, or any existing file.
    """
    text = ffi.new("char **")
    try:
        handle = c_calls.create(
            "pyg_model", lib.pyg_model_free, lib.pyg_model_check_metadata, ggufs, len(ggufs), os.fsencode(path), text
        )
        report = json.loads(c_calls.text_of(text[0]))
    finally:
        lib.pyg_string_free(text[0])
    return MetadataCheck(
        model=None if handle == ffi.NULL else Model.from_handle(path, handle),
        failed=report["failed"],
        message=report["message"].strip(),
        sizes=report["sizes"],
        findings=tuple(map(_mismatch, report["findings"])),
        unknown=tuple(report["unknown"]),
    )


def gguf_of(metadata: Mapping[str, object]) -> CData:
    """Create a ``pyg_gguf *``, *owned*, with this metadata and no tensors."""
    handle = c_calls.create("pyg_gguf", lib.pyg_gguf_free, lib.pyg_gguf_new)
    for key, value in metadata.items():
        write_value(handle, key, value, None)
    return handle


def shorten_merges(reader: GGUFReader) -> None:
    """Remove all merges but one: they take most of the time of reading a vocabulary, and only tokenising needs them.

    The reader's metadata then differs from the file.
    """
    raw = lib.pyg_gguf_get(reader.handle)
    key = lib.gguf_find_key(raw, _MERGES)
    if key >= 0 and lib.gguf_get_kv_type(raw, key) == lib.GGUF_TYPE_ARRAY and lib.gguf_get_arr_n(raw, key) > 1:
        write_texts(reader.handle, _MERGES, [b"a b"])


def _mismatch(finding: Mapping[str, Any]) -> TensorMismatch:
    return TensorMismatch(finding["name"], _shape(finding["expected"]), _shape(finding["found"]) or None)


def _shape(ne: Sequence[int]) -> tuple[int, ...]:
    sizes = list(ne)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return tuple(reversed(sizes))

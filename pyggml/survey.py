"""What the engine makes of a model's metadata, asked without loading it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml._gguf_values import write_value
from pyggml.gguf import GGUFReader
from pyggml.model import Model

if TYPE_CHECKING:
    from pyggml._ffi import CData

_MERGES = b"tokenizer.ggml.merges"

ROPE_TYPES: dict[int, str] = {
    lib.LLAMA_ROPE_TYPE_NONE: "none",
    lib.LLAMA_ROPE_TYPE_NORM: "norm",
    lib.LLAMA_ROPE_TYPE_NEOX: "neox",
    lib.LLAMA_ROPE_TYPE_MROPE: "mrope",
    lib.LLAMA_ROPE_TYPE_IMROPE: "imrope",
    lib.LLAMA_ROPE_TYPE_VISION: "vision",
}
ROPE_SCALINGS: dict[int, str] = {
    lib.LLAMA_ROPE_SCALING_TYPE_LINEAR: "linear",
    lib.LLAMA_ROPE_SCALING_TYPE_YARN: "yarn",
    lib.LLAMA_ROPE_SCALING_TYPE_LONGROPE: "longrope",
}


@dataclass(frozen=True)
class Finding:
    """A tensor that is missing or has another shape than the sizes of the model make it.

    Attributes:
        name: of the tensor.
        expected: its shape, rows last.
        found: the one it has; None: it is missing.
    """

    name: str
    expected: tuple[int, ...]
    found: tuple[int, ...] | None


@dataclass(frozen=True)
class Survey:
    """The engine's account.

    Attributes:
        model: with its vocabulary and without weights; None when that cannot be read. Whoever asked closes it.
        failed: the step that it does not get over: "architecture", "sizes", "vocabulary", "tensors"; "" for none.
        words: what it says there.
        sizes: of the model as it reads them: numbers, or one for each layer; empty when it did not come that far.
        findings: what is wrong with tensors.
        unknown: tensors that such models do not have.
    """

    model: Model | None
    failed: str
    words: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()


def survey(ggufs: Sequence[CData], path: Path) -> Survey:
    """Asks the engine.

    Args:
        ggufs: each a ``pyg_gguf *``: the files of a model in their order.
        path: of the first, or of any file that is there.
    """
    about = ffi.new("char **")
    try:
        handle = errors.create(
            "pyg_model", lib.pyg_model_free, lib.pyg_model_survey, ggufs, len(ggufs), os.fsencode(path), about
        )
        told = json.loads(ffi.string(about[0]).decode("utf-8", "replace"))
    finally:
        lib.pyg_string_free(about[0])
    return Survey(
        model=None if handle == ffi.NULL else Model.of_handle(path, handle),
        failed=told["failed"],
        words=told["words"].strip(),
        sizes=told["sizes"],
        findings=tuple(map(_finding, told["findings"])),
        unknown=tuple(told["unknown"]),
    )


def gguf_of(metadata: Mapping[str, object]) -> CData:
    """A ``pyg_gguf *``, *owned*: what a GGUF file with this metadata and no tensors would say."""
    handle = errors.create("pyg_gguf", lib.pyg_gguf_free, lib.pyg_gguf_new)
    for key, value in metadata.items():
        write_value(lib.pyg_gguf_get(handle), key, value, None)
    return handle


def shorten_merges(reader: GGUFReader) -> None:
    """Leaves one of the merges, which only cutting text needs, and which are most of the work of reading a vocabulary.

    From here on the reader's metadata is not what is in the file.
    """
    raw = lib.pyg_gguf_get(reader.handle)
    key = lib.gguf_find_key(raw, _MERGES)
    if key >= 0 and lib.gguf_get_kv_type(raw, key) == lib.GGUF_TYPE_ARRAY and lib.gguf_get_arr_n(raw, key) > 1:
        merge = ffi.new("char[]", b"a b")
        lib.gguf_set_arr_str(raw, _MERGES, [merge], 1)


def _finding(told: Mapping[str, Any]) -> Finding:
    return Finding(told["name"], _shape(told["expected"]), _shape(told["found"]) or None)


def _shape(ne: Sequence[int]) -> tuple[int, ...]:
    sizes = list(ne)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return tuple(reversed(sizes))

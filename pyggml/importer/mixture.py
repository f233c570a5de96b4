"""Which element types the engine's quantiser gives to the tensors of a model, asked through its own rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml.importer.layout import Layout, Sizes
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from pyggml._ffi import CData


@dataclass(frozen=True)
class Mixable:
    """A tensor as the rules see it.

    Attributes:
        name: in the GGUF file.
        shape: there, rows last.
        type: what it is now.
        wanted: what it is to be in place of the mixture's choice.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    wanted: GGMLType | None = None


@dataclass(frozen=True)
class Choice:
    """What becomes of a tensor.

    Attributes:
        type: its element type.
        is_mixed: False for vectors and the like, which keep theirs.
        needs_imatrix: without importances nothing of use would be left of it.
    """

    type: GGMLType
    is_mixed: bool
    needs_imatrix: bool


def of_layout(
    file_type: int, layout: Layout, sizes: Sizes, tensors: Sequence[Mixable], has_imatrix: bool
) -> list[Choice]:
    """The choices for a model that is not in a file yet; ``tensors`` are all it has, in the file's order.

    Raises:
        InvalidParameterError: a file type that the engine's quantiser does not make.
    """
    model = ffi.new("pyg_mixture_model *")
    architecture = ffi.new("char[]", layout.architecture.encode())
    model.architecture = architecture
    model.n_embd, model.n_ff, model.n_layer = sizes.n_embd, sizes.n_ff, sizes.n_layer
    model.n_head, model.n_head_kv, model.n_embd_head = sizes.n_head, sizes.n_head_kv, sizes.head_dim
    model.n_expert = sizes.n_expert
    return _ask(lib.pyg_mixture_types, model, file_type, tensors, has_imatrix)


def of_file(path: Path, file_type: int, tensors: Sequence[Mixable], has_imatrix: bool) -> list[Choice]:
    """The choices for the model in a GGUF file, of a split set the first; ``tensors`` are all it has.

    Raises:
        ModelLoadError: the engine cannot read it.
        UnsupportedArchitectureError: it does not know the architecture.
        InvalidParameterError: a file type that the engine's quantiser does not make.
    """
    return _ask(lib.pyg_mixture_types_of_file, os.fsencode(path), file_type, tensors, has_imatrix)


def _ask(
    function: Callable[..., int], model: CData | bytes, file_type: int, tensors: Sequence[Mixable], has_imatrix: bool
) -> list[Choice]:
    rows: Any = ffi.new("pyg_mixture_tensor[]", len(tensors))
    names = [ffi.new("char[]", tensor.name.encode("utf-8", "surrogateescape")) for tensor in tensors]  # borrowed
    for row, name, tensor in zip(rows, names, tensors, strict=True):
        row.name, row.type = name, tensor.type
        row.wanted = -1 if tensor.wanted is None else tensor.wanted
        row.ne = [*reversed(tensor.shape), *[1] * (4 - len(tensor.shape))]
    errors.call(function, model, file_type, has_imatrix, rows, len(tensors))
    return [Choice(GGMLType(row.type), row.is_mixed, row.needs_imatrix) for row in rows]

"""Which element types the engine's quantiser gives to the tensors of a model, asked through its own rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from pyggml._ffi import CData


#: Mixtures by name, and their numbers in ``general.file_type``.
FILE_TYPES: dict[str, int] = {
    name.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_").removeprefix("ALL_").lower(): getattr(lib, name)
    for name in dir(lib)
    if name.startswith(("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_"))
}


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


@dataclass(frozen=True)
class Shape:
    """What the rules look at beside the tensors.

    Attributes:
        n_layer: blocks.
        n_embd: width of the residual stream.
        n_head: query heads.
        n_head_kv: key and value heads.
        head_dim: width of a head.
        n_ff: width inside a feed-forward block, or of one expert.
        n_expert: in a block; 0 for a dense model.
    """

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_expert: int


def file_type_name(number: int) -> str | None:
    """The name of a mixture by its number in ``general.file_type``; None: the engine does not know it."""
    name = str(ffi.string(lib.llama_ftype_name(number & ~lib.LLAMA_FTYPE_GUESSED)).decode())
    return None if "unknown" in name else name


def of_model(
    file_type: int, architecture: str, shape: Shape, tensors: Sequence[Mixable], has_imatrix: bool
) -> list[Choice]:
    """The choices for a model that is not in a file yet; ``tensors`` are all it has, in the file's order.

    Raises:
        InvalidParameterError: a file type that the engine's quantiser does not make.
    """
    model = ffi.new("pyg_mixture_model *")
    name = ffi.new("char[]", architecture.encode())
    model.architecture = name
    model.n_embd, model.n_ff, model.n_layer = shape.n_embd, shape.n_ff, shape.n_layer
    model.n_head, model.n_head_kv, model.n_embd_head = shape.n_head, shape.n_head_kv, shape.head_dim
    model.n_expert = shape.n_expert
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

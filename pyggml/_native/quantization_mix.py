"""The element types that the engine's quantiser chooses for a model's tensors: a quantisation mix."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml.quant import GGMLType

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


#: Quantisation mixes by name, and their numbers in ``general.file_type``.
FILE_TYPES: dict[str, int] = {
    name.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_").removeprefix("ALL_").lower(): getattr(lib, name)
    for name in dir(lib)
    if name.startswith(("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_"))
}


@dataclass(frozen=True)
class TensorToQuantize:
    """A tensor, as input of the quantiser's rules.

    Attributes:
        name: its name in the GGUF file.
        shape: its shape, columns last.
        type: its current type.
        wanted: a type that replaces the choice of the mix.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    wanted: GGMLType | None = None


@dataclass(frozen=True)
class Choice:
    """The quantiser's choice for a tensor.

    Attributes:
        type: its new element type.
        is_mixed: False for vectors and the like, which keep their type.
        needs_imatrix: True if the type is useless without an importance matrix.
        is_fallback: True if the tensor's rows are not whole blocks of the type that was meant, so it gets another one.
    """

    type: GGMLType
    is_mixed: bool
    needs_imatrix: bool
    is_fallback: bool


@dataclass(frozen=True)
class Shape:
    """The sizes that the rules depend on.

    Attributes:
        n_layer: number of blocks.
        n_embd: width of the residual stream.
        n_head: number of query heads.
        n_head_kv: number of key and value heads.
        head_dim: width of a head.
        n_ff: inner width of a feed-forward layer, or of one expert.
        n_expert: experts per block; 0 for a dense model.
    """

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_expert: int


def file_type_name(number: int) -> str | None:
    """Return the name of a quantisation mix by its number in ``general.file_type``; None if it is unknown."""
    name = str(ffi.string(lib.llama_ftype_name(number & ~lib.LLAMA_FTYPE_GUESSED)).decode())
    return None if "unknown" in name else name


def types_for_model(
    file_type: int, architecture: str, shape: Shape, tensors: Sequence[TensorToQuantize], has_imatrix: bool
) -> list[Choice]:
    """Return the choices for a model without a file yet; ``tensors`` are all its tensors, in the file's order.

    Raises:
        InvalidParameterError: the engine's quantiser does not support the file type.
    """
    model = ffi.new("pyg_quantization_mix_model *")
    name = ffi.new("char[]", architecture.encode())
    model.architecture = name
    model.n_embd, model.n_ff, model.n_layer = shape.n_embd, shape.n_ff, shape.n_layer
    model.n_head, model.n_head_kv, model.n_embd_head = shape.n_head, shape.n_head_kv, shape.head_dim
    model.n_expert = shape.n_expert
    return _types(lib.pyg_quantization_mix_types, model, file_type, tensors, has_imatrix)


def types_for_file(path: Path, file_type: int, tensors: Sequence[TensorToQuantize], has_imatrix: bool) -> list[Choice]:
    """Return the choices for a GGUF file, or the first of a split set; ``tensors`` are all its tensors.

    Raises:
        ModelLoadError: the engine cannot read the file.
        UnsupportedArchitectureError: the engine does not support the architecture.
        InvalidParameterError: the engine's quantiser does not support the file type.
    """
    return _types(lib.pyg_quantization_mix_types_of_file, os.fsencode(path), file_type, tensors, has_imatrix)


def _types(
    function: Callable[..., int],
    model: CData | bytes,
    file_type: int,
    tensors: Sequence[TensorToQuantize],
    has_imatrix: bool,
) -> list[Choice]:
    rows: Any = ffi.new("pyg_quantization_mix_tensor[]", len(tensors))
    names = [ffi.new("char[]", tensor.name.encode("utf-8", "surrogateescape")) for tensor in tensors]  # borrowed
    for row, name, tensor in zip(rows, names, tensors, strict=True):
        row.name, row.type = name, tensor.type
        row.wanted = -1 if tensor.wanted is None else tensor.wanted
        row.ne = [*reversed(tensor.shape), *[1] * (4 - len(tensor.shape))]
    c_calls.call(function, model, file_type, has_imatrix, rows, len(tensors))
    return [Choice(GGMLType(row.type), row.is_mixed, row.needs_imatrix, row.is_fallback) for row in rows]

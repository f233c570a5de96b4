"""Which element type each tensor gets, and its encoding on several threads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy.typing as npt

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml.errors import InvalidParameterError, ModelLoadError
from pyggml.importer.layout import Layout, Sizes
from pyggml.importer.plan import PlannedTensor
from pyggml.importer.weights import encode
from pyggml.quant import GGMLType

_PLAIN = {"f32": GGMLType.F32, "f16": GGMLType.F16, "bf16": GGMLType.BF16}
_FILE_TYPES: dict[str, int] = {
    name.removeprefix("LLAMA_FTYPE_").removeprefix("MOSTLY_").removeprefix("ALL_").lower(): getattr(lib, name)
    for name in dir(lib)
    if name.startswith(("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_"))
}

#: What may be asked for: "auto" keeps what the checkpoint has, the others are the engine's names.
OUTTYPES: tuple[str, ...] = ("auto", *sorted(_FILE_TYPES))

# Values that one thread encodes at a time: enough to outweigh the switch, few enough that their float32 form stays in
# the cache and the memory of all threads is small.
_CHUNK = 2**20


def require_outtype(outtype: object) -> str:
    """The spelling that the engine uses.

    Raises:
        InvalidParameterError: there is no such type.
    """
    name = outtype.lower() if isinstance(outtype, str) else ""
    if name not in OUTTYPES:
        raise InvalidParameterError(f"outtype is {outtype!r}; it may be {', '.join(OUTTYPES)}")
    return name


def choose_types(
    outtype: str, layout: Layout, sizes: Sizes, tensors: Sequence[PlannedTensor]
) -> tuple[list[GGMLType], int]:
    """The element type of each tensor, and the number that describes them as a whole (``general.file_type``).

    Raises:
        InvalidParameterError: the type needs importances, which are not to be had here.
    """
    if outtype == "auto":
        types = [_kept(tensor, tensor.weight.type) for tensor in tensors]
        return types, _file_type(types, tensors)
    if outtype in _PLAIN:
        return [_kept(tensor, _PLAIN[outtype]) for tensor in tensors], _FILE_TYPES[outtype]
    file_type = _FILE_TYPES[outtype]
    types = _mixture(file_type, layout, sizes, tensors)
    for tensor, type in zip(tensors, types, strict=True):
        if type.needs_imatrix:
            raise InvalidParameterError(
                f"outtype {outtype} makes tensor {tensor.name!r} a {type.name}, which needs an importance matrix; "
                "convert to bf16 and quantise that file with one"
            )
    return types, file_type


def encoded_parts(tensor: PlannedTensor, type: GGMLType, executor: Executor) -> Iterator[npt.NDArray[Any]]:
    """The data of a tensor as a type stores it, some rows at a time and in their order.

    Raises:
        ModelLoadError: a value that the type cannot hold; names the tensor.
    """
    weight = tensor.weight
    step = max(_CHUNK // weight.n_cols, 1)

    def encoded(start: int) -> npt.NDArray[Any]:
        rows = slice(start, min(start + step, weight.n_rows))
        return weight.stored(rows) if type == weight.type else encode(weight.floats(rows), type)

    try:
        yield from executor.map(encoded, range(0, weight.n_rows, step))
    except InvalidParameterError as error:
        raise ModelLoadError(f"tensor {tensor.name!r} cannot be stored as {type.name}: {error}") from None


def n_threads(given: int | None) -> int:
    """As many as asked for, else one for each core that this process may use."""
    if given is not None:
        return given
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _kept(tensor: PlannedTensor, type: GGMLType) -> GGMLType:
    """Vectors and the like stay exact: the engine multiplies by them element by element, in float32."""
    return GGMLType.F32 if tensor.is_float else type


def _mixture(file_type: int, layout: Layout, sizes: Sizes, tensors: Sequence[PlannedTensor]) -> list[GGMLType]:
    model = ffi.new("pyg_mixture_model *")
    architecture = ffi.new("char[]", layout.architecture.encode())
    model.architecture = architecture
    model.n_embd, model.n_ff, model.n_layer = sizes.n_embd, sizes.n_ff, sizes.n_layer
    model.n_head, model.n_head_kv, model.n_embd_head = sizes.n_head, sizes.n_head_kv, sizes.head_dim
    model.n_expert = sizes.n_expert
    rows = ffi.new("pyg_mixture_tensor[]", len(tensors))
    names = [ffi.new("char[]", tensor.name.encode()) for tensor in tensors]  # borrowed by the rows
    for row, name, tensor in zip(rows, names, tensors, strict=True):
        row.name, row.type = name, _kept(tensor, _unquantized(tensor.weight.type))
        row.ne = [*reversed(tensor.shape), *[1] * (4 - len(tensor.shape))]
    errors.call(lib.pyg_mixture_types, model, file_type, rows, len(tensors))
    return [_kept(tensor, GGMLType(row.type)) for row, tensor in zip(rows, tensors, strict=True)]


def _unquantized(type: GGMLType) -> GGMLType:
    return GGMLType.F16 if type.is_quantized else type


def _file_type(types: Iterable[GGMLType], tensors: Iterable[PlannedTensor]) -> int:
    """The type that most of the weights have."""
    sizes: Counter[GGMLType] = Counter()
    for type, tensor in zip(types, tensors, strict=True):
        if not tensor.is_float:
            sizes[type] += tensor.weight.n_rows * tensor.weight.n_cols
    return _FILE_TYPES[sizes.most_common(1)[0][0].name.lower()]

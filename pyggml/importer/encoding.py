"""Tensor encoding: each tensor's element type, and its data encoded on several threads."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy.typing as npt

from pyggml._core.checks import shown
from pyggml._native import quantization_mix
from pyggml._native.imatrix import ImportanceMatrix
from pyggml._native.quantization_mix import FILE_TYPES, Choice, TensorToQuantize
from pyggml.errors import InvalidParameterError, ModelLoadError
from pyggml.families import Layout, Sizes
from pyggml.files.weights import Floats, Weight, encode
from pyggml.importer.plan import PlannedTensor
from pyggml.importer.type_overrides import TypeOverrides
from pyggml.options.file_types import OUTTYPES, file_type
from pyggml.quant import GGMLType

_PLAIN = {"f32": GGMLType.F32, "f16": GGMLType.F16, "bf16": GGMLType.BF16}

# Element types whose file type has another name.
_FILE_TYPE_OF = {GGMLType.MXFP4: "mxfp4_moe"}

# Values that one thread encodes at a time: enough to outweigh the cost of a task, few enough that they stay in the CPU
# cache as float32 and that all threads together need little memory.
_CHUNK = 2**20


def require_outtype(outtype: object) -> str:
    """Return the output type in the engine's spelling."""
    return file_type("outtype", outtype, OUTTYPES)


def choose_types(
    outtype: str,
    layout: Layout,
    sizes: Sizes,
    tensors: Sequence[PlannedTensor],
    imatrix: ImportanceMatrix | None = None,
    overrides: TypeOverrides | None = None,
) -> tuple[list[GGMLType], int]:
    """Return each tensor's element type, and the ``general.file_type`` of the file.

    Raises:
        InvalidParameterError: a type needs importances that were not given, does not divide a tensor's rows into
            blocks, or an expression of ``overrides`` matches no tensor.
    """
    wanted = [None if overrides is None else overrides.type_of(tensor) for tensor in tensors]
    if outtype == "auto" or outtype in _PLAIN:
        plain = (_PLAIN.get(outtype, tensor.weight.type) for tensor in tensors)
        choices = [
            Choice(type if want is None else _divisible(tensor, want), not tensor.is_float, False, is_fallback=False)
            for tensor, type, want in zip(tensors, plain, wanted, strict=True)
        ]
    else:
        choices = quantization_mix.types_for_model(
            FILE_TYPES[outtype], layout.architecture, sizes, _unquantized(tensors, wanted), imatrix is not None
        )
    if overrides is not None:
        overrides.require_matches(tensors, choices)
    require_importances(outtype, choices, tensors, imatrix)
    types = [_stored_type(tensor, choice.type) for tensor, choice in zip(tensors, choices, strict=True)]
    return types, _file_type(types, tensors) if outtype == "auto" else FILE_TYPES[outtype]


def _divisible(tensor: PlannedTensor, type: GGMLType) -> GGMLType:
    """The type, if its blocks fit into the tensor's rows."""
    if tensor.shape[-1] % type.block_size and not tensor.is_float:
        raise InvalidParameterError(
            f"tensor {shown(tensor.name)} has rows of {tensor.shape[-1]} values, which are no whole number of "
            f"{type.name} blocks of {type.block_size}"
        )
    return type


def require_importances(
    outtype: str, choices: Sequence[Choice], tensors: Sequence[PlannedTensor], imatrix: ImportanceMatrix | None
) -> None:
    """Raise InvalidParameterError if a tensor's new type needs importances that were not given."""
    for tensor, choice in zip(tensors, choices, strict=True):
        if choice.needs_imatrix and importances(tensor, imatrix) is None:
            raise InvalidParameterError(
                f"{outtype} gives tensor {shown(tensor.name)} the type {choice.type.name}, which needs importances: "
                + ("give an importance matrix" if imatrix is None else "the importance matrix has none for this tensor")
            )


def importances(tensor: PlannedTensor, imatrix: ImportanceMatrix | None) -> Floats | None:
    """Return the importances of a tensor's columns, (n_matrices, n_columns), or None if they are unknown."""
    weights = None if imatrix is None else imatrix.weights(tensor.name)
    shape = (math.prod(tensor.shape[:-2]), tensor.shape[-1])
    if weights is None or weights.size == math.prod(shape):
        return None if weights is None else weights.reshape(shape)
    # Embedding rows are looked up, not multiplied, so importances of another size were measured at a tied output layer.
    if tensor.name == "token_embd.weight":
        return None
    raise InvalidParameterError(
        f"the importance matrix belongs to another model: it has {weights.size} importances for tensor "
        f"{shown(tensor.name)}, whose shape {tensor.shape} needs {math.prod(shape)}"
    )


def encoded_parts(
    tensor: PlannedTensor, type: GGMLType, executor: Executor, imatrix: ImportanceMatrix | None = None
) -> Iterator[npt.NDArray[Any]]:
    """Yield a tensor's data encoded as a type, a few rows at a time, in order."""
    weight, exact = tensor.weight, tensor.weight.in_type(type)
    column_importances = importances(tensor, imatrix) if type.is_quantized and exact is None else None

    def encoded(block: tuple[int, slice]) -> npt.NDArray[Any]:
        matrix, rows = block
        if exact is not None:
            return exact.stored(rows)
        return encode(weight.floats(rows), type, None if column_importances is None else column_importances[matrix])

    try:
        n_matrices = 1 if column_importances is None else len(column_importances)
        yield from executor.map(encoded, _row_chunks(weight, n_matrices))
    except InvalidParameterError as error:
        raise ModelLoadError(f"tensor {shown(tensor.name)} cannot be stored as {type.name}: {error}") from None


def _row_chunks(weight: Weight, n_matrices: int) -> Iterator[tuple[int, slice]]:
    """Yield blocks of rows to encode, each with the index of the stacked matrix that it belongs to."""
    step, n_rows = max(_CHUNK // weight.n_cols, 1), weight.n_rows // n_matrices
    for matrix in range(n_matrices):
        for start in range(0, n_rows, step):
            yield matrix, slice(matrix * n_rows + start, matrix * n_rows + min(start + step, n_rows))


def n_threads(given: int | None) -> int:
    """Return the given number of threads, or one per core that this process may use."""
    if given is not None:
        return given
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _stored_type(tensor: PlannedTensor, type: GGMLType) -> GGMLType:
    """F32 for tensors that the engine multiplies element by element in float32, such as vectors; else the type."""
    return GGMLType.F32 if tensor.is_float else type


def _unquantized(tensors: Sequence[PlannedTensor], wanted: Sequence[GGMLType | None]) -> list[TensorToQuantize]:
    """The tensors with unquantised types, as the quantiser's rules expect, and the types that replace the rules'."""
    types = (GGMLType.F16 if t.weight.type.is_quantized else t.weight.type for t in tensors)
    return [
        TensorToQuantize(tensor.name, tensor.shape, _stored_type(tensor, type), want)
        for tensor, type, want in zip(tensors, types, wanted, strict=True)
    ]


def _file_type(types: Iterable[GGMLType], tensors: Iterable[PlannedTensor]) -> int:
    """The type that most of the weights have."""
    sizes: Counter[GGMLType] = Counter()
    for type, tensor in zip(types, tensors, strict=True):
        if not tensor.is_float:
            sizes[type] += tensor.weight.n_rows * tensor.weight.n_cols
    most = sizes.most_common(1)[0][0]
    return FILE_TYPES[_FILE_TYPE_OF.get(most, most.name.lower())]

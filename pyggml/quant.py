"""Conversion of numpy arrays to and from ggml's types: floats, block-quantised weights, integers.

A quantised type stores a row as blocks: ``block_size`` values in ``block_bytes`` bytes, scales included. Quantised data
is a uint8 array whose last axis holds the bytes of a row, ``(..., n_per_row // block_size * block_bytes)``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.c_values import any_array
from pyggml._core.checks import integer, items, shown
from pyggml._core.ffi import ffi, lib

#: Version of the quantised types' layouts, as stored in files.
QUANTIZATION_VERSION: int = lib.GGML_QNT_VERSION


class GGMLType(IntEnum):
    """The element types of ggml tensors; the numbers are ``enum ggml_type``."""

    F32 = lib.GGML_TYPE_F32
    F16 = lib.GGML_TYPE_F16
    Q4_0 = lib.GGML_TYPE_Q4_0
    Q4_1 = lib.GGML_TYPE_Q4_1
    Q5_0 = lib.GGML_TYPE_Q5_0
    Q5_1 = lib.GGML_TYPE_Q5_1
    Q8_0 = lib.GGML_TYPE_Q8_0
    Q8_1 = lib.GGML_TYPE_Q8_1
    Q2_K = lib.GGML_TYPE_Q2_K
    Q3_K = lib.GGML_TYPE_Q3_K
    Q4_K = lib.GGML_TYPE_Q4_K
    Q5_K = lib.GGML_TYPE_Q5_K
    Q6_K = lib.GGML_TYPE_Q6_K
    Q8_K = lib.GGML_TYPE_Q8_K
    IQ2_XXS = lib.GGML_TYPE_IQ2_XXS
    IQ2_XS = lib.GGML_TYPE_IQ2_XS
    IQ3_XXS = lib.GGML_TYPE_IQ3_XXS
    IQ1_S = lib.GGML_TYPE_IQ1_S
    IQ4_NL = lib.GGML_TYPE_IQ4_NL
    IQ3_S = lib.GGML_TYPE_IQ3_S
    IQ2_S = lib.GGML_TYPE_IQ2_S
    IQ4_XS = lib.GGML_TYPE_IQ4_XS
    I8 = lib.GGML_TYPE_I8
    I16 = lib.GGML_TYPE_I16
    I32 = lib.GGML_TYPE_I32
    I64 = lib.GGML_TYPE_I64
    F64 = lib.GGML_TYPE_F64
    IQ1_M = lib.GGML_TYPE_IQ1_M
    BF16 = lib.GGML_TYPE_BF16
    TQ1_0 = lib.GGML_TYPE_TQ1_0
    TQ2_0 = lib.GGML_TYPE_TQ2_0
    MXFP4 = lib.GGML_TYPE_MXFP4
    NVFP4 = lib.GGML_TYPE_NVFP4
    Q1_0 = lib.GGML_TYPE_Q1_0
    Q2_0 = lib.GGML_TYPE_Q2_0

    @property
    def block_size(self) -> int:
        """Number of values per block; 1 for types that are not quantised."""
        return lib.ggml_blck_size(self)

    @property
    def block_bytes(self) -> int:
        """Size of a block in bytes."""
        return lib.ggml_type_size(self)

    @property
    def is_quantized(self) -> bool:
        """True if the type stores values in blocks with shared scales."""
        return lib.ggml_is_quantized(self)

    @property
    def needs_imatrix(self) -> bool:
        """True if :func:`quantize` needs importances for this type."""
        return lib.ggml_quantize_requires_imatrix(self)

    @property
    def is_convertible(self) -> bool:
        """True if :func:`quantize` and :func:`dequantize` support this type.

        They do not support integers and F64, which numpy can hold directly, nor Q8_1 and Q8_K, which exist only inside
        the engine's matrix products.
        """
        return self == GGMLType.F32 or lib.ggml_get_type_traits(self).to_float != ffi.NULL

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy dtype of raw data: uint8 for quantised types, uint16 (the bits) for BF16."""
        return _DTYPES.get(self, np.dtype(np.uint8))


_DTYPES: dict[GGMLType, np.dtype[np.generic]] = {
    GGMLType.F32: np.dtype(np.float32),
    GGMLType.F16: np.dtype(np.float16),
    GGMLType.BF16: np.dtype(np.uint16),
    GGMLType.F64: np.dtype(np.float64),
    GGMLType.I8: np.dtype(np.int8),
    GGMLType.I16: np.dtype(np.int16),
    GGMLType.I32: np.dtype(np.int32),
    GGMLType.I64: np.dtype(np.int64),
}


def types() -> list[GGMLType]:
    """Return all tensor types, in the order of their numbers."""
    return sorted(GGMLType)


def nbytes(type: GGMLType, shape: Sequence[int]) -> int:
    """Return the size of a contiguous tensor in bytes.

    Args:
        type: its element type.
        shape: its shape in numpy's order, columns last.

    Raises:
        InvalidParameterError: the last dimension is not a multiple of the type's block, or a dimension is negative.
    """
    type = ggml_type(type)
    return math.prod(raw_shape(type, shape)) * type.dtype.itemsize


def quantize(array: npt.ArrayLike, type: GGMLType, imatrix: npt.ArrayLike | None = None) -> npt.NDArray[np.uint8]:
    """Encode an array of floats, row by row along its last axis. Runs on one thread, without the GIL.

    Args:
        array: float32 or convertible to it, ``(..., n_per_row)``, with ``n_per_row`` a multiple of the type's block.
        type: the type to encode to.
        imatrix: importance of each column, ``(n_per_row,)``, not negative, such as the mean square of the column's
            input activations. IQ1_S, IQ2_XXS and IQ2_XS need it, other quantised types usually benefit from it, floats
            ignore it.

    Returns:
        uint8, ``(..., bytes per row)``, a new array.

    Raises:
        InvalidParameterError: the type is not :attr:`~GGMLType.is_convertible`, the shape does not fit, a value is
            outside the type's range (NaN and infinity except in F32, F16 and BF16; magnitudes over 32768, over 65504
            for F16, over 2688 for NVFP4; BF16 and MXFP4 have float32's range), or an importance is missing, negative
            or NaN.
    """
    type = ggml_type(type)
    values = _floats("array", array)
    if values.ndim == 0:
        raise errors.InvalidParameterError("quantize() takes an array of rows, not a single number")
    row_bytes = nbytes(type, values.shape[-1:])
    weights = None if imatrix is None else _importances(imatrix, values.shape[-1])
    encoded = np.empty((*values.shape[:-1], row_bytes), np.uint8)
    c_calls.call(
        lib.pyg_quantize,
        type,
        ffi.cast("float *", values.ctypes.data),
        math.prod(values.shape[:-1]),
        values.shape[-1],
        ffi.NULL if weights is None else ffi.cast("float *", weights.ctypes.data),
        ffi.cast("void *", encoded.ctypes.data),
        encoded.nbytes,
    )
    return encoded


def dequantize(data: npt.NDArray[np.generic], type: GGMLType, shape: Sequence[int]) -> npt.NDArray[np.float32]:
    """Decode data of a ggml type. Runs on one thread, without the GIL.

    Args:
        data: an array of any dtype and shape whose bytes, in C order, are the data.
        type: the type of the data.
        shape: shape of the result.

    Returns:
        float32, ``shape``, a new array.

    Raises:
        InvalidParameterError: the type is not :attr:`~GGMLType.is_convertible`, the number of bytes does not fit, or
            the bytes are not valid data of that type (a scale is infinite or NaN).
    """
    type, shape = ggml_type(type), checked_shape(shape)
    raw = np.ascontiguousarray(_array("data", data))
    expected = nbytes(type, shape)
    if raw.nbytes != expected:
        raise errors.InvalidParameterError(
            f"{type.name} values of shape {shape} take {expected} bytes, but {raw.nbytes} were given"
        )
    decoded = np.empty(shape, np.float32)
    c_calls.call(
        lib.pyg_dequantize,
        type,
        ffi.cast("void *", raw.ctypes.data),
        raw.nbytes,
        decoded.size,
        ffi.cast("float *", decoded.ctypes.data),
    )
    return decoded


def ggml_type(type: int) -> GGMLType:
    """Convert a number to a type.

    Args:
        type: the number of a type in ``enum ggml_type``.

    Raises:
        InvalidParameterError: there is no such type.
    """
    try:
        return GGMLType(operator.index(type))
    except (TypeError, ValueError):
        raise errors.InvalidParameterError(
            f"{shown(type)} is not a ggml type; choose one of {', '.join(each.name for each in types())}"
        ) from None


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a tensor's shape as a tuple of ints.

    Args:
        shape: one or more sizes, in numpy's order, columns last.

    Raises:
        InvalidParameterError: it is not one or more sizes from 0 to 2**63 - 1.
    """
    sizes = tuple(integer("a size of a shape", n, -math.inf, math.inf) for n in items("a shape", shape))
    if not sizes or min(sizes) < 0:
        raise errors.InvalidParameterError(f"{shown(sizes)} is not a tensor's shape: one or more sizes >= 0 are needed")
    if max(sizes) >= 2**63:
        raise errors.InvalidParameterError(f"a tensor of shape {shown(sizes)} is larger than a file can be")
    return sizes


def raw_shape(type: GGMLType, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a tensor's raw data in numpy: quantised rows become rows of bytes.

    Args:
        type: the tensor's element type.
        shape: its shape in numpy's order, columns last.

    Raises:
        InvalidParameterError: as :func:`nbytes`.
    """
    type, dimensions = ggml_type(type), checked_shape(shape)
    if dimensions[-1] % type.block_size:
        raise errors.InvalidParameterError(
            f"{type.name} stores blocks of {type.block_size} values; a row of {dimensions[-1]} is not a multiple of "
            "that"
        )
    if not type.is_quantized:
        return dimensions
    return (*dimensions[:-1], dimensions[-1] // type.block_size * type.block_bytes)


def _array(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return ``values`` as an array of numbers of any real type."""
    given = any_array(name, values)
    if given.dtype.kind not in "fiub":
        raise errors.InvalidParameterError(f"{name} must hold real numbers, not {given.dtype}")
    return given


def _floats(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return ``values`` as contiguous float32, copied only if they have another form."""
    given = _array(name, values)
    with np.errstate(over="ignore"):  # checked below
        floats = np.asarray(given, np.float32, order="C")
    if floats is not given and not np.array_equal(np.isfinite(given), np.isfinite(floats)):
        raise errors.InvalidParameterError(f"{name} holds finite values that are too large for float32")
    return floats


def _importances(imatrix: npt.ArrayLike, n_per_row: int) -> npt.NDArray[np.float32]:
    weights = _floats("imatrix", imatrix)
    if weights.shape != (n_per_row,):
        raise errors.InvalidParameterError(
            f"imatrix has shape {weights.shape}; it must have one importance per column, ({n_per_row},)"
        )
    return weights

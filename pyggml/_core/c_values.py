"""Conversion of Python values to arrays for native calls. Each raises InvalidParameterError naming the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml._core.checks import INT32_MAX, require_countable, shown
from pyggml._core.ffi import ffi
from pyggml.errors import InvalidParameterError

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


def int32_array(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Convert a flat sequence of integers to contiguous int32, shape (n,); an int32 array that fits is not copied."""
    array = _flat(name, values)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind not in "iu":
        raise InvalidParameterError(f"{name} must be integers, not {_content(array)}")
    if array.dtype != np.int32:
        _require_int32_range(name, array)
    return np.ascontiguousarray(array, np.int32)


def float32_array(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Convert a flat sequence of real numbers to a new contiguous float32 array, shape (n,)."""
    array = _flat(name, values)
    if array.size and array.dtype.kind not in "iuf":
        raise InvalidParameterError(f"{name} must be numbers, not {_content(array)}")
    return np.array(array, np.float32)


def mask_array(name: str, values: npt.ArrayLike, n: int) -> npt.NDArray[np.int8]:
    """Convert a flat sequence of ``n`` bools to int8, shape (n,)."""
    array = _flat(name, values)
    if array.dtype != np.bool_ or array.size != n:
        raise InvalidParameterError(f"{name} must be {n} bools, not {array.size} items of {_content(array)}")
    return array.astype(np.int8)


def pointer(ctype: str, array: npt.NDArray[Any]) -> CData:
    """Return a C array over a contiguous numpy array's memory, which it keeps alive."""
    return ffi.from_buffer(ctype, array)


def any_array(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Convert values to an array of any type and shape."""
    require_countable(name, values)
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidParameterError(f"{name} cannot be converted to an array: {error}") from None


def _flat(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    array = any_array(name, values)
    if array.ndim == 0:
        raise InvalidParameterError(f"{name} must be a flat sequence, not {type(values).__name__}")
    if array.ndim != 1:
        raise InvalidParameterError(f"{name} must be a flat sequence, but has the shape {array.shape}")
    return array


def _content(array: npt.NDArray[Any]) -> str:
    """Describe an array's content for a message; of Python objects, the first that is not a 32-bit integer."""
    if array.dtype.kind in "US":
        return "text"
    if array.dtype.kind != "O":
        return str(array.dtype)
    odd = next(((i, v) for i, v in enumerate(array) if not isinstance(v, int) or abs(v) > INT32_MAX), None)
    return "objects" if odd is None else f"{shown(odd[1])} at index {odd[0]}"


def _require_int32_range(name: str, array: npt.NDArray[Any]) -> None:
    limits = np.iinfo(np.int32)
    outside = np.flatnonzero((array < limits.min) | (array > limits.max))
    if outside.size:
        index = int(outside[0])
        raise InvalidParameterError(f"{name} contains {array[index]} at index {index}, which does not fit in 32 bits")

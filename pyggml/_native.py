"""Python values as native calls want them: checked here, so that a mistake is named in Python's terms."""

from __future__ import annotations

import numbers
import operator
import os
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeGuard

import numpy as np
import numpy.typing as npt

from pyggml._ffi import ffi, lib
from pyggml.errors import InvalidParameterError

if TYPE_CHECKING:
    from pyggml._ffi import CData

INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1

#: Seed that asks the engine to choose one; the largest 32-bit number, so callers' seeds end one below.
_ANY_SEED: int = lib.LLAMA_DEFAULT_SEED


def is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether the file system could have it: text in bytes, none of them NUL."""
    try:
        return isinstance(value, (str, os.PathLike)) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def integer(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """``value`` as an int within ``low`` to ``high``.

    Raises:
        InvalidParameterError: it is no integer (a bool is none), or out of range.
    """
    if isinstance(value, (bool, np.bool_)):
        raise InvalidParameterError(f"{name} must be an integer, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidParameterError(f"{name} must be an integer, not {value!r}") from None
    if not low <= number <= high:
        raise InvalidParameterError(f"{name} must be between {low} and {high}, not {number}")
    return number


def real(name: str, value: float) -> float:
    """``value`` as a float; ranges and NaN are the native side's to check.

    Raises:
        InvalidParameterError: it is no number.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidParameterError(f"{name} must be a number, not {value!r}")
    return float(value)


def seed(value: SupportsIndex | None) -> int:
    """A seed for the engine's random numbers; None lets the engine choose one."""
    return _ANY_SEED if value is None else integer("seed", value, 0, _ANY_SEED - 1)


def choice(name: str, value: str, choices: dict[str, int]) -> int:
    """The number that stands for one of a few words.

    Raises:
        InvalidParameterError: it is none of them.
    """
    if isinstance(value, str) and value in choices:
        return choices[value]
    raise InvalidParameterError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def c_string(name: str, text: str | bytes) -> bytes:
    """Text as UTF-8 for a NUL-terminated C string.

    Raises:
        InvalidParameterError: it is no text, holds a NUL, or an unpaired surrogate.
    """
    if not isinstance(text, (str, bytes)):
        raise InvalidParameterError(f"{name} must be text, not {type(text).__name__}")
    data = utf8(name, text)
    if b"\0" in data:
        raise InvalidParameterError(f"{name} holds a NUL character at byte {data.index(0)}: remove it")
    return data


def utf8(name: str, text: str | bytes) -> bytes:
    """Text as UTF-8; bytes go through as they are.

    Raises:
        InvalidParameterError: an unpaired surrogate.
    """
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameterError(
            f"{name} holds an unpaired surrogate at index {error.start}, which UTF-8 cannot express"
        ) from None


def int32_array(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """A flat sequence of integers as contiguous int32, shape (n,); an int32 array that fits is not copied.

    Raises:
        InvalidParameterError: something in it is no integer or does not fit 32 bits; names index and value.
    """
    array = _flat(name, values)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind not in "iu":
        raise InvalidParameterError(f"{name} must be integers, not {_what(array)}")
    if array.dtype != np.int32:
        _require_int32_range(name, array)
    return np.ascontiguousarray(array, np.int32)


def float32_array(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """A flat sequence of numbers as a new contiguous float32 array, shape (n,).

    Raises:
        InvalidParameterError: something in it is no real number.
    """
    array = _flat(name, values)
    if array.size and array.dtype.kind not in "iuf":
        raise InvalidParameterError(f"{name} must be numbers, not {_what(array)}")
    return np.array(array, np.float32)


def mask_array(name: str, values: npt.ArrayLike, n: int) -> npt.NDArray[np.int8]:
    """A flat sequence of ``n`` bools as int8, shape (n,).

    Raises:
        InvalidParameterError: not bools, or not ``n``.
    """
    array = _flat(name, values)
    if array.dtype != np.bool_ or array.size != n:
        raise InvalidParameterError(f"{name} must be {n} bools, not {array.size} of {_what(array)}")
    return array.astype(np.int8)


def pointer(ctype: str, array: npt.NDArray[Any]) -> CData:
    """A C array over a contiguous numpy array's memory, which it keeps alive."""
    return ffi.from_buffer(ctype, array)


def _flat(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InvalidParameterError(f"{name} cannot be made an array: {error}") from None
    if array.ndim != 1:
        raise InvalidParameterError(f"{name} must be a flat sequence, not one of shape {array.shape}")
    return array


def _what(array: npt.NDArray[Any]) -> str:
    """What an array holds, for a message; names the first odd one out among Python objects."""
    if array.dtype.kind != "O":
        return str(array.dtype)
    odd = next(((i, v) for i, v in enumerate(array) if not isinstance(v, int) or abs(v) > INT32_MAX), None)
    return "objects" if odd is None else f"{odd[1]!r} at index {odd[0]}"


def _require_int32_range(name: str, array: npt.NDArray[Any]) -> None:
    limits = np.iinfo(np.int32)
    outside = np.flatnonzero((array < limits.min) | (array > limits.max))
    if outside.size:
        index = int(outside[0])
        raise InvalidParameterError(f"{name} holds {array[index]} at index {index}, which does not fit 32 bits")

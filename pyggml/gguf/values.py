"""Conversion of metadata values between Python and the engine's ``gguf_context``.

Upstream's getters abort the process on a wrong type. Only this file calls them, after checking the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.checks import require_countable, shown
from pyggml._core.ffi import ffi, lib

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

#: A metadata value. Reading yields exactly these types; writing also accepts lists and numpy scalars.
MetadataValue = bool | int | float | str | npt.NDArray[np.generic] | tuple[str, ...]

_MAX_KEY_BYTES = 65535  # the format's own limit
_ALIGNMENT_KEY = "general.alignment"


class ValueType(IntEnum):
    """The types of metadata values; the numbers are ``enum gguf_type``."""

    UINT8 = lib.GGUF_TYPE_UINT8
    INT8 = lib.GGUF_TYPE_INT8
    UINT16 = lib.GGUF_TYPE_UINT16
    INT16 = lib.GGUF_TYPE_INT16
    UINT32 = lib.GGUF_TYPE_UINT32
    INT32 = lib.GGUF_TYPE_INT32
    FLOAT32 = lib.GGUF_TYPE_FLOAT32
    BOOL = lib.GGUF_TYPE_BOOL
    STRING = lib.GGUF_TYPE_STRING
    UINT64 = lib.GGUF_TYPE_UINT64
    INT64 = lib.GGUF_TYPE_INT64
    FLOAT64 = lib.GGUF_TYPE_FLOAT64


_DTYPES: dict[ValueType, np.dtype[np.generic]] = {
    type: np.dtype(type.name.lower()) for type in ValueType if type is not ValueType.STRING
}
_TYPE_OF_DTYPE = {dtype: type for type, dtype in _DTYPES.items()}

# An int gets the first of these types that holds it. UINT32 comes first because the engine reads counts as that.
_INFERRED_INTEGERS = (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64)


def decode(text: CData) -> str:
    """Convert a ``char *`` to str. Invalid UTF-8 becomes lone surrogates, which :func:`encode` converts back."""
    return ffi.string(text).decode("utf-8", "surrogateescape")


def encode(what: str, text: str) -> bytes:
    """Convert str to UTF-8, the inverse of :func:`decode`; InvalidParameterError for a NUL or a lone surrogate."""
    if not isinstance(text, str):
        raise errors.InvalidParameterError(f"{what} must be a str, not {shown(text)}")
    try:
        encoded = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise errors.InvalidParameterError(f"{what} holds a lone surrogate: {error}") from None
    if b"\0" in encoded:
        raise errors.InvalidParameterError(f"{what} holds a NUL, at which the engine would cut it: {text[:80]!r}")
    return encoded


def value_type(raw: CData, key_id: int) -> ValueType:
    """Return the type of a value, or of an array's elements."""
    kind = lib.gguf_get_kv_type(raw, key_id)
    return ValueType(lib.gguf_get_arr_type(raw, key_id) if kind == lib.GGUF_TYPE_ARRAY else kind)


def read_value(raw: CData, key_id: int) -> MetadataValue:
    """Read one value: bool, int, float, str; read-only numpy array; tuple of str. Everything is a copy."""
    if lib.gguf_get_kv_type(raw, key_id) == lib.GGUF_TYPE_ARRAY:
        return _read_array(raw, key_id)
    type = value_type(raw, key_id)
    if type == ValueType.STRING:
        return decode(lib.gguf_get_val_str(raw, key_id))
    value: MetadataValue = _copy(lib.gguf_get_val_data(raw, key_id), _DTYPES[type], 1)[0].item()
    return value


def _read_array(raw: CData, key_id: int) -> npt.NDArray[np.generic] | tuple[str, ...]:
    type = value_type(raw, key_id)
    n = lib.gguf_get_arr_n(raw, key_id)
    if type == ValueType.STRING:
        get = lib.gguf_get_arr_str
        return tuple(decode(get(raw, key_id, i)) for i in range(n))
    return _copy(lib.gguf_get_arr_data(raw, key_id) if n else ffi.NULL, _DTYPES[type], n)


def _copy(data: CData, dtype: np.dtype[np.generic], n: int) -> npt.NDArray[np.generic]:
    """Return ``n`` elements at ``data`` as a read-only array."""
    return np.frombuffer(bytes(ffi.buffer(data, n * dtype.itemsize)) if n else b"", dtype)


def write_value(handle: CData, key: str, value: object, type: ValueType | None) -> None:
    """Add a key to a ``pyg_gguf``, with a value and a type as for :meth:`pyggml.gguf.GGUFWriter.set`.

    Raises:
        InvalidParameterError: the key is unusable, or the value does not fit the type.
        OutOfMemoryError: nothing was added.
    """
    encoded_key = _encode_key(lib.pyg_gguf_get(handle), key)
    if type is not None and not isinstance(type, ValueType):
        raise errors.InvalidParameterError(f"{shown(type)} is not a type of metadata values")
    if _is_text(value, type):
        _write_text(handle, encoded_key, key, value)
        return
    numbers = _numbers(key, value, type)
    if key == _ALIGNMENT_KEY:
        _require_alignment_type(numbers)
    stored, data = _TYPE_OF_DTYPE[numbers.dtype], ffi.cast("void *", numbers.ctypes.data)
    if numbers.ndim == 0:
        c_calls.call(lib.pyg_gguf_set_number, handle, encoded_key, stored, data)
    else:
        c_calls.call(lib.pyg_gguf_set_numbers, handle, encoded_key, stored, data, len(numbers))


def _encode_key(raw: CData, key: str) -> bytes:
    encoded = encode("a metadata key", key)
    if not 1 <= len(encoded) <= _MAX_KEY_BYTES:
        raise errors.InvalidParameterError(
            f"a metadata key must have 1 to {_MAX_KEY_BYTES} bytes; this one has {len(encoded)}: {key[:80]!r}"
        )
    if lib.gguf_find_key(raw, encoded) >= 0:
        raise errors.InvalidParameterError(f"the key {key!r} is already set")
    return encoded


def _is_text(value: object, type: ValueType | None) -> bool:
    if type is not None:
        return type == ValueType.STRING
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return bool(value.dtype.kind == "U")
    return isinstance(value, str) or (
        isinstance(value, (list, tuple, np.ndarray)) and any(isinstance(v, str) for v in value)
    )


def _write_text(handle: CData, encoded_key: bytes, key: str, value: Any) -> None:
    if key == _ALIGNMENT_KEY:
        raise errors.InvalidParameterError(f"{_ALIGNMENT_KEY} must be a number, not {shown(value)}")
    if isinstance(value, str):
        c_calls.call(lib.pyg_gguf_set_text, handle, encoded_key, encode(f"the value of {key!r}", value))
        return
    if not isinstance(value, (list, tuple, np.ndarray)) or np.ndim(value) > 1:
        raise errors.InvalidParameterError(f"{shown(key)} takes a str or a sequence of str, not {shown(value):.80}")
    write_texts(handle, encoded_key, [encode(f"value {i} of {key!r}", text) for i, text in enumerate(value)])


def write_texts(handle: CData, encoded_key: bytes, texts: Sequence[bytes]) -> None:
    """Set a key of a ``pyg_gguf`` to texts without NULs, replacing its value if it has one."""
    # One buffer and one array of addresses: a vocabulary has too many strings for separate allocations.
    buffer = ffi.from_buffer(b"".join(text + b"\0" for text in texts))
    ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.uintp)
    starts = np.concatenate([np.zeros(1, np.uintp), ends])[: len(texts)]
    addresses = starts + np.uintp(int(ffi.cast("uintptr_t", buffer)))
    pointers = ffi.cast("const char **", addresses.ctypes.data)
    c_calls.call(lib.pyg_gguf_set_texts, handle, encoded_key, pointers, len(texts))


def _numbers(key: str, value: object, type: ValueType | None) -> npt.NDArray[np.generic]:
    """Convert ``value`` without loss to an array of the type's dtype with 0 or 1 dimensions."""
    try:
        given = _as_array(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        given = np.empty((0, 0))
    if given is None or given.ndim > 1:
        raise errors.InvalidParameterError(
            f"{key!r} takes a number, a bool, a str or a flat list of one of these, not {shown(value):.80}"
        )
    return _exactly(key, given, _DTYPES[_inferred_type(key, value, given) if type is None else type])


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    """Return ``value`` as a numpy array, with Python ints as objects; None if it is neither numbers nor bools."""
    require_countable("a value", value)
    items = value if isinstance(value, (list, tuple)) else (value,)
    n_bools = sum(isinstance(item, (bool, np.bool_)) for item in items)
    if not n_bools and all(isinstance(item, int) for item in items):
        return np.array(value, object)  # numpy would convert ints beyond int64 to floats
    given = np.asarray(value)
    mixed = 0 < n_bools < len(items)
    return given if given.dtype.kind in "biuf" and not mixed else None


def _inferred_type(key: str, value: object, given: npt.NDArray[Any]) -> ValueType:
    if isinstance(value, (np.ndarray, np.generic)):
        native = given.dtype.newbyteorder("=")
        if native not in _TYPE_OF_DTYPE:
            raise errors.InvalidParameterError(f"{key!r}: GGUF has no {given.dtype}; convert the array or give a type")
        return _TYPE_OF_DTYPE[native]
    if given.size == 0:
        raise errors.InvalidParameterError(f"{key!r} is empty, so its type cannot be inferred: give one")
    if given.dtype.kind in "bf":
        return ValueType.BOOL if given.dtype.kind == "b" else ValueType.FLOAT32
    for type in _INFERRED_INTEGERS:
        limits = np.iinfo(_DTYPES[type].name)
        if limits.min <= given.min() and given.max() <= limits.max:
            return type
    raise errors.InvalidParameterError(f"{key!r} needs more than 64 bits: {shown(value):.80}")


def _exactly(key: str, given: npt.NDArray[Any], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Convert an array, rejecting floats as integers, overflows, numbers as bools and bools as numbers."""
    if given.size and not _fits(given, dtype):
        raise errors.InvalidParameterError(f"{key!r}: {dtype} cannot hold {given.tolist()!r:.80}")
    return np.asarray(given, dtype, order="C")


def _fits(given: npt.NDArray[Any], dtype: np.dtype[np.generic]) -> bool:
    """Return True if a conversion loses nothing except float precision."""
    if "b" in (given.dtype.kind, dtype.kind):
        return bool(given.dtype.kind == dtype.kind)
    if dtype.kind == "f":
        try:
            floats = np.asarray(given, np.float64)
        except OverflowError:
            return False
        with np.errstate(over="ignore"):  # checked here
            return np.array_equal(np.isfinite(floats), np.isfinite(floats.astype(dtype)))
    limits = np.iinfo(dtype.name)
    return bool(given.dtype.kind != "f" and limits.min <= given.min() and given.max() <= limits.max)


def _require_alignment_type(alignment: npt.NDArray[np.generic]) -> None:
    if alignment.dtype != np.uint32 or alignment.ndim:
        raise errors.InvalidParameterError(f"{_ALIGNMENT_KEY} must be a single UINT32, not {alignment.dtype} values")

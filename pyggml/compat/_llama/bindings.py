"""The engine's C API for ctypes, derived from pyggml's declarations when a name is first used.

As in C, nothing is checked: a mistake can crash the process.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import pyggml

_PRIMITIVES: dict[str, Any] = {
    "_Bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "size_t": ctypes.c_size_t,
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@functools.cache
def function(name: str) -> Any:
    """Return a function of the C API as ctypes sees it.

    Pointers are arguments of any kind; a result is an address, or a pointer to numbers, or bytes.

    Raises:
        AttributeError: there is no such function.
    """
    address = pyggml.ffi.addressof(pyggml.lib, name)
    declared = pyggml.ffi.typeof(address)
    result = None if declared.result.kind == "void" else _type(declared.result)
    prototype = ctypes.CFUNCTYPE(result, *map(_argument, declared.args))
    return prototype(int(pyggml.ffi.cast("uintptr_t", address)))


@functools.cache
def struct(name: str) -> Any:
    """Return a struct of the C API as a class of ctypes.

    Raises:
        AttributeError: there is no such struct.
    """
    try:
        declared = pyggml.ffi.typeof(f"struct {name}")
        pyggml.ffi.sizeof(declared)
    except pyggml.ffi.error:
        raise AttributeError(f"there is no struct {name}, or it is opaque") from None
    return _structure(declared)


def _structure(declared: Any) -> Any:
    name = declared.cname.removeprefix("struct ")
    fields = [(field, _type(each.type)) for field, each in declared.fields]
    made = type(name, (ctypes.Structure,), {"_fields_": fields})
    if ctypes.sizeof(made) != pyggml.ffi.sizeof(declared):
        raise AttributeError(f"{declared.cname} has fields that pyggml does not declare")
    return made


def _argument(declared: Any) -> Any:
    """Return the type of an argument: for pointers, one that takes arrays, references, addresses and bytes."""
    return ctypes.c_void_p if declared.kind == "pointer" else _type(declared)


def _type(declared: Any) -> Any:
    if declared.kind == "primitive":
        return _PRIMITIVES[declared.cname]
    if declared.kind == "enum":
        return ctypes.c_int
    if declared.kind == "struct":
        return struct(declared.cname.removeprefix("struct "))
    if declared.kind == "array":
        return _type(declared.item) * declared.length
    if declared.kind == "pointer" and declared.item.kind == "primitive":
        return ctypes.c_char_p if declared.item.cname == "char" else ctypes.POINTER(_type(declared.item))
    if declared.kind == "pointer" and declared.item.kind == "pointer" and declared.item.item.kind == "primitive":
        return ctypes.POINTER(_type(declared.item))
    return ctypes.c_void_p  # structs, functions, and pointers to them

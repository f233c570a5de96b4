"""Calls of guarded C functions, whose statuses become exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyggml import errors
from pyggml._core import log
from pyggml._core.ffi import ffi, lib

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

_BY_CODE: dict[int, type[errors.InferError]] = {
    lib.PYG_ERR_MODEL_NOT_FOUND: errors.ModelNotFoundError,
    lib.PYG_ERR_MODEL_LOAD: errors.ModelLoadError,
    lib.PYG_ERR_UNSUPPORTED_ARCH: errors.UnsupportedArchitectureError,
    lib.PYG_ERR_ARCH_MISMATCH: errors.ArchitectureMismatchError,
    lib.PYG_ERR_TOKENIZER: errors.TokenizerError,
    lib.PYG_ERR_INVALID_PARAMETER: errors.InvalidParameterError,
    lib.PYG_ERR_EMPTY_PROMPT: errors.EmptyPromptError,
    lib.PYG_ERR_CONTEXT_OVERFLOW: errors.ContextOverflowError,
    lib.PYG_ERR_GRAMMAR: errors.GrammarError,
    lib.PYG_ERR_DEVICE: errors.DeviceError,
    lib.PYG_ERR_OUT_OF_MEMORY: errors.OutOfMemoryError,
    lib.PYG_ERR_QUEUE_FULL: errors.QueueFullError,
    lib.PYG_ERR_TIMEOUT: errors.RequestTimeout,
    lib.PYG_ERR_CLOSED: errors.ClosedError,
    lib.PYG_ERR_ENGINE: errors.EngineError,
    lib.PYG_ERR_HOST_LOST: errors.HostLostError,
    lib.PYG_ERR_ENGINE_LOST: errors.EngineLostError,
}


def check(status: int, err: CData) -> None:
    """Raise the exception for a native call that failed; in any case pass waiting engine logs to :mod:`logging`."""
    log.drain()
    if status == 0:
        return
    message = text_of(err.message)
    kind = _BY_CODE.get(err.code, errors.EngineError)
    if kind is errors.OutOfMemoryError:
        raise errors.OutOfMemoryError(message, err.required_bytes, err.available_bytes)
    raise kind(message)


def create(kind: str, free: Callable[[CData], object], function: Callable[..., int], *args: object) -> CData:
    """Call a guarded function that creates an object of the C type ``kind``, which is freed with its last reference.

    ``function`` takes ``args``, a pointer to the object's pointer, and the ``pyg_error *``. The object does not leak if
    Ctrl-C arrives during the call, which Python raises when the call returns.
    """
    out = ffi.new(f"{kind} **")
    try:
        call(function, *args, out)
    except BaseException:
        free(out[0])  # NULL if no object was created
        raise
    return ffi.gc(out[0], free)


def call(function: Callable[..., int], *args: object) -> None:
    """Call a guarded native function, whose last parameter is the ``pyg_error *``, and check it."""
    err = ffi.new("pyg_error *")
    check(function(*args, err), err)


def call_for_value(ctype: str, function: Callable[..., int], *args: object) -> Any:
    """Call a guarded function that writes a number or pointer of a C type, and return that.

    ``function`` takes ``args``, a pointer to the value, and the ``pyg_error *``.
    """
    out = ffi.new(f"{ctype} *")
    call(function, *args, out)
    return out[0]


def call_for_text(function: Callable[..., int], *args: object) -> bytes | None:
    """Call a guarded function that creates a string, and return the string, or None for NULL.

    ``function`` takes ``args``, a pointer to the string's pointer, and the ``pyg_error *``.
    """
    out = ffi.new("char **")
    try:
        call(function, *args, out)
        return None if out[0] == ffi.NULL else bytes(ffi.string(out[0]))
    finally:
        lib.pyg_string_free(out[0])


def text_of(chars: CData) -> str:
    """Return a C string as text, with U+FFFD for invalid UTF-8."""
    text: str = ffi.string(chars).decode(errors="replace")
    return text

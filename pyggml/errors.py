"""All exceptions of pyggml, and the translation of native statuses to them.

All derive from :class:`InferError`, and from the builtin exception that fits, if any. A message says what was wrong,
what was expected and the way out, and includes the engine's own message if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyggml import _log
from pyggml._ffi import ffi, lib

if TYPE_CHECKING:
    from pyggml._ffi import CData


class InferError(Exception):
    """Base class of all of pyggml's exceptions."""


class ModelNotFoundError(InferError, FileNotFoundError):
    """The model file or directory does not exist."""


class ModelLoadError(InferError):
    """The model exists but could not be loaded: it is not a GGUF file, truncated, or inconsistent."""


class UnsupportedArchitectureError(InferError):
    """The engine does not support this architecture."""


class ArchitectureMismatchError(InferError, ValueError):
    """The model belongs to another family than the requested one."""


class TokenizerError(InferError, ValueError):
    """The tokenizer is missing, unreadable or does not fit the model."""


class TokenizerNotFoundError(TokenizerError, FileNotFoundError):
    """There is no tokenizer at the path."""


class InvalidParameterError(InferError, ValueError):
    """An argument is out of range or of the wrong kind."""


class UnknownParameterError(InvalidParameterError, TypeError):
    """There is no parameter of that name; the message says which one was probably meant."""


class CopyError(InferError, TypeError):
    """The object owns memory of the engine, so it cannot be copied or pickled; the message says what to do instead."""


class EmptyPromptError(InferError, ValueError):
    """The prompt has no tokens."""


class ContextOverflowError(InferError, ValueError):
    """The prompt or batch does not fit the context."""


class GrammarError(InferError, ValueError):
    """A grammar or JSON schema cannot be used."""


class DeviceError(InferError, RuntimeError):
    """The requested device does not exist or cannot be used."""


class OutOfMemoryError(InferError, MemoryError):
    """There is not enough memory.

    Attributes:
        required_bytes: bytes that the operation needs, 0 if unknown.
        available_bytes: bytes that are free, 0 if unknown.
    """

    def __init__(self, message: str, required_bytes: int = 0, available_bytes: int = 0) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.available_bytes = available_bytes


class DiskFullError(InferError, OSError):
    """The file does not fit on its disk; no incomplete file is left under its name.

    Attributes:
        required_bytes: bytes that the file needs, 0 if unknown.
        available_bytes: bytes that are free, 0 if unknown.
    """

    def __init__(self, message: str, required_bytes: int = 0, available_bytes: int = 0) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.available_bytes = available_bytes


class DownloadError(InferError, ConnectionError):
    """A model could not be downloaded: the hub cannot be reached, refuses, or offline mode is on.

    Attributes:
        is_temporary: whether a retry may succeed; complete files are kept.
    """

    def __init__(self, message: str, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary


class MissingPackageError(InferError, ImportError):
    """An optional package is missing; the message says how to install it."""


class QueueFullError(InferError, RuntimeError):
    """``max_queue`` requests are already waiting, and this one was not allowed to wait for a place."""


class RequestTimeout(InferError, TimeoutError):
    """A request's ``timeout_s`` elapsed before it could be queued."""


class ClosedError(InferError):
    """The object was closed before or during the call."""


class EngineError(InferError):
    """The engine failed: an internal check, a computation, or use after a fork."""


class EngineLostError(EngineError):
    """The engine failed during an earlier request, and computes no more. Close the model, and load it again."""


class HostLostError(EngineError):
    """A host that computes a part of the model is lost; the message names it. Load the model again when it is back."""


_BY_CODE: dict[int, type[InferError]] = {
    lib.PYG_ERR_MODEL_NOT_FOUND: ModelNotFoundError,
    lib.PYG_ERR_MODEL_LOAD: ModelLoadError,
    lib.PYG_ERR_UNSUPPORTED_ARCH: UnsupportedArchitectureError,
    lib.PYG_ERR_ARCH_MISMATCH: ArchitectureMismatchError,
    lib.PYG_ERR_TOKENIZER: TokenizerError,
    lib.PYG_ERR_INVALID_PARAMETER: InvalidParameterError,
    lib.PYG_ERR_EMPTY_PROMPT: EmptyPromptError,
    lib.PYG_ERR_CONTEXT_OVERFLOW: ContextOverflowError,
    lib.PYG_ERR_GRAMMAR: GrammarError,
    lib.PYG_ERR_DEVICE: DeviceError,
    lib.PYG_ERR_OUT_OF_MEMORY: OutOfMemoryError,
    lib.PYG_ERR_QUEUE_FULL: QueueFullError,
    lib.PYG_ERR_TIMEOUT: RequestTimeout,
    lib.PYG_ERR_CLOSED: ClosedError,
    lib.PYG_ERR_ENGINE: EngineError,
    lib.PYG_ERR_HOST_LOST: HostLostError,
    lib.PYG_ERR_ENGINE_LOST: EngineLostError,
}


def check(status: int, err: CData) -> None:
    """Raises the exception for a failed native call; in any case passes waiting engine logs to :mod:`logging`.

    Args:
        status: the ``pyg_*`` function's return value.
        err: the ``pyg_error *`` it filled.
    """
    _log.drain()
    if status == 0:
        return
    message = ffi.string(err.message).decode("utf-8", "replace")
    kind = _BY_CODE.get(err.code, EngineError)
    if kind is OutOfMemoryError:
        raise OutOfMemoryError(message, err.required_bytes, err.available_bytes)
    raise kind(message)


def create(kind: str, free: Callable[[CData], object], function: Callable[..., int], *args: object) -> CData:
    """Calls a guarded function that creates an object, and returns the object, owned by Python.

    The object does not leak if Ctrl-C arrives during the call, which Python raises when the call returns.

    Args:
        kind: C type of the object, such as "pyg_model".
        free: frees the object; called when the result is garbage-collected.
        function: takes ``args``, a pointer to the object's pointer, and the ``pyg_error *``.
        *args: the function's first arguments.
    """
    out = ffi.new(f"{kind} **")
    try:
        call(function, *args, out)
    except BaseException:
        free(out[0])  # NULL if no object was created
        raise
    return ffi.gc(out[0], free)


def call(function: Callable[..., int], *args: object) -> None:
    """Calls a guarded native function, whose last parameter is the ``pyg_error *``, and checks it."""
    err = ffi.new("pyg_error *")
    check(function(*args, err), err)


def owned_text(function: Callable[..., int], *args: object) -> bytes | None:
    """Calls a guarded function that makes a text, and returns the text, or None for NULL.

    Args:
        function: takes ``args``, a pointer to the text's pointer, and the ``pyg_error *``.
        *args: the function's first arguments.

    Raises:
        MemoryError: the text does not fit into memory.
    """
    out = ffi.new("char **")
    try:
        call(function, *args, out)
        return None if out[0] == ffi.NULL else bytes(ffi.string(out[0]))
    finally:
        lib.pyg_string_free(out[0])

"""Every exception pyggml raises, and the only place that turns a native status into one.

All derive from :class:`InferError`; each is also the builtin a caller would reach for, where one fits. A message
says what was wrong, what was expected and the way out, and carries the engine's own words where it said something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyggml import _log
from pyggml._ffi import ffi, lib

if TYPE_CHECKING:
    from pyggml._ffi import CData


class InferError(Exception):
    """Base of everything pyggml raises on purpose."""


class ModelNotFoundError(InferError, FileNotFoundError):
    """The model file or directory does not exist."""


class ModelLoadError(InferError):
    """The model exists, but could not be loaded: not a GGUF, truncated, inconsistent."""


class UnsupportedArchitectureError(InferError):
    """The engine does not know this architecture."""


class ArchitectureMismatchError(InferError, ValueError):
    """The model is of another family than the one asked for."""


class TokenizerError(InferError, ValueError):
    """The tokenizer is missing, unreadable or does not fit the model."""


class TokenizerNotFoundError(TokenizerError, FileNotFoundError):
    """There is no tokenizer at the path."""


class InvalidParameterError(InferError, ValueError):
    """An argument is out of range or of the wrong kind."""


class EmptyPromptError(InferError, ValueError):
    """The prompt has no tokens."""


class ContextOverflowError(InferError, ValueError):
    """The prompt or batch does not fit the context."""


class GrammarError(InferError, ValueError):
    """A grammar or JSON schema cannot be used."""


class DeviceError(InferError, RuntimeError):
    """The device asked for is absent or cannot be used."""


class OutOfMemoryError(InferError, MemoryError):
    """The memory asked for is not there.

    Attributes:
        required_bytes: what the operation would take, 0 when unknown.
        available_bytes: what is left, 0 when unknown.
    """

    def __init__(self, message: str, required_bytes: int = 0, available_bytes: int = 0) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.available_bytes = available_bytes


class DiskFullError(InferError, OSError):
    """The file does not fit on its disk; nothing is left under its name.

    Attributes:
        required_bytes: what it would take, 0 when unknown.
        available_bytes: what is left, 0 when unknown.
    """

    def __init__(self, message: str, required_bytes: int = 0, available_bytes: int = 0) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.available_bytes = available_bytes


class DownloadError(InferError, ConnectionError):
    """A model could not be downloaded: the hub cannot be reached, refuses, or is not to be asked.

    Attributes:
        is_temporary: the same may work later; what has come by then is kept.
    """

    def __init__(self, message: str, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary


class MissingPackageError(InferError, ImportError):
    """A package that is not installed with pyggml unless asked for; the message says how."""


class QueueFullError(InferError, RuntimeError):
    """As many requests are waiting as ``max_queue`` allows, and this one was not to wait for room."""


class RequestTimeout(InferError, TimeoutError):
    """The ``timeout_s`` of a request was over before it could even be queued."""


class ClosedError(InferError):
    """The object was closed before or during the call."""


class EngineError(InferError):
    """The engine failed: a check inside it, a computation, or use across a fork."""


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
}


def check(status: int, err: CData) -> None:
    """Raises the exception of a failed native call; hands waiting engine logs to :mod:`logging` either way.

    Args:
        status: what the ``pyg_*`` function returned.
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
    """Calls a guarded function that makes an object, and returns it as owned by Python.

    Nothing is lost when Ctrl-C arrives while it is being made, which Python raises when the call returns.

    Args:
        kind: C type of the object, such as "pyg_model".
        free: what frees it; called with the object when Python lets go of the result.
        function: takes ``args``, a pointer to the object's pointer, and the ``pyg_error *``.
        *args: the arguments before these two.
    """
    out = ffi.new(f"{kind} **")
    try:
        call(function, *args, out)
    except BaseException:
        free(out[0])  # NULL when nothing was made
        raise
    return ffi.gc(out[0], free)


def call(function: Callable[..., int], *args: object) -> None:
    """Calls a guarded native function, whose last parameter is the ``pyg_error *``, and checks it."""
    err = ffi.new("pyg_error *")
    check(function(*args, err), err)

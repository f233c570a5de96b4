"""Exceptions of pyggml.

All derive from :class:`InferError`, and from the builtin exception that fits, if any. A message names the error, the
expected value and the way out, and includes the engine's own message if there is one.
"""


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
    """No tokenizer exists at the path."""


class InvalidParameterError(InferError, ValueError):
    """An argument is out of range or of the wrong kind."""


class UnknownParameterError(InvalidParameterError, TypeError):
    """No parameter has this name; the message suggests the closest one."""


class CopyError(InferError, TypeError):
    """The object owns memory of the engine and cannot be copied or pickled; the message names the alternative."""


class EmptyPromptError(InferError, ValueError):
    """The prompt has no tokens."""


class ContextOverflowError(InferError, ValueError):
    """The prompt or batch does not fit the context."""


class GrammarError(InferError, ValueError):
    """A grammar or JSON schema cannot be used."""


class DeviceError(InferError, RuntimeError):
    """The requested device does not exist or cannot be used."""


class SavedStateError(InferError, ValueError):
    """A saved prefix or session cannot be used: it is damaged, or another model, version or setting saved it."""


class SavedStateNotFoundError(SavedStateError, FileNotFoundError):
    """No saved prefix or session exists at the path."""


class _OutOfSpaceError(InferError):
    """Out of memory or disk space.

    Attributes:
        required_bytes: bytes that the operation needs, 0 if unknown.
        available_bytes: bytes that are free, 0 if unknown.
    """

    def __init__(self, message: str, required_bytes: int = 0, available_bytes: int = 0) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.available_bytes = available_bytes


class OutOfMemoryError(_OutOfSpaceError, MemoryError):
    """Out of memory; has ``required_bytes`` and ``available_bytes``, 0 if unknown."""


class DiskFullError(_OutOfSpaceError, OSError):
    """The file does not fit on its disk; no incomplete file is left under its name.

    Has ``required_bytes`` and ``available_bytes``, 0 if unknown.
    """


class DownloadError(InferError, ConnectionError):
    """A model could not be downloaded: the hub cannot be reached, refuses, or offline mode is on.

    Attributes:
        is_temporary: True if a retry may succeed; complete files are kept.
    """

    def __init__(self, message: str, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary


class MissingPackageError(InferError, ImportError):
    """An optional package is missing; the message says how to install it."""


class OutputParsingError(InferError, ValueError):
    """The output has no value of the requested form: it was cut off, or the type's own checks reject it."""


class QueueFullError(InferError, RuntimeError):
    """The queue is full: ``max_queue`` requests are waiting, and this one was not allowed to wait for a slot in it."""


class RequestTimeout(InferError, TimeoutError):
    """A request's ``timeout_s`` elapsed before it could be queued."""


class ClosedError(InferError):
    """The object was closed before or during the call."""


class EngineError(InferError):
    """The engine failed: an internal check, a computation, or use after a fork."""


class EngineLostError(EngineError):
    """The engine failed during an earlier request and has stopped. Close the model, and load it again."""


class HostLostError(EngineError):
    """A host that computes a part of the model is lost; the message names it. Load the model again when it is back."""

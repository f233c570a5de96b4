"""What went wrong with a request, without stacks and paths: the one table of statuses."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

import pyggml


class RequestError(Exception):
    """A request that cannot be served, with its own status; what a protocol or a guard refuses."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ClientGone(Exception):
    """The client has gone away; nobody reads an answer any more."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with one field of a body.

    Attributes:
        field: its name, with dots and indices where it is inside others.
        message: what is wrong.
    """

    field: str
    message: str


@dataclass(frozen=True)
class Failure:
    """A request that failed, for protocols to put in their words.

    Attributes:
        status: HTTP status.
        kind: "invalid", "authentication", "not_found", "too_large", "overloaded", "timeout", "unavailable" or
            "internal".
        message: what was wrong and the way out, for people.
        code: a word for programs, such as "context_length_exceeded"; "" if there is none.
        param: the field that is wrong; "" if none or several.
        problems: what is wrong with each field, for bodies that do not validate.
        retry_after_s: when to try again; None: no advice.
        request_id: names the request in logs and answers; "" as long as nobody has said whose failure it is.
    """

    status: int
    kind: str
    message: str
    code: str = ""
    param: str = ""
    problems: tuple[Problem, ...] = field(default=())
    retry_after_s: int | None = None
    request_id: str = ""

    def __post_init__(self) -> None:
        """Shortens messages that quote what a client sent, however much that was."""
        if len(self.message) > _MAX_MESSAGE:
            object.__setattr__(self, "message", f"{self.message[:_MAX_MESSAGE]}...")


_MAX_MESSAGE = 4000
_MAX_PROBLEMS = 20
_MAX_NAME = 200

# The first class that fits; subclasses stand before their bases.
_KINDS: tuple[tuple[type[BaseException], int, str, str], ...] = (
    (pyggml.ContextOverflowError, 400, "invalid", "context_length_exceeded"),
    (pyggml.QueueFullError, 429, "overloaded", "queue_full"),
    (pyggml.RequestTimeout, 504, "timeout", "timeout"),
    (pyggml.OutOfMemoryError, 503, "unavailable", "out_of_memory"),
    (pyggml.ClosedError, 503, "unavailable", "closed"),
    (pyggml.ModelNotFoundError, 404, "not_found", "model_not_found"),
    (pyggml.ModelLoadError, 503, "unavailable", "model_not_loaded"),
    (pyggml.DownloadError, 503, "unavailable", "model_not_loaded"),
    (pyggml.DiskFullError, 503, "unavailable", "disk_full"),
    (pyggml.DeviceError, 503, "unavailable", "device"),
    (pyggml.UnsupportedArchitectureError, 400, "invalid", "unsupported"),
    (pyggml.GrammarError, 400, "invalid", "grammar"),
    (pyggml.InvalidParameterError, 400, "invalid", ""),
    (pyggml.EmptyPromptError, 400, "invalid", "empty_prompt"),
    (pyggml.TokenizerError, 400, "invalid", "tokenizer"),
)


def invalid(message: str, param: str = "", code: str = "invalid_value") -> RequestError:
    """What is raised for a request that asks for what cannot be.

    Args:
        message: what is wrong, and the way out.
        param: the field that is wrong; "" if none or several.
        code: a word for programs.
    """
    return RequestError(Failure(400, "invalid", message, code, param))


#: Seconds after which a full queue may have room.
RETRY_AFTER_S = 1


#: What requests hear that come, or still run, when the server ends.
STOPPING = Failure(
    503, "unavailable", "the server is stopping: send the request again a little later", "stopping", retry_after_s=5
)

# Clients need not know which hosts there are; the log names the one that is lost.
_HOST_LOST = Failure(
    503,
    "unavailable",
    "a host that computes for the model is lost: send the request again a little later",
    "host_lost",
    retry_after_s=5,
)

_ENGINE_LOST = Failure(
    503,
    "unavailable",
    "the engine of the model has failed, and the server loads the model again if it can: try again a little later",
    "engine_lost",
    retry_after_s=5,
)

# What clients did not send, and so may quote where the server keeps its files.
_OF_THE_SERVER = ("not_found", "unavailable", "internal")

# A path, in quotes or not, up to its last part.
_QUOTED_PATH = re.compile(r"""(['"`])(?:~|\.{0,2})/(?:(?:(?!\1).)*/)?(?=(?:(?!\1).)+\1)""")
_PATH = re.compile(r"""(?<![\w/.:~'"`])(?:~|\.{0,2})/(?:[^\s'"`/:,;()]+/)*""")


def failure_of(error: BaseException) -> Failure:
    """The failure that an exception means."""
    if isinstance(error, RequestError):
        return error.failure
    if isinstance(error, ValidationError):
        return _invalid_body(error)
    if isinstance(error, pyggml.HostLostError):
        return _HOST_LOST
    if isinstance(error, pyggml.EngineLostError):
        return _ENGINE_LOST
    for cls, status, kind, code in _KINDS:
        if isinstance(error, cls):
            message = without_paths(str(error)) if kind in _OF_THE_SERVER else str(error)
            return Failure(status, kind, message, code, retry_after_s=RETRY_AFTER_S if status == 429 else None)
    return Failure(500, "internal", "the server failed; its log says how", "internal_error")


def without_folders(message: str, *paths: str | os.PathLike[str]) -> str:
    """A message that names these files without the folders that they are in."""
    for path in paths:
        for folder in (Path(path).absolute().parent, Path(path).parent):
            if folder.name:
                message = message.replace(f"{folder}{os.sep}", "")
    return message


def without_paths(message: str) -> str:
    """A message that names files without saying where they are."""
    return _PATH.sub("", _QUOTED_PATH.sub(r"\1", message))


def _invalid_body(error: ValidationError) -> Failure:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_PROBLEMS]
    messages: dict[str, list[str]] = {}
    for each in found:
        messages.setdefault(".".join(_name(part) for part in each["loc"] if not _is_type(part)), []).append(each["msg"])
    problems = tuple(Problem(name, ", or: ".join(dict.fromkeys(each))) for name, each in messages.items())
    message = "; ".join(f"{each.field}: {each.message}" if each.field else each.message for each in problems)
    return Failure(400, "invalid", message, param=problems[0].field if len(problems) == 1 else "", problems=problems)


# Of a field that takes several types, pydantic reports each with what is wrong for it.
_TYPE = re.compile(r"str|int|float|bool|none|[\w-]+\[.*\]")


def _is_type(part: int | str) -> bool:
    return isinstance(part, str) and _TYPE.fullmatch(part) is not None


def _name(part: int | str) -> str:
    """A part of a field's place: a name of ours, an index, or a key of the client's, however long."""
    return f"{part!s:.{_MAX_NAME}}"

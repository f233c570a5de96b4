"""Errors of requests, and their mapping to HTTP statuses. Messages carry no stack traces and no paths."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml.server.protocols.endpoint import Protocol


class RequestError(Exception):
    """An invalid or refused request, with its HTTP status."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Problem:
    """A validation error in one field of a body.

    Attributes:
        field: path of the field, such as "messages.0.role".
        message: the error.
    """

    field: str
    message: str


@dataclass(frozen=True)
class Failure:
    """A failed request, which each protocol formats in its own way.

    Attributes:
        status: HTTP status.
        kind: "invalid", "authentication", "not_found", "too_large", "overloaded", "timeout", "unavailable" or
            "internal".
        message: the error and how to fix it.
        code: machine-readable code, such as "context_length_exceeded"; "": none.
        param: the invalid field; "": none or several.
        problems: the validation errors of a body.
        retry_after_s: seconds after which to retry; None: unknown.
        request_id: ID of the request in logs and responses; "": not set yet.
    """

    status: int
    kind: str
    message: str
    code: str = ""
    param: str = ""
    problems: tuple[Problem, ...] = ()
    retry_after_s: int | None = None
    request_id: str = ""

    def __post_init__(self) -> None:
        """Shorten messages that quote long values of the client."""
        if len(self.message) > _MAX_MESSAGE:
            object.__setattr__(self, "message", f"{self.message[:_MAX_MESSAGE]}...")


_MAX_MESSAGE = 4000
_MAX_PROBLEMS = 20
_MAX_NAME = 200

# The first matching class counts: subclasses come before their bases.
_STATUSES: tuple[tuple[type[BaseException], int, str, str], ...] = (
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
    (pyggml.SavedStateNotFoundError, 404, "not_found", "saved_state"),
    (pyggml.SavedStateError, 400, "invalid", "saved_state"),
)


def invalid(message: str, param: str = "", code: str = "invalid_value") -> RequestError:
    """Return the error for an invalid request, with status 400; the arguments are fields of :class:`Failure`."""
    return RequestError(Failure(400, "invalid", message, code, param))


#: Seconds after which to retry when the queue is full.
RETRY_AFTER_S = 1


def unavailable(message: str, code: str, retry_after_s: int) -> Failure:
    """Return a failure with status 503 that may be over after some seconds."""
    return Failure(503, "unavailable", message, code, retry_after_s=retry_after_s)


#: The failure of requests that arrive, or still run, during shutdown.
STOPPING = unavailable("the server is stopping: send the request again a little later", "stopping", 5)

# The log names the lost host; clients need not know it.
_HOST_LOST = unavailable(
    "a host that computes for the model is lost: send the request again a little later", "host_lost", 5
)
_ENGINE_LOST = unavailable(
    "the engine of the model has failed, and the server loads the model again if it can: try again a little later",
    "engine_lost",
    5,
)

# Kinds of failures whose messages may contain paths of the server's files.
_SERVER_KINDS = ("not_found", "unavailable", "internal")

# A path up to its last component, quoted and unquoted.
_QUOTED_PATH = re.compile(r"""(['"`])(?:~|\.{0,2})/(?:(?:(?!\1).)*/)?(?=(?:(?!\1).)+\1)""")
_PATH = re.compile(r"""(?<![\w/.:~'"`])(?:~|\.{0,2})/(?:[^\s'"`/:,;()]+/)*""")


def failure_from(error: BaseException) -> Failure:
    """Return the failure for an exception."""
    if isinstance(error, RequestError):
        return error.failure
    if isinstance(error, ValidationError):
        return _invalid_body(error)
    if isinstance(error, pyggml.HostLostError):
        return _HOST_LOST
    if isinstance(error, pyggml.EngineLostError):
        return _ENGINE_LOST
    for cls, status, kind, code in _STATUSES:
        if isinstance(error, cls):
            message = strip_paths(str(error)) if kind in _SERVER_KINDS else str(error)
            return Failure(status, kind, message, code, retry_after_s=RETRY_AFTER_S if status == 429 else None)
    return Failure(500, "internal", "internal server error; see the server's log", "internal_error")


def error_response(protocol: Protocol, failure: Failure) -> Response:
    """Return a failure as a response in a protocol's format."""
    headers = {}
    if failure.retry_after_s is not None:
        headers["Retry-After"] = str(failure.retry_after_s)
    if failure.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if failure.code == STOPPING.code:
        headers["Connection"] = "close"
    return JSONResponse(protocol.error_body(failure), failure.status, headers=headers)


def strip_folders(message: str, *paths: str | os.PathLike[str]) -> str:
    """Remove the folders of these files from a message."""
    for path in paths:
        for folder in (Path(path).absolute().parent, Path(path).parent):
            if folder.name:
                message = message.replace(f"{folder}{os.sep}", "")
    return message


def strip_paths(message: str) -> str:
    """Reduce all paths in a message to their last components."""
    return _PATH.sub("", _QUOTED_PATH.sub(r"\1", message))


# Advice in messages of the library -> the same for clients of the server.
_TERMS = {
    "load with a larger n_ctx": "start the server with a larger n_ctx",
    "other arguments of the chat do": "other fields of the request do",
    "use generate()": "use /v1/completions",
    "continue the prefix with generate()": "leave out the suffix",
    "compare embeddings from embed()": "compare embeddings from /v1/embeddings",
    "use embed() or rerank()": "use /v1/embeddings or /v1/rerank",
    "embed() and rerank() do not support them. Use Context.encode() for their encoder's output": "they cannot embed or "
    "rerank",
}


# Advice that is only for programs in Python.
_IN_PYTHON = re.compile(r", in Python Path\([^)]*\)\.read_text\(\)|; load_adapter\([^)]*\) loads one")


def in_request_terms(message: str, own: Mapping[str, str]) -> str:
    """Replace the library's terms in a message by those of requests; ``own`` are those of the endpoint's body."""
    message = _IN_PYTHON.sub("", message)
    for term, replacement in {**own, **_TERMS}.items():
        start = r"(?<!\w)" if term[0].isalpha() else ""
        message = re.sub(start + re.escape(term), lambda _, text=replacement: text, message)  # type: ignore[misc]
    return message


def _invalid_body(error: ValidationError) -> Failure:
    messages: dict[tuple[str, ...], list[str]] = {}
    given: dict[tuple[str, ...], str] = {}
    for each in error.errors(include_url=False, include_context=False)[:_MAX_PROBLEMS]:
        parts = tuple(f"{part!s:.{_MAX_NAME}}" for part in each["loc"] if not _names_type(part))
        messages.setdefault(parts, []).append(each["msg"].removeprefix("Value error, "))
        is_of_wrong_type = each["type"].endswith("_type") and given.get(parts) != ""
        given[parts] = f", not {_json_type(each['input'])}" if is_of_wrong_type else ""
    problems = tuple(
        Problem(".".join(parts), ", or: ".join(dict.fromkeys(each)) + given[parts])
        for parts, each in messages.items()
        if not _is_other_form(parts, messages)
    )
    message = "; ".join(f"{each.field}: {each.message}" if each.field else each.message for each in problems)
    return Failure(400, "invalid", message, param=problems[0].field if len(problems) == 1 else "", problems=problems)


def _is_other_form(place: tuple[str, ...], places: Iterable[tuple[str, ...]]) -> bool:
    """Return True for a field with several forms if the error is in a part of the form that was sent."""
    return bool(place) and any(len(each) > len(place) and each[: len(place)] == place for each in places)


# For a field with several types, pydantic reports an error per type, with the type in the location.
_TYPE = re.compile(r"str|int|float|bool|none|[\w-]*\[.*\]")


def _names_type(part: int | str) -> bool:
    return isinstance(part, str) and (_TYPE.fullmatch(part) is not None or part in _body_names())


@functools.cache
def _body_names() -> frozenset[str]:
    """Return the names of all types of bodies and of their parts."""
    found, left = set(), [BaseModel]
    while left:
        subclasses = left.pop().__subclasses__()
        left += subclasses
        found |= {each.__name__ for each in subclasses if each.__module__.startswith("pyggml.server.")}
    return frozenset(found)


def _json_type(value: object) -> str:
    """Return the type of a JSON value, as part of a sentence."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a boolean"
    names = {str: "a string", int: "a number", float: "a fraction", list: "an array", dict: "an object"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "something else")

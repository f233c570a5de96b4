"""Failures as OpenAI's API words them."""

from __future__ import annotations

import re
from typing import Any

from pyggml.server.http import errors
from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.protocols.endpoint import Event

_PLACE = re.compile(r"[a-z_]+\[\d+\](\[\d+\]|\.\w+)*")

# OpenAI's words for codes that have others here.
_CODES = {"queue_full": "rate_limit_exceeded"}


def error_body(failure: Failure) -> dict[str, Any]:
    """The JSON of a failure."""
    return {
        "error": {
            "message": failure.message,
            "type": _type(failure.status),
            "param": failure.param or _place(failure.message),
            "code": _CODES.get(failure.code, failure.code) or None,
        }
    }


def error_event(failure: Failure) -> Event:
    """The last event of a stream that fails: one without a name, in which OpenAI's client finds the error."""
    return Event.of(error_body(failure))


def unsupported(param: str, message: str) -> RequestError:
    """What is raised for a field that would change the answer, and cannot be kept."""
    return errors.invalid(f"{param}: {message}", param, "unsupported_parameter")


def invalid(param: str, message: str) -> RequestError:
    """What is raised for a field that contradicts another."""
    return errors.invalid(f"{param}: {message}", param)


def _place(message: str) -> str | None:
    """The place that a message begins with, such as ``messages[2].content``."""
    found = _PLACE.match(message)
    return found[0] if found else None


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"

"""Errors in OpenAI's format."""

from __future__ import annotations

import re
from typing import Any

from pyggml.server.http import errors
from pyggml.server.http.errors import Failure, RequestError

# A field at the start of a message, such as "messages[2].content".
_FIELD = re.compile(r"[a-z_]+\[\d+\](\[\d+\]|\.\w+)*")

# OpenAI's codes, where they differ.
_CODES = {"queue_full": "rate_limit_exceeded"}


def error_body(failure: Failure) -> dict[str, Any]:
    """Return the JSON of a failure."""
    return {
        "error": {
            "message": failure.message,
            "type": _type(failure.status),
            "param": failure.param or (field[0] if (field := _FIELD.match(failure.message)) else None),
            "code": _CODES.get(failure.code, failure.code) or None,
        }
    }


def unsupported(param: str, message: str) -> RequestError:
    """Return the error for a field that would change the response and is not supported."""
    return errors.invalid(f"{param}: {message}", param, "unsupported_parameter")


def invalid(param: str, message: str) -> RequestError:
    """Return the error for a field that contradicts another one."""
    return errors.invalid(f"{param}: {message}", param)


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"

"""What the heads of answers say whatever was asked: which request it was, and why it was refused."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from pyggml.server.http.errors import STOPPING, Failure
from pyggml.server.protocols.endpoint import Protocol

_REQUEST_ID = "x-request-id"
# Where Anthropic's clients look for it.
_ANTHROPICS_REQUEST_ID = "request-id"

# What a log or a header may repeat: visible, and no longer than anybody's ids are.
_PLAIN_ID = re.compile(r"[!-~]{1,128}")


def request_id(headers: Headers) -> str:
    """What names a request: the client's own id if it is short and plain, else a new one."""
    given = headers.get(_REQUEST_ID, "")
    return given if _PLAIN_ID.fullmatch(given) else uuid.uuid4().hex


def with_request_id(response: Response, name: str) -> Response:
    """An answer that says which request it is for."""
    for header in (_REQUEST_ID, _ANTHROPICS_REQUEST_ID):
        response.headers.setdefault(header, name)
    return response


def refusal(protocol: Protocol, failure: Failure) -> Response:
    """A failure as an answer, in the words of a protocol."""
    headers = {}
    if failure.retry_after_s is not None:
        headers["Retry-After"] = str(failure.retry_after_s)
    if failure.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if failure.code == STOPPING.code:
        headers["Connection"] = "close"
    return JSONResponse(protocol.error_body(failure), failure.status, headers=headers)

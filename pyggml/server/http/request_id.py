"""Request IDs, in the headers of requests and responses."""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers
from starlette.responses import Response

_REQUEST_ID = "x-request-id"
# The header that Anthropic's clients read.
_ANTHROPIC_REQUEST_ID = "request-id"

# IDs that a log or a header may repeat: visible characters, limited length.
_PLAIN_ID = re.compile(r"[!-~]{1,128}")


def request_id(headers: Headers) -> str:
    """Return the client's request ID if it is short and plain, else a new one."""
    client_id = headers.get(_REQUEST_ID, "")
    return client_id if _PLAIN_ID.fullmatch(client_id) else uuid.uuid4().hex


def with_request_id(response: Response, name: str) -> Response:
    """Add the request ID to a response's headers."""
    for header in (_REQUEST_ID, _ANTHROPIC_REQUEST_ID):
        response.headers.setdefault(header, name)
    return response

"""Row processor for OpenAI's batch format: ``custom_id``, ``method``, ``url`` and ``body``.

Each body is posted to the server's ASGI application in this process, without a network, so that endpoints, fields and
errors are the server's own. https://platform.openai.com/docs/api-reference/batch describes the format.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.batch.row_processor import engine_responds
from pyggml.batch.rows import InvalidRow, Row
from pyggml.server import ForwardedRequest, create_app, run_forwarded

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from typing_extensions import Self

Json = dict[str, Any]

#: Endpoints that rows may name.
URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/responses", "/v1/score")
#: Statuses with which the server rejects all requests, not this one.
_FATAL = (429, 503)
# No request refers to a response of another row.
_OPTIONS: dict[str, Any] = {
    "request_timeout": None,
    "max_body_bytes": 2**30,
    "max_stored_bytes": 0,
    "log_level": "error",
    "page": False,
}


class RequestRowProcessor:
    """Row processor for requests in OpenAI's format."""

    def __init__(self, app: Starlette, llm: pyggml.LLM) -> None:
        """Wrap the server's application, whose lifespan runs, and its model."""
        self._app, self._llm = app, llm

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, llm: pyggml.LLM) -> AsyncIterator[Self]:
        """Start the server's application with an open model, which answers under any model name.

        Raises:
            MissingPackageError: a package of the server is missing.
        """
        app = create_app(llm, **_OPTIONS)
        async with app.router.lifespan_context(app):
            yield cls(app, llm)

    async def process(self, index: int, row: Row | InvalidRow) -> Json:
        """Return the answer to a row; see :meth:`RowProcessor.process`."""
        custom_id = None if isinstance(row, InvalidRow) else row.get("custom_id")
        found: Json = {"id": f"batch_req_{index}", "custom_id": custom_id, "response": None, "error": None}
        if problem := _envelope_error(row):
            return found | {"error": {"code": "invalid_request", "message": problem}}
        assert isinstance(row, dict)
        # The job has one model, whatever model the bodies name.
        body = json.dumps({**row["body"], "model": "default"}).encode()
        status, headers, content = await self._post(row["url"], body)
        is_alive = True
        if status == 500 and (is_alive := await engine_responds(self._llm)):  # perhaps it lacked a file descriptor
            status, headers, content = await self._post(row["url"], body)
            is_alive = status != 500 or await engine_responds(self._llm)
        payload = json.loads(content)
        if status in _FATAL or not is_alive:
            message = payload.get("error", {}).get("message", "the server failed")
            raise pyggml.EngineError(f"row {index} could not be computed: {message}")
        response = {"status_code": status, "request_id": headers.get("x-request-id", ""), "body": payload}
        return found | {"response": response}

    async def _post(self, url: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Post a body to the application, and return the status, headers and body of the response."""
        request = ForwardedRequest("default", _scope(url, len(body)), body)
        async with contextlib.aclosing(run_forwarded(self._app, request)) as batches:
            start, *chunks = [message async for messages in batches for message in messages]
        headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return start["status"], headers, b"".join(chunk.get("body", b"") for chunk in chunks)


def _envelope_error(row: Row | InvalidRow) -> str | None:
    """Return the error in a row's fields other than the body's own; None: no error."""
    if isinstance(row, InvalidRow):
        return str(row)
    if not isinstance(row.get("custom_id"), str):
        return "custom_id must be a string"
    if row.get("method", "POST") != "POST":
        return f"method must be POST, not {row['method']!r:.40}"
    if row.get("url") not in URLS:
        return f"url must be one of {', '.join(URLS)}, not {row.get('url')!r:.80}"
    if not isinstance(row.get("body"), dict):
        return "body must be an object"
    return "batch rows cannot stream: leave out stream" if row["body"].get("stream") else None


def _scope(url: str, n_bytes: int) -> Json:
    headers = {"host": "localhost", "content-type": "application/json", "content-length": str(n_bytes)}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": url,
        "raw_path": url.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }

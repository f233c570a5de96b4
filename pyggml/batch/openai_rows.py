"""Answers rows in the format of OpenAI's batch API: ``custom_id``, ``method``, ``url`` and ``body``.

Each body goes to the server's application in this process, without a network. So every endpoint, field and refusal is
the server's own. https://platform.openai.com/docs/api-reference/batch describes the format.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pyggml
from pyggml.batch.row_processor import works
from pyggml.batch.rows import Broken, Row
from pyggml.server import create_app

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from typing_extensions import Self

Json = dict[str, Any]

#: Endpoints that rows may name.
URLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
#: What the server says when no request can be answered now.
_FATAL = (429, 503)
_MAX_BODY_BYTES = 2**30


class RequestAnswering:
    """Answers requests in OpenAI's format."""

    def __init__(self, app: Starlette, llm: pyggml.LLM) -> None:
        """Takes the server's application, whose lifespan runs, and its model."""
        self._app, self._llm = app, llm

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, llm: pyggml.LLM) -> AsyncIterator[Self]:
        """What answers with an open model, whatever name a body has for it.

        Raises:
            MissingPackageError: a package of the server is missing.
        """
        app = create_app(llm, request_timeout=None, max_body_bytes=_MAX_BODY_BYTES, log_level="error", page=False)
        async with app.router.lifespan_context(app):
            yield cls(app, llm)

    async def answer(self, index: int, row: Row | Broken) -> Json:
        """As :meth:`Answering.answer`."""
        custom_id = None if isinstance(row, Broken) else row.get("custom_id")
        found: Json = {"id": f"batch_req_{index}", "custom_id": custom_id, "response": None, "error": None}
        if problem := _problem(row):
            return found | {"error": {"code": "invalid_request", "message": problem}}
        assert isinstance(row, dict)
        # The job has one model, and bodies have the names of those that they were written for.
        body = json.dumps({**row["body"], "model": "default"}).encode()
        status, headers, content = await self._ask(row["url"], body)
        is_alive = True
        if status == 500 and (is_alive := await works(self._llm)):  # it may have lacked a descriptor just then
            status, headers, content = await self._ask(row["url"], body)
            is_alive = status != 500 or await works(self._llm)
        answered = json.loads(content)
        if status in _FATAL or not is_alive:
            message = answered.get("error", {}).get("message", "the server failed")
            raise pyggml.EngineError(f"row {index} could not be computed: {message}")
        response = {"status_code": status, "request_id": headers.get("x-request-id", ""), "body": answered}
        return found | {"response": response}

    async def _ask(self, url: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body with which the application answers a POST."""
        head: Json = {}
        parts: list[bytes] = []
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Json:
            if unread:
                return unread.pop()
            never: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
            return await never  # the client never leaves

        async def send(message: Any) -> None:
            head.update(message if message["type"] == "http.response.start" else {})
            parts.append(message.get("body", b""))

        await self._app(_scope(url, len(body)), receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in head["headers"]}
        return head["status"], headers, b"".join(parts)


def _problem(row: Row | Broken) -> str | None:
    """What is wrong with a row's envelope; None: nothing."""
    if isinstance(row, Broken):
        return str(row)
    if not isinstance(row.get("custom_id"), str):
        return "custom_id must be a text"
    if row.get("method", "POST") != "POST":
        return f"method must be POST, not {row['method']!r:.40}"
    if row.get("url") not in URLS:
        return f"url must be one of {', '.join(URLS)}, not {row.get('url')!r:.80}"
    if not isinstance(row.get("body"), dict):
        return "body must be an object"
    return "a batch has no streams: leave out stream" if row["body"].get("stream") else None


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

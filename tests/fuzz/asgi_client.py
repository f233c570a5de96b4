"""Asks an ASGI application as a server would, one that may lose its client at any moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Scope


@dataclass
class Answer:
    """An application's response.

    Attributes:
        status: HTTP status; 0: it sent none, because its client had left.
        headers: names in lower case.
        body: all pieces together.
        is_whole: whether it said that this is all.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False


async def ask(app: ASGIApp, request: dict[str, Any]) -> Answer:
    """Sends a request, and reads its answer.

    Args:
        app: the application.
        request: "method", "path", "query"; "headers", pairs of names and values; "body"; "pieces",
        in how many of them it
            arrives; "leaves_after": the client goes when so many messages of the answer have come, 0: before the first,
            None: it stays. Texts stand for bytes (latin-1).
    """
    answer = Answer()
    pieces = _pieces(request.get("body", "").encode("latin-1"), request.get("pieces", 1))
    leaves_after = request.get("leaves_after")
    has_left = asyncio.Event()
    if leaves_after == 0:
        has_left.set()

    async def receive() -> Message:
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
        await has_left.wait()
        return {"type": "http.disconnect"}

    n_sent = 0

    async def send(message: Message) -> None:
        nonlocal n_sent
        n_sent += 1
        if message["type"] == "http.response.start":
            assert not answer.status, "an answer begins twice"
            answer.status = message["status"]
            answer.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        else:
            assert answer.status, "a body before its head"
            assert not answer.is_whole, "a body after its end"
            answer.body += message.get("body", b"")
            answer.is_whole = not message.get("more_body", False)
        if leaves_after is not None and n_sent >= leaves_after:
            has_left.set()
        await asyncio.sleep(0)

    await app(_scope(request), receive, send)
    has_left.set()
    return answer


def _pieces(body: bytes, n: int) -> list[bytes]:
    size = max(-(-len(body) // max(n, 1)), 1)
    return [body[at : at + size] for at in range(0, len(body), size)] or [b""]


def _scope(request: dict[str, Any]) -> Scope:
    path = request["path"]
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.get("headers", [])]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.get("method", "POST"),
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": request.get("query", "").encode("latin-1"),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 8080),
    }

"""Streaming responses over real connections."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message
from support.servers.servers import serving

import pyggml.server
from pyggml.server.http.sse import PING, Event, format_event
from pyggml.server.http.streaming import StreamingBody

Make = Callable[[], AsyncGenerator[bytes, None]]


def app(make: Make, ping_s: float = 0.0) -> Starlette:
    async def answer(request: Request) -> Response:  # noqa: ARG001
        return StreamingBody(make(), "text/event-stream", PING if ping_s else b"", ping_s)

    return Starlette(routes=[Route("/", answer)])


def test_pieces_come_in_order_and_silence_is_broken() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for number in range(3):
            yield format_event(Event(str(number)))
        await asyncio.sleep(0.4)
        yield format_event(Event("last", "named"))

    with serving(app(pieces, ping_s=0.1)) as url:
        answer = httpx.get(url)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    n_pings = answer.content.count(PING)
    assert 1 <= n_pings <= 4
    assert answer.content == b"data: 0\n\ndata: 1\n\ndata: 2\n\n" + n_pings * PING + b"event: named\ndata: last\n\n"


def test_a_stream_that_is_never_silent_gets_no_comments() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(30):
            await asyncio.sleep(0.01)
            yield b"x"

    with serving(app(pieces, ping_s=5.0)) as url:
        assert httpx.get(url).content == b"x" * 30


def test_a_client_that_leaves_closes_the_generator() -> None:
    closed = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)
        finally:
            closed.append(time.monotonic())

    with serving(app(pieces, ping_s=0.05)) as url:
        with httpx.stream("GET", url) as answer:
            assert next(answer.iter_raw()).startswith(b"x")
        left = time.monotonic()
        while not closed:
            assert time.monotonic() < left + 20
            time.sleep(0.01)


def test_a_server_that_raises_for_a_client_that_left_closes_the_generator() -> None:
    closed = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b"x"
        finally:
            closed.append(True)

    async def receive() -> Message:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise OSError

    asyncio.run(StreamingBody(pieces(), "text/plain")({"type": "http"}, receive, send))
    assert closed


def test_a_reader_that_stops_reading_holds_back_the_generator_alone() -> None:
    made = 0

    async def pieces() -> AsyncGenerator[bytes, None]:
        nonlocal made
        for _ in range(1000):
            yield bytes(100_000)
            made += 1
            await asyncio.sleep(0)

    with serving(app(pieces)) as url, httpx.stream("GET", url) as slow:
        before = -1
        while made != before:  # until what is kept on the way is full
            before = made
            time.sleep(0.5)
        assert 0 < made < 1000
        assert sum(map(len, slow.iter_raw())) == 1000 * 100_000


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_raises_once_the_client_has_left(stream: bool) -> None:
    """As the specification of ASGI wants it since version 2.4; uvicorn says nothing."""

    async def main() -> None:
        app = pyggml.server.create_app()
        worker = app.state.worker
        body = {"prompt": "Once", "model": "default", "max_tokens": 500, "ignore_eos": True, "stream": stream}
        n_sent = 0

        async def receive() -> dict[str, Any]:
            if n_received:
                await asyncio.Event().wait()
            n_received.append(1)
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(message: Any) -> None:  # noqa: ARG001
            nonlocal n_sent
            n_sent += 1
            if n_sent > 1:
                raise BrokenPipeError

        n_received: list[int] = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/completions",
            "raw_path": b"/v1/completions",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
            "server": ("127.0.0.1", 80),
            "client": None,
        }
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
            assert n_sent == 2
            assert len(worker.running_requests) == 0
            stats = worker.models.loaded[0].llm.stats
            while stats().n_running:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 60))

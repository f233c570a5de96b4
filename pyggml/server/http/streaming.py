"""Streaming responses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pyggml.server.http.disconnects import ClientDisconnectedError, cancel_on_disconnect
from pyggml.server.http.errors import Failure
from pyggml.server.http.sse import EVENTS, LINES, PING, Event, format_event, format_line

if TYPE_CHECKING:
    from pyggml.server.http.request import ServerRequest

T = TypeVar("T")

# Proxies must forward each chunk at once.
_NO_BUFFERING = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def stream_events(request: ServerRequest, events: AsyncIterator[Event]) -> Response:
    """Return a response that streams server-sent events. If an error occurs, the last event reports it."""
    protocol = request.protocol
    ping = PING if protocol.ping is None else format_event(protocol.ping)
    body = _encode(request, events, format_event, protocol.last_event)
    return StreamingBody(body, EVENTS, ping, request.worker.settings.ping_s)


def stream_lines(request: ServerRequest, values: AsyncIterator[Any]) -> Response:
    """Return a response that streams JSON lines. If an error occurs, the last line reports it."""
    return StreamingBody(_encode(request, values, format_line, request.protocol.error_body), LINES)


async def _encode(
    request: ServerRequest,
    values: AsyncIterator[T],
    encode: Callable[[T], bytes],
    error_value: Callable[[Failure], T],
) -> AsyncGenerator[bytes, None]:
    request.outcome.is_streaming = True
    try:
        async for value in values:
            yield encode(value)
    except Exception as error:
        yield encode(error_value(request.record_failure(error)))
    request.outcome.is_streaming = False  # not reached if the client disconnects


class StreamingBody(Response):
    """A response that sends each chunk of a generator as it comes. A chunk costs one send, and no timer."""

    def __init__(
        self, chunks: AsyncGenerator[bytes, None], media_type: str, ping: bytes = b"", ping_s: float = 0.0
    ) -> None:
        """Set up the response. ``chunks`` is closed at its end; ``ping``, if any, follows ``ping_s`` of silence."""
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(_NO_BUFFERING)
        self._chunks = chunks
        self._ping = ping
        self._ping_s = ping_s
        self._sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send all chunks."""
        # Servers may raise OSError once the client has disconnected.
        with contextlib.suppress(ClientDisconnectedError, OSError):
            await cancel_on_disconnect(self._send_all(send), receive)

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._chunks), self._pinging(send):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for chunk in self._chunks:
                await self._send(send, chunk)
        await send(_body_message(b"", more=False))

    @contextlib.asynccontextmanager
    async def _pinging(self, send: Send) -> AsyncGenerator[None, None]:
        pinging = asyncio.ensure_future(self._ping_loop(send)) if self._ping else None
        try:
            yield
        finally:
            if pinging is not None:
                pinging.cancel()
                await asyncio.gather(pinging, return_exceptions=True)

    async def _ping_loop(self, send: Send) -> None:
        self._sent_s = time.monotonic()
        while True:
            remaining_s = self._sent_s + self._ping_s - time.monotonic()
            if remaining_s > 0:
                await asyncio.sleep(remaining_s)
            else:
                await self._send(send, self._ping)

    async def _send(self, send: Send, chunk: bytes) -> None:
        await send(_body_message(chunk))
        self._sent_s = time.monotonic()


def _body_message(chunk: bytes, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": chunk, "more_body": more}

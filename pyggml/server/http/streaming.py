"""Answers that are sent piece by piece, and work that nobody waits for any more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pyggml.server.http.errors import ClientGone
from pyggml.server.protocols.endpoint import Event, as_json

T = TypeVar("T")

#: A comment, which clients ignore and which keeps a silent stream of events open in proxies.
PING = b": ping\n\n"

# A proxy must pass each piece on at once.
_FOR_PROXIES = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Pieces(Response):
    """Sends what a generator yields, until it ends or the client leaves. A piece costs one send, and no timer."""

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], media_type: str, ping: bytes = b"", ping_s: float = 0.0
    ) -> None:
        """Sends nothing yet.

        Args:
            pieces: makes the pieces; closed in the end, however that comes.
            media_type: the content type.
            ping: what breaks the silence; b"": nothing.
            ping_s: after how many seconds.
        """
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(_FOR_PROXIES)
        self._pieces = pieces
        self._ping = ping
        self._ping_s = ping_s
        self._sent_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Sends all pieces."""
        with contextlib.suppress(ClientGone, OSError):  # which servers may raise where the client has left
            await watched(self._send_all(send), receive)

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._pieces), self._pinging(send):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for piece in self._pieces:
                await self._send(send, piece)
        await send(_body(b"", more=False))

    @contextlib.asynccontextmanager
    async def _pinging(self, send: Send) -> AsyncGenerator[None, None]:
        """Breaks the silence in the meantime."""
        pinging = asyncio.ensure_future(self._break_silence(send)) if self._ping else None
        try:
            yield
        finally:
            if pinging is not None:
                pinging.cancel()
                await asyncio.gather(pinging, return_exceptions=True)

    async def _break_silence(self, send: Send) -> None:
        self._sent_s = time.monotonic()
        while True:
            left = self._sent_s + self._ping_s - time.monotonic()
            if left > 0:
                await asyncio.sleep(left)
            else:
                await self._send(send, self._ping)

    async def _send(self, send: Send, piece: bytes) -> None:
        await send(_body(piece))
        self._sent_s = time.monotonic()


async def watched(work: Awaitable[T], receive: Receive) -> T:
    """Awaits something for as long as the client is there.

    Args:
        work: what to wait for.
        receive: the request's; its body has been read.

    Raises:
        ClientGone: the client left; the work is cancelled.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_client_leaves(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        del working  # an error's traceback has this frame, which would keep the error until garbage is collected


def framed(event: Event) -> bytes:
    """An event as it is sent."""
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {event.data}\n\n".encode()


def lined(value: Any) -> bytes:
    """A JSON value as it is sent in a line of its own."""
    return f"{as_json(value)}\n".encode()


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(piece: bytes, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": piece, "more_body": more}

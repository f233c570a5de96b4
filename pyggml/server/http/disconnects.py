"""Client disconnects: cancel the work for a request when its client closes the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientDisconnectedError(Exception):
    """The client has disconnected, so no response can be sent."""


async def cancel_on_disconnect(work: Awaitable[T], receive: Receive) -> T:
    """Await ``work``; cancel it if the client of ``receive``, whose request has been read, disconnects first.

    Raises:
        ClientDisconnectedError: the client disconnected; the work is cancelled.
    """
    working, disconnecting = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, disconnecting), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnectedError
        return working.result()
    finally:
        disconnecting.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        del working  # an error's traceback has this frame, and would keep the error alive until garbage collection


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

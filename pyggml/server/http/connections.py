"""Connections that wait for their clients: how long they may, and who goes first when there are too many.

uvicorn gives a client all the time in the world to send a request's head, or to read an answer. What is added here
uses attributes of its protocols that it does not document: pyproject.toml says in which versions they are there.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Who is refused a body that is too large may send this much longer, so that it has a chance to read why.
_LINGER_S = 2.0
# Making room looks at every connection, so it makes room for several.
_SHARE_TO_CLOSE = 0.05

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True)
class Limits:
    """What connections may do.

    Attributes:
        max_connections: how many there may be.
        max_head_bytes: size of the largest head of a request.
        head_s: seconds within which a request's head must have come.
        keep_alive_s: seconds that a connection may wait for its next request.
        send_s: seconds after which a client that reads nothing is cut off.
    """

    max_connections: int
    max_head_bytes: int
    head_s: float
    keep_alive_s: float
    send_s: float


class Connection(asyncio.Protocol):
    """What is added to uvicorn's protocols. Costs nothing per request: :func:`sweep` looks now and then."""

    limits: Limits

    if TYPE_CHECKING:  # of uvicorn's
        transport: asyncio.Transport
        loop: asyncio.AbstractEventLoop
        connections: set[Any]
        flow: Any
        cycle: Any

    _since = 0.0
    _last_cycle: object = None
    _unsent = 0
    _unsent_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins a connection, in place of others if there are too many."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self.limits.max_connections and not self._make_room():
            self.transport.write(_FULL)
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress; a part of a head may have come."""
        return self.cycle is None or self.cycle.response_complete

    def check(self, now: float) -> None:
        """Closes the connection if its client takes too long."""
        if self._has_stalled(now):
            self.transport.abort()
        elif not self.is_idle:
            self._last_cycle = None
        elif self.cycle is not None and self._last_cycle is not self.cycle:
            self._last_cycle, self._since = self.cycle, now
        elif now - self._since > self._patience_s:
            self.transport.close()

    @property
    def _patience_s(self) -> float:
        if self.cycle is None:
            return self.limits.head_s
        return _LINGER_S if self.cycle.more_body else self.limits.keep_alive_s + self.limits.head_s

    def _has_stalled(self, now: float) -> bool:
        """Whether the client has read nothing for too long of what waits for it."""
        unsent = self.transport.get_write_buffer_size()
        # While more is written, that grows although the client reads.
        if not unsent or not (self.flow.write_paused or self.is_idle):
            self._unsent = 0
        elif not self._unsent or unsent < self._unsent:
            self._unsent, self._unsent_since = unsent, now
        else:
            return now - self._unsent_since > self.limits.send_s
        return False

    def _make_room(self) -> bool:
        """Closes the connections that have waited longest for their clients. Returns whether there were any."""
        waiting = [each for each in self.connections if each is not self and each._waits_for_client]
        waiting.sort(key=lambda each: each._since)
        for each in waiting[: 1 + int(len(waiting) * _SHARE_TO_CLOSE)]:
            self.connections.discard(each)
            each.transport.abort()
        return bool(waiting)

    @property
    def _waits_for_client(self) -> bool:
        return self.is_idle or (self.cycle.more_body and not self.cycle.response_started)


class _H11Connection(Connection, H11Protocol):
    """Parsed in Python, which bounds heads itself."""

    def send_400_response(self, msg: str) -> None:
        """Says that a request is no HTTP. One that is in progress has then lost its client, as nothing can follow."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        self.transport.close()
        if not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


@cache
def _httptools() -> type[Connection]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class HttpToolsConnection(Connection, HttpToolsProtocol):
        """Parsed in C, which takes heads of any size."""

        _head_bytes = 0

        def data_received(self, data: bytes) -> None:
            """Refuses a head that is too large."""
            before = self.cycle
            if self.is_idle:
                self._head_bytes += len(data)
                if self._head_bytes > self.limits.max_head_bytes and b"\r\n\r\n" not in data:
                    self.send_400_response("The request's head is too large.")
                    return
            super().data_received(data)
            if self.cycle is not before:
                self._head_bytes = 0

    return HttpToolsConnection


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of uvicorn, by httptools where it is installed, with limits."""
    base = _httptools() if importlib.util.find_spec("httptools") else _H11Connection
    return type("LimitedConnection", (base,), {"limits": limits})


def sweep(connections: Collection[Any], now: float) -> None:
    """Closes the connections whose clients take too long.

    Args:
        connections: all connections of the server.
        now: the loop's time.
    """
    for connection in list(connections):
        connection.check(now)


def close_all(connections: Collection[Any]) -> None:
    """Closes all connections, in the middle of their answers too."""
    for connection in list(connections):
        connection.transport.abort()

"""Connection limits: timeouts for slow clients, and eviction of the longest-waiting connections.

uvicorn has no timeout for sending a request's headers or for reading a response. The limits here use undocumented
attributes of its protocols; pyproject.toml pins the versions that have them.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pyggml.server.http.strict_http import StrictConnection
from pyggml.server.settings.options import Settings

# Seconds for which a client whose body was refused may go on sending, so that it can read the response.
_LINGER_S = 2.0
# Eviction looks at every connection, so it closes several at once.
_EVICTED_SHARE = 0.05

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Mixin for uvicorn's protocols. Costs nothing per request: :func:`sweep` checks connections periodically."""

    settings: Settings
    max_connections: int

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
        """Accept a connection; at the limit, evict others."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self.max_connections and not self._evict_waiting():
            self.transport.write(_FULL)
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress; a part of its headers may have arrived."""
        return self.cycle is None or self.cycle.response_complete

    def check(self, now: float) -> None:
        """Close the connection if its client takes too long."""
        if self._has_stalled(now):
            self.transport.abort()
        elif not self.is_idle:
            self._last_cycle = None
        elif self.cycle is not None and self._last_cycle is not self.cycle:
            self._last_cycle, self._since = self.cycle, now
        elif now - self._since > self._idle_timeout_s:
            self.transport.close()

    @property
    def _idle_timeout_s(self) -> float:
        if self.cycle is None:
            return self.settings.header_timeout
        return _LINGER_S if self.cycle.more_body else self.settings.keep_alive_timeout + self.settings.header_timeout

    def _has_stalled(self, now: float) -> bool:
        """Return True if the client has not read from the write buffer for too long."""
        unsent = self.transport.get_write_buffer_size()
        # While the server writes, the buffer may grow although the client reads.
        if not unsent or not (self.flow.write_paused or self.is_idle):
            self._unsent = 0
        elif not self._unsent or unsent < self._unsent:
            self._unsent, self._unsent_since = unsent, now
        else:
            return now - self._unsent_since > self.settings.send_timeout
        return False

    def _evict_waiting(self) -> bool:
        """Close the connections that have waited longest for their clients. Return False if there are none."""
        waiting = [each for each in self.connections if each is not self and each._waits_for_client]
        waiting.sort(key=lambda each: each._since)
        for each in waiting[: 1 + int(len(waiting) * _EVICTED_SHARE)]:
            self.connections.discard(each)
            each.transport.abort()
        return bool(waiting)

    @property
    def _waits_for_client(self) -> bool:
        return self.is_idle or (self.cycle.more_body and not self.cycle.response_started)


class _H11Connection(Connection, H11Protocol):
    """Connection with h11, a parser in Python, which limits headers itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection(self.settings.max_header_bytes)

    def send_400_response(self, msg: str) -> None:
        """Respond to malformed HTTP. A request in progress sees its client disconnect."""
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
        """Connection with httptools, a parser in C, which does not limit headers."""

        _header_bytes = 0

        def data_received(self, data: bytes) -> None:
            """Refuse headers that are too large."""
            before = self.cycle
            if self.is_idle:
                self._header_bytes += len(data)
                if self._header_bytes > self.settings.max_header_bytes and b"\r\n\r\n" not in data:
                    self.send_400_response("The request's headers are too large.")
                    return
            super().data_received(data)
            if self.cycle is not before:
                self._header_bytes = 0

    return HttpToolsConnection


def connection_class(settings: Settings, max_connections: int) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol class with limits, using httptools if it is installed."""
    base = _httptools() if importlib.util.find_spec("httptools") else _H11Connection
    return type("LimitedConnection", (base,), {"settings": settings, "max_connections": max_connections})


def sweep(connections: Collection[Any], now: float) -> None:
    """Close the connections whose clients take too long; ``now`` is the event loop's time."""
    for connection in list(connections):
        connection.check(now)


def close_all(connections: Collection[Any]) -> None:
    """Close all connections, also in the middle of responses."""
    for connection in list(connections):
        connection.transport.abort()

"""Server-sent events (SSE) and JSON lines: the formats of streaming responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Content types of streaming responses: server-sent events, and one JSON value per line.
EVENTS, LINES = "text/event-stream", "application/x-ndjson"

#: A comment. Clients ignore it; it keeps a silent event stream open in proxies.
PING = b": ping\n\n"

#: Encodes a value as one line of JSON. JSON has no infinity and no NaN, so both are errors.
as_json: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Event:
    """A server-sent event.

    Attributes:
        data: its data in one line.
        name: its type; "": none.
    """

    data: str
    name: str = ""

    @classmethod
    def of(cls, value: Any, name: str = "") -> Event:
        """Return an event whose data is a JSON value."""
        return cls(as_json(value), name)


def format_event(event: Event) -> bytes:
    """Return the bytes of a server-sent event."""
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {event.data}\n\n".encode()


def format_line(value: Any) -> bytes:
    """Return the bytes of a JSON line."""
    return f"{as_json(value)}\n".encode()

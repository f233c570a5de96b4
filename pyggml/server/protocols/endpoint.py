"""How a protocol declares its endpoints, from which the routes and the OpenAPI document are made."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel
from starlette.responses import Response

if TYPE_CHECKING:
    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request import Call

#: Answers a call. The second argument is the validated body; None if the endpoint takes none.
Handler = Callable[["Call", Any], Awaitable[Response]]

#: The content types of answers in pieces: server-sent events, and JSON values, a line each.
EVENTS, LINES = "text/event-stream", "application/x-ndjson"

#: A JSON value in one line. JSON has no infinity and no NaN: whoever has one says how it is written.
as_json: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Endpoint:
    """One method of one path.

    Attributes:
        method: "GET", "POST" or "DELETE".
        path: such as "/v1/models/{name:path}".
        handler: answers a call.
        summary: one line that says what it does.
        body: what it takes; None: no body.
        answer: what it returns as JSON; None: something else.
        events: the content type of what it may answer instead: EVENTS or LINES for streams, "text/plain" ...
        also: statuses other than 200 of such answers; those of failures go without saying.
        is_open: whether it needs no key.
        is_probe: whether machines ask for it again and again; such calls are logged at level DEBUG.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    summary: str
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    events: str | None = None
    also: tuple[int, ...] = ()
    is_open: bool = False
    is_probe: bool = False


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
        """An event whose data is a JSON value."""
        return cls(as_json(value), name)


@dataclass(frozen=True)
class Protocol:
    """Endpoints that speak one language.

    Attributes:
        name: such as "openai".
        endpoints: what it offers.
        error_body: the JSON of a failure, as this protocol's clients expect it.
        error_event: the last event of a stream that fails; None: an event "error" with :attr:`error_body`.
        ping: what fills a silent stream of events; None: a comment.
    """

    name: str
    endpoints: Sequence[Endpoint]
    error_body: Callable[[Failure], dict[str, Any]]
    error_event: Callable[[Failure], Event] | None = None
    ping: Event | None = None

    def last_event(self, failure: Failure) -> Event:
        """What ends a stream of events that fails."""
        return self.error_event(failure) if self.error_event else Event.of(self.error_body(failure), "error")

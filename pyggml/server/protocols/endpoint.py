"""Declaration of a protocol's endpoints, from which routes and the OpenAPI document are generated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from pydantic import BaseModel
from starlette.responses import Response

from pyggml.server.http.sse import Event

if TYPE_CHECKING:
    from pyggml.server.http.errors import Failure
    from pyggml.server.http.request_body import Body

#: Handles a request. Its arguments are the ServerRequest and, if it has a parameter ``body``, the validated body.
Handler = Callable[..., Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One method of one path.

    Attributes:
        method: "GET", "POST" or "DELETE".
        path: such as "/v1/models/{name:path}".
        handler: handles its requests.
        response: model of a JSON response; None: no JSON.
        stream_type: content type of a response that is not JSON: EVENTS or LINES for streams, "text/plain" ...
        other_statuses: statuses of successful responses besides 200.
        is_open: True if it needs no API key.
        is_uncounted: True if it does not count for the limits of API keys although it has a body, such as a cancel.
        is_probe: True if monitoring requests it regularly; such requests are logged at level DEBUG.
        body: model of the request body: the type of the handler's parameter ``body``; None: no body.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    response: type[BaseModel] | None = None
    stream_type: str | None = None
    other_statuses: tuple[int, ...] = ()
    is_open: bool = False
    is_probe: bool = False
    is_uncounted: bool = False
    body: type[Body] | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", get_type_hints(self.handler).get("body"))

    @property
    def is_free(self) -> bool:
        """True if its requests do not count for the limits of API keys."""
        return self.body is None or self.is_uncounted

    @property
    def summary(self) -> str:
        """One line of documentation: the first one of the handler's docstring."""
        return (self.handler.__doc__ or "").partition("\n")[0].removesuffix(".")


@dataclass(frozen=True)
class Protocol:
    """The endpoints of one API, and its format of errors.

    Attributes:
        name: such as "openai".
        endpoints: the endpoints.
        error_body: makes the JSON of a failure.
        error_event: name of the last event of a stream that fails; its data is the :attr:`error_body`.
        ping: event that keeps a silent stream open; None: a comment.
    """

    name: str
    endpoints: Sequence[Endpoint]
    error_body: Callable[[Failure], dict[str, Any]]
    error_event: str = "error"
    ping: Event | None = None

    def last_event(self, failure: Failure) -> Event:
        """Return the last event of a stream that fails."""
        return Event.of(self.error_body(failure), self.error_event)

"""Proxy between clients and workers in other processes, each of which serves one of the models.

:class:`WorkerProxy` reads a request, finds the model that it names, and forwards the response as it arrives.
:func:`run_forwarded` runs an application on a forwarded request in the worker. The caller supplies the transport.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyggml.server.app import nearest_protocol, path_in_app
from pyggml.server.http.disconnects import ClientDisconnectedError, cancel_on_disconnect
from pyggml.server.http.errors import Failure, RequestError, error_response, failure_from
from pyggml.server.http.request_body import LONG_BYTES, read_bytes
from pyggml.server.http.request_id import request_id, with_request_id
from pyggml.server.http.sse import EVENTS, LINES, format_event, format_line
from pyggml.server.models.catalogue import DEFAULT, Catalogue
from pyggml.server.protocols.endpoint import Protocol
from pyggml.server.settings.options import Settings

_log = logging.getLogger("pyggml.server")

# The forwarded part of a scope; the rest belongs to the process that accepted the connection.
_ADDRESS = ("server", "client", "scheme", "root_path", "path", "raw_path", "query_string")
_SCOPE = frozenset(("type", "asgi", "http_version", "method", "headers", *_ADDRESS))
# Seconds for an application to clean up after its client has disconnected.
_CLEANUP_S = 5.0


@dataclass(frozen=True)
class ForwardedRequest:
    """A request to a worker. Can be pickled.

    Attributes:
        model: the model's own name.
        scope: its ASGI scope.
        body: its body.
    """

    model: str
    scope: Scope
    body: bytes


#: Sends a request to a worker, and yields the ASGI messages of its response. The second argument is the body's JSON
#: object; {}: it has none. If the worker cannot be reached, it raises an InferError.
Forward = Callable[[ForwardedRequest, Mapping[str, Any]], AsyncGenerator[Sequence[Message], None]]


class WorkerProxy:
    """An ASGI application that forwards requests to workers."""

    def __init__(self, settings: Settings, forward: Forward) -> None:
        """Set up the proxy; it opens nothing.

        Args:
            settings: the models, and the limits on bodies.
            forward: sends requests to workers.

        Raises:
            InvalidParameterError: two models have the same name.
        """
        self._settings = settings
        self._catalogue = Catalogue(settings.models)
        self._forward = forward

    @property
    def names(self) -> list[str]:
        """Values of ``ForwardedRequest.model``, in the order of the settings' models; the first is the default."""
        return self._catalogue.names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request; errors are in the format of its protocol."""
        if scope["type"] == "lifespan":
            await _run_lifespan(receive, send)
        elif scope["type"] == "http":
            response = _ProxiedResponse(scope, send)
            try:
                await self._respond(Request(scope, receive), response)
            except ClientDisconnectedError:
                return
            except Exception as error:
                await response.fail(error)

    async def _respond(self, request: Request, response: _ProxiedResponse) -> None:
        body = await read_bytes(request, self._settings)
        fields = await asyncio.to_thread(_fields, body) if len(body) >= LONG_BYTES else _fields(body)
        scope = {name: value for name, value in request.scope.items() if name in _SCOPE}
        batches = self._forward(ForwardedRequest(self._model(fields), scope, body), fields)
        await cancel_on_disconnect(response.send_all(batches), request.receive)

    def _model(self, fields: Mapping[str, Any]) -> str:
        name = fields.get("model")
        try:
            base, _ = self._catalogue.split(name if isinstance(name, str) else DEFAULT)
            return self._catalogue.find(base).name
        except RequestError:  # the default model's worker responds with the error
            return self._catalogue.default.name


class _ProxiedResponse:
    """The response to one request, as far as it has been sent."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._content_type: str | None = None  # None: nothing has been sent

    async def send_all(self, batches: AsyncGenerator[Sequence[Message], None]) -> None:
        async with aclosing(batches):
            async for messages in batches:
                for message in messages:
                    if message["type"] == "http.response.start":
                        self._content_type = Headers(raw=message["headers"]).get("content-type", "")
                    await self._send(message)

    async def fail(self, error: Exception) -> None:
        """Report an error with a status, or at the end of a stream; otherwise abort the response."""
        name = request_id(Headers(scope=self._scope))
        failure = replace(failure_from(error), request_id=name)
        if failure.status >= 500:
            _log.error("request %s: %s", name, str(error))  # the error itself would keep its traceback's frames alive
        protocol = nearest_protocol(path_in_app(self._scope))
        if self._content_type is None:
            response = with_request_id(error_response(protocol, failure), name)
            await response(self._scope, _receive_disconnect, self._send)
        elif (last := _last_chunk(protocol, failure, self._content_type)) is not None:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        else:
            raise error


def _last_chunk(protocol: Protocol, failure: Failure, content_type: str) -> bytes | None:
    """Return the last chunk of a stream that fails; None: responses of this type have none."""
    if content_type.startswith(EVENTS):
        return format_event(protocol.last_event(failure))
    return format_line(protocol.error_body(failure)) if content_type.startswith(LINES) else None


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(body) if body else None
    except (ValueError, RecursionError):  # the worker responds with the error
        return {}
    return fields if isinstance(fields, dict) else {}


async def _run_lifespan(receive: Receive, send: Send) -> None:
    """Follow ASGI's lifespan protocol with nothing to open or close."""
    while (event := (await receive())["type"]) != "lifespan.shutdown":
        await send({"type": f"{event}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}


# --- in the worker ------------------------------------------------------------------------------------------------


async def run_forwarded(app: ASGIApp, request: ForwardedRequest) -> AsyncGenerator[Sequence[Message], None]:
    """Run an application on a forwarded request, and yield the ASGI messages that it sends, in batches.

    The headers of a response come with its first chunk, so that the request can be sent to another worker if this one
    crashes before. Closing the iterator means that the client has disconnected.

    Args:
        app: an application of :func:`~pyggml.server.create_app`, whose lifespan has begun.
        request: the request.
    """
    sent: list[Message] = []
    has_messages, is_closed = asyncio.Event(), asyncio.Event()
    body = iter([{"type": "http.request", "body": request.body, "more_body": False}])

    async def receive() -> Message:
        for message in body:
            return message
        await is_closed.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] != "http.response.start":
            has_messages.set()

    running = asyncio.ensure_future(app(dict(request.scope), receive, send))
    running.add_done_callback(lambda _: has_messages.set())
    try:
        while sent or not running.done():
            await has_messages.wait()
            has_messages.clear()
            ready, sent = sent, []
            if ready:
                yield ready
        running.result()
    finally:
        is_closed.set()
        await asyncio.wait((running,), timeout=_CLEANUP_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

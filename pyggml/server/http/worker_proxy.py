"""Between clients and workers in other processes, each of which has one of the models that are offered.

:class:`Relay` takes a request, finds the model that it names, and sends its answer on as it comes. :func:`answers` has
an application answer the request at the other end. What carries requests from one to the other is the caller's.
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

from pyggml.server.app import own_path, protocol_at
from pyggml.server.http.errors import ClientGone, Failure, RequestError, failure_of
from pyggml.server.http.request_body import LONG_BYTES, received
from pyggml.server.http.request_id import refusal, request_id, with_request_id
from pyggml.server.http.streaming import framed, lined, watched
from pyggml.server.models.catalogue import DEFAULT, Catalogue
from pyggml.server.protocols.endpoint import EVENTS, LINES, Protocol
from pyggml.server.settings.options import Settings

_log = logging.getLogger("pyggml.server")

# What an application may know of a connection; the rest of a scope belongs to the process that accepted it.
_ADDRESS = ("server", "client", "scheme", "root_path", "path", "raw_path", "query_string")
_SCOPE = frozenset(("type", "asgi", "http_version", "method", "headers", *_ADDRESS))
# What an application has to clean up with after its client has left.
_LAST_WORDS_S = 5.0


@dataclass(frozen=True)
class Forwarded:
    """A request on its way to a worker. Can be pickled.

    Attributes:
        model: the model's own name.
        scope: its ASGI scope.
        body: its body.
    """

    model: str
    scope: Scope
    body: bytes


#: Carries a request to a worker, and yields the ASGI messages of its answer. The second argument is the body's JSON
#: object; {}: there is none. What cannot be carried raises an InferError.
SendOn = Callable[[Forwarded, Mapping[str, Any]], AsyncGenerator[Sequence[Message], None]]


class Relay:
    """An ASGI application that has others answer."""

    def __init__(self, settings: Settings, send_on: SendOn) -> None:
        """Opens nothing.

        Args:
            settings: the models that are offered, and how much of a body is read.
            send_on: carries requests to workers.

        Raises:
            InvalidParameterError: two models have the same name.
        """
        self._settings = settings
        self._catalogue = Catalogue(settings.models)
        self._send_on = send_on

    @property
    def names(self) -> list[str]:
        """What ``Forwarded.model`` may be, the default first, in the order of the settings' models."""
        return self._catalogue.names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or says what was wrong in the words of its protocol."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            answer = _Answer(scope, send)
            try:
                await self._answered(Request(scope, receive), answer)
            except ClientGone:
                return
            except Exception as error:
                await answer.fail(error)

    async def _answered(self, request: Request, answer: _Answer) -> None:
        body = await received(request, self._settings.max_body_bytes, self._settings.body_timeout)
        fields = await asyncio.to_thread(_fields, body) if len(body) >= LONG_BYTES else _fields(body)
        scope = {name: value for name, value in request.scope.items() if name in _SCOPE}
        pieces = self._send_on(Forwarded(self._model(fields), scope, body), fields)
        await watched(answer.send_all(pieces), request.receive)

    def _model(self, fields: Mapping[str, Any]) -> str:
        name = fields.get("model")
        try:
            return self._catalogue.find(name if isinstance(name, str) else DEFAULT).name
        except RequestError:  # which the default's worker refuses as it refuses all that is wrong
            return self._catalogue.first.name


class _Answer:
    """The answer to one request, as far as it has been sent."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._type: str | None = None  # None: nothing has been sent

    async def send_all(self, pieces: AsyncGenerator[Sequence[Message], None]) -> None:
        async with aclosing(pieces):
            async for messages in pieces:
                for message in messages:
                    if message["type"] == "http.response.start":
                        self._type = Headers(raw=message["headers"]).get("content-type", "")
                    await self._send(message)

    async def fail(self, error: Exception) -> None:
        """Says what went wrong: with a status, or as the end of a stream; otherwise breaks the answer off."""
        name = request_id(Headers(scope=self._scope))
        failure = replace(failure_of(error), request_id=name)
        if failure.status >= 500:
            _log.error("request %s: %s", name, str(error))  # an error would keep what its traceback passes
        protocol = protocol_at(own_path(self._scope))
        if self._type is None:
            response = with_request_id(refusal(protocol, failure), name)
            await response(self._scope, _nothing, self._send)
        elif (last := _last_piece(protocol, failure, self._type)) is not None:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        else:
            raise error


def _last_piece(protocol: Protocol, failure: Failure, content_type: str) -> bytes | None:
    """What ends a stream of this type that fails; None: nothing can."""
    if content_type.startswith(EVENTS):
        return framed(protocol.last_event(failure))
    return lined(protocol.error_body(failure)) if content_type.startswith(LINES) else None


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(body) if body else None
    except (ValueError, RecursionError):  # which the worker refuses in its own words
        return {}
    return fields if isinstance(fields, dict) else {}


async def _live(receive: Receive, send: Send) -> None:
    """Takes part in the protocol of applications that have something to open and close."""
    while (event := (await receive())["type"]) != "lifespan.shutdown":
        await send({"type": f"{event}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


# --- the other end ------------------------------------------------------------------------------------------------


async def answers(app: ASGIApp, request: Forwarded) -> AsyncGenerator[Sequence[Message], None]:
    """Has an application answer a request, and yields what it sends: all that is there, whenever there is something.

    The head of an answer comes together with its first piece, so that a request whose worker is lost before that can
    still go to another. Closing the iterator is the client's leaving.

    Args:
        app: what :func:`~pyggml.server.create_app` makes, whose lifespan has begun.
        request: the request.
    """
    sent: list[Message] = []
    news, gone = asyncio.Event(), asyncio.Event()
    body = iter([{"type": "http.request", "body": request.body, "more_body": False}])

    async def receive() -> Message:
        for message in body:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] != "http.response.start":
            news.set()

    running = asyncio.ensure_future(app(dict(request.scope), receive, send))
    running.add_done_callback(lambda _: news.set())
    try:
        while sent or not running.done():
            await news.wait()
            news.clear()
            ready, sent = sent, []
            if ready:
                yield ready
        running.result()
    finally:
        gone.set()
        await asyncio.wait((running,), timeout=_LAST_WORDS_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

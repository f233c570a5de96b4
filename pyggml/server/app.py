"""The ASGI application, made of the protocols."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from posixpath import commonpath
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import pyggml
from pyggml.server.http import web_page
from pyggml.server.http.access_control import Guard
from pyggml.server.http.errors import ClientGone, Failure
from pyggml.server.http.openapi import describing
from pyggml.server.http.request import Call
from pyggml.server.http.request_id import refusal, request_id, with_request_id
from pyggml.server.protocols.anthropic.messages import ANTHROPIC
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE
from pyggml.server.protocols.llama_server import TEXT
from pyggml.server.protocols.metrics_endpoint import METRICS
from pyggml.server.protocols.ollama import OLLAMA
from pyggml.server.protocols.openai import OPENAI
from pyggml.server.protocols.responses.create_response import RESPONSES
from pyggml.server.settings.options import ModelSpec, Settings
from pyggml.server.worker import Worker

#: What is served: a path or a reference, an open model, or one of these with a name and options of its own.
Model = str | os.PathLike[str] | pyggml.LLM | ModelSpec

#: Every language, in the order of the documentation.
PROTOCOLS: tuple[Protocol, ...] = (OPENAI, RESPONSES, ANTHROPIC, OLLAMA, EXECUTE, TEXT, METRICS)


def create_app(serves: Settings | Model | Sequence[Model] | None = None, **options: Any) -> Starlette:
    """The server as an ASGI application, to run or to mount in another.

    Its lifespan loads the first model, and closes all of them. Where no lifespan runs, as that of an application that
    is mounted in another, the first request loads its model; to close them, enter ``app.router.lifespan_context(app)``
    in the lifespan of the other.

    Args:
        serves: what it serves and how; or only what, in which case options say how: a file, a directory, a reference,
            an open model, which stays open, or several of these. None: the model that ships with pyggml.
        **options: fields of :class:`~pyggml.server.settings.options.Settings`.

    Raises:
        InvalidParameterError: two models have the same name, or an option is invalid.
    """
    settings = settings_of(serves, options)
    worker = Worker(settings)
    routes = web_page.routes() if settings.page else []
    routes += [
        Route(endpoint.path, _Answering(worker, protocol, endpoint), methods=[endpoint.method])
        for protocol in (*PROTOCOLS, describing(PROTOCOLS))
        for endpoint in protocol.endpoints
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001
        async with worker.running():
            yield

    def refuse(scope: Scope, failure: Failure) -> Response:
        failure = replace(failure, request_id=request_id(Headers(scope=scope)))
        worker.observer.refused(scope, failure)
        return with_request_id(refusal(protocol_at(own_path(scope)), failure), failure.request_id)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = error.headers or {}
        message = _unknown(request.scope, headers.get("Allow", ""))
        response = refuse(request.scope, Failure(error.status_code, "not_found", message, "unknown_url"))
        response.headers.update(headers)
        return response

    middleware = [
        Middleware(_Readable, refuse=refuse),
        Middleware(Guard, allowed_hosts=settings.allowed_hosts, origins=settings.cors_origins, refuse=refuse),
    ]
    if settings.cors_origins:
        origins = settings.cors_origins
        middleware.append(
            Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"])
        )
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=middleware,
        exception_handlers={404: unknown, 405: unknown},
    )
    app.state.worker = worker
    return app


class _Readable:
    """Refuses queries of which Starlette could make no URL, as it does to redirect to a path without a slash."""

    def __init__(self, app: ASGIApp, *, refuse: Callable[[Scope, Failure], Response]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope.get("query_string", b"").decode()
        except UnicodeDecodeError:
            message = "the query of the URL is not UTF-8: write its bytes as %XX"
            await self._refuse(scope, Failure(400, "invalid", message, "invalid_query"))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _Answering:
    """An endpoint as an ASGI application."""

    def __init__(self, worker: Worker, protocol: Protocol, endpoint: Endpoint) -> None:
        self._worker = worker
        self._protocol = protocol
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with Call(self._worker, self._protocol, self._endpoint, Request(scope, receive)) as call:
            try:
                response = await call.answer()
            except ClientGone:
                return
            with contextlib.suppress(OSError):  # by which servers may say that the client has left
                await response(scope, receive, send)


_PATHS = [endpoint.path for protocol in PROTOCOLS for endpoint in protocol.endpoints if "{" not in endpoint.path]
_LONGEST_MISTAKE = 100


def _unknown(scope: Scope, allowed: str) -> str:
    """What to say of a path that is not there, or has other methods: ``allowed``."""
    if allowed:
        methods = sorted({*allowed.split(", ")} - {"HEAD"})
        return f"there is no {scope['method']} at {scope['path']}: it takes {' or '.join(methods)}"
    path = own_path(scope)
    near = difflib.get_close_matches(path, _PATHS, n=1, cutoff=0.8) if len(path) <= _LONGEST_MISTAKE else []
    way_out = f"did you mean {scope.get('root_path', '')}{near[0]}?" if near else "/openapi.json lists what there is"
    return f"there is nothing at {scope['path']}; {way_out}"


def own_path(scope: Scope) -> str:
    """The path of a request within this application, which may be mounted in another."""
    return f"/{scope['path'].removeprefix(scope.get('root_path', '')).lstrip('/')}"


def protocol_at(path: str) -> Protocol:
    """The protocol that has the paths most like this one."""

    def likeness(protocol: Protocol) -> int:
        return max(len(commonpath((endpoint.path, path))) for endpoint in protocol.endpoints)

    return max(PROTOCOLS, key=likeness)


def settings_of(serves: Settings | Model | Sequence[Model] | None, options: Mapping[str, Any]) -> Settings:
    """The arguments of :func:`create_app` as one value.

    Raises:
        InvalidParameterError: an option is invalid.
    """
    if isinstance(serves, Settings):
        return replace(serves, **options)
    if serves is None or isinstance(serves, (str, os.PathLike, pyggml.LLM, ModelSpec)):
        return Settings(models=(_spec(serves),), **options)
    return Settings(models=tuple(map(_spec, serves)), **options)


def _spec(model: Model | None) -> ModelSpec:
    return model if isinstance(model, ModelSpec) else ModelSpec(model)

"""The ASGI application: middleware, and the routes of all protocols."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import commonpath
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import pyggml
from pyggml.server.http import web_page
from pyggml.server.http.access_control import HostOriginCheck, require_utf8_query
from pyggml.server.http.cors import cors
from pyggml.server.http.disconnects import ClientDisconnectedError
from pyggml.server.http.errors import Failure, RequestError, error_response
from pyggml.server.http.openapi import openapi_protocol
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_id import request_id, with_request_id
from pyggml.server.http.targets import in_origin_form, redirect_without_slash
from pyggml.server.protocols.anthropic.messages import ANTHROPIC
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE, METRICS
from pyggml.server.protocols.llama_server import LLAMA_SERVER
from pyggml.server.protocols.ollama import OLLAMA
from pyggml.server.protocols.openai import OPENAI
from pyggml.server.protocols.responses import RESPONSES
from pyggml.server.settings.options import ModelSpec, Settings
from pyggml.server.worker import Worker

#: A model to serve: a path or a reference, an open model, or one of these with its own name and options.
Model = str | os.PathLike[str] | pyggml.LLM | ModelSpec

#: All protocols, in the order of the documentation.
PROTOCOLS: tuple[Protocol, ...] = (OPENAI, RESPONSES, ANTHROPIC, OLLAMA, EXECUTE, LLAMA_SERVER, METRICS)


def create_app(serves: Settings | Model | Sequence[Model] | None = None, **options: Any) -> Starlette:
    """Return the server as an ASGI application, to run or to mount in another one.

    Its lifespan loads the first model, and closes all models. A mounted application's lifespan does not run: then the
    first request loads its model. To close models, enter ``app.router.lifespan_context(app)`` in the lifespan of the
    outer application.

    Args:
        serves: the settings; or only the models, with the settings in ``options``: a file, a directory, a reference,
            an open model, which stays open, or several of these. None: the model that ships with pyggml.
        **options: fields of :class:`~pyggml.server.settings.options.Settings`.

    Raises:
        InvalidParameterError: two models have the same name, or an option is invalid.
    """
    settings = settings_of(serves, options)
    worker = Worker(settings)
    routes = web_page.routes() if settings.page else []
    routes += [
        Route(endpoint.path, _EndpointApp(worker, protocol, endpoint), methods=[endpoint.method])
        for protocol in (*PROTOCOLS, openapi_protocol(PROTOCOLS))
        for endpoint in protocol.endpoints
    ]

    def refuse(scope: Scope, failure: Failure) -> Response:
        failure = replace(failure, request_id=request_id(Headers(scope=scope)))
        worker.observer.request_refused(scope, failure)
        return with_request_id(error_response(nearest_protocol(path_in_app(scope)), failure), failure.request_id)

    async def not_found(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if (redirect := redirect_without_slash(request.scope, routes)) is not None:
            return redirect
        headers = error.headers or {}
        message = _not_found_message(request.scope, headers.get("Allow", ""))
        response = refuse(request.scope, Failure(error.status_code, "not_found", message, "unknown_url"))
        response.headers.update(headers)
        return response

    checks = (
        require_utf8_query,
        HostOriginCheck(settings.allowed_hosts, settings.cors_origins, lambda: worker.api_keys.are_required),
    )
    middleware = [Middleware(_CheckMiddleware, checks=checks, refuse=refuse), cors(settings.cors_origins)]
    app = Starlette(
        routes=routes,
        lifespan=lambda _: worker.running(),
        middleware=middleware,
        exception_handlers={404: not_found, 405: not_found},
    )
    app.router.redirect_slashes = False  # its redirects are absolute
    app.state.worker = worker
    return app


@dataclass(frozen=True)
class _CheckMiddleware:
    """ASGI middleware that refuses the HTTP requests that fail a check."""

    app: ASGIApp
    checks: Sequence[Callable[[Scope], None]]
    refuse: Callable[[Scope, Failure], Response]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            scope = in_origin_form(scope)
        try:
            for check in self.checks if scope["type"] == "http" else ():
                check(scope)
        except RequestError as error:
            app = self.refuse(scope, error.failure)
        await app(scope, receive, send)


@dataclass(frozen=True)
class _EndpointApp:
    """An endpoint as an ASGI application."""

    worker: Worker
    protocol: Protocol
    endpoint: Endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with ServerRequest(self.worker, self.protocol, self.endpoint, Request(scope, receive)) as request:
            try:
                response = await request.respond()
            except ClientDisconnectedError:
                return
            with contextlib.suppress(OSError):  # some servers raise it after a client disconnect
                await response(scope, receive, send)


_PATHS = [endpoint.path for protocol in PROTOCOLS for endpoint in protocol.endpoints if "{" not in endpoint.path]
# Longer paths get no suggestion, which would take long to compute.
_MAX_TYPO_LENGTH = 100


def _not_found_message(scope: Scope, allowed: str) -> str:
    """Return the message for an unknown path, or for a wrong method of a path that has the methods ``allowed``."""
    if allowed:
        methods = sorted({*allowed.split(", ")} - {"HEAD"})
        return f"{scope['path']} does not support {scope['method']}: use {' or '.join(methods)}"
    path = path_in_app(scope)
    near = difflib.get_close_matches(path, _PATHS, n=1, cutoff=0.8) if len(path) <= _MAX_TYPO_LENGTH else []
    way_out = f"did you mean {scope.get('root_path', '')}{near[0]}?" if near else "/openapi.json lists all paths"
    return f"there is no path {scope['path']}; {way_out}"


def path_in_app(scope: Scope) -> str:
    """Return the path of a request within this application, which may be mounted in another one."""
    return f"/{scope['path'].removeprefix(scope.get('root_path', '')).lstrip('/')}"


def nearest_protocol(path: str) -> Protocol:
    """Return the protocol whose paths share the longest prefix with this one."""

    def prefix_length(protocol: Protocol) -> int:
        return max(len(commonpath((endpoint.path, path))) for endpoint in protocol.endpoints)

    return max(PROTOCOLS, key=prefix_length)


def settings_of(serves: Settings | Model | Sequence[Model] | None, options: Mapping[str, Any]) -> Settings:
    """Return the arguments of :func:`create_app` as settings.

    Args:
        serves: as for :func:`create_app`.
        options: fields of :class:`Settings`.

    Raises:
        InvalidParameterError: an option is invalid.
    """
    if isinstance(serves, Settings):
        return replace(serves, **options)
    if serves is None or isinstance(serves, (str, os.PathLike, pyggml.LLM, ModelSpec)):
        serves = [ModelSpec(None) if serves is None else serves]
    models = tuple(each if isinstance(each, ModelSpec) else ModelSpec(each) for each in serves)
    return Settings(models=models, **options)

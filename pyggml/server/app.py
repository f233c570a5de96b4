"""The ASGI application, made of the protocols."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from posixpath import commonpath

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from pyggml.server import call, page
from pyggml.server.failures import Failure
from pyggml.server.guard import Guard
from pyggml.server.protocol import Protocol
from pyggml.server.protocols.anthropic import ANTHROPIC
from pyggml.server.protocols.execute import EXECUTE
from pyggml.server.protocols.metrics import METRICS
from pyggml.server.protocols.openai import OPENAI
from pyggml.server.protocols.responses import RESPONSES
from pyggml.server.protocols.text import TEXT
from pyggml.server.settings import Settings
from pyggml.server.worker import Worker

#: Every language, in the order of the documentation.
PROTOCOLS: tuple[Protocol, ...] = (OPENAI, RESPONSES, ANTHROPIC, EXECUTE, TEXT, METRICS)


def create_app(settings: Settings | None = None) -> Starlette:
    """The server as an ASGI application, to run or to mount in another.

    Args:
        settings: what it serves and how; None: the model that ships with pyggml.
    """
    settings = settings or Settings()
    worker = Worker(settings)
    routes = [
        Route(endpoint.path, call.Route(lambda: worker, protocol, endpoint), methods=[endpoint.method])
        for protocol in PROTOCOLS
        for endpoint in protocol.endpoints
    ]
    if settings.page:
        routes += page.routes()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001
        async with worker.running():
            yield

    def refuse(scope: Scope, failure: Failure) -> Response:
        worker.observer.refused(scope, failure)
        return call.refusal(_protocol_at(scope["path"]), failure)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = "nothing" if error.status_code == 404 else f"no {request.method}"
        message = f"there is {what} at {request.url.path}"
        response = refuse(request.scope, Failure(error.status_code, "not_found", message, "unknown_url"))
        response.headers.update(error.headers or {})
        return response

    middleware = [Middleware(Guard, allowed_hosts=settings.allowed_hosts, origins=settings.cors_origins, refuse=refuse)]
    if settings.cors_origins:
        origins = settings.cors_origins
        middleware += [
            Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"])
        ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=middleware,
        exception_handlers={404: unknown, 405: unknown},
    )
    app.state.worker = worker
    return app


def _protocol_at(path: str) -> Protocol:
    """The protocol that has the paths most like this one."""

    def likeness(protocol: Protocol) -> int:
        return max(len(commonpath((endpoint.path, f"/{path.lstrip('/')}"))) for endpoint in protocol.endpoints)

    return max(PROTOCOLS, key=likeness)

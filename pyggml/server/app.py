"""The ASGI application, made of the protocols."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.routing import Route

from pyggml.server import call, page
from pyggml.server.protocol import Protocol
from pyggml.server.protocols.execute import EXECUTE
from pyggml.server.protocols.openai import OPENAI
from pyggml.server.protocols.responses import RESPONSES
from pyggml.server.protocols.text import TEXT
from pyggml.server.settings import Settings
from pyggml.server.worker import Worker

#: Every language, in the order of the documentation.
PROTOCOLS: tuple[Protocol, ...] = (OPENAI, RESPONSES, EXECUTE, TEXT)


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
        await worker.models.start()
        try:
            yield
        finally:
            await worker.models.aclose()

    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.worker = worker
    return app

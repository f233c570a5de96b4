"""Runs the server: uvicorn on a socket, from the first model's loading to the last request's end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

import pyggml
from pyggml.server.settings import Settings


def run(app: Starlette, settings: Settings, listening: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, and then until running requests have ended.

    Args:
        app: what :func:`~pyggml.server.create_app` makes.
        settings: where it listens, and its limits.
        listening: called with the URL once connections are accepted.

    Raises:
        InvalidParameterError: the address cannot be listened on.
        InferError: the first model cannot be loaded.
        KeyboardInterrupt: SIGINT ended it.
        SystemExit: with 143, SIGTERM ended it.
    """
    bound = _bound(settings)
    with bound:
        asyncio.run(_served(app, settings, bound, listening))


async def _served(app: Starlette, settings: Settings, bound: socket.socket, listening: Callable[[str], None]) -> None:
    config = uvicorn.Config(
        app,
        lifespan="off",  # whose errors it would log with a stack and keep
        log_config=None,
        access_log=False,
        ws="none",
        root_path=settings.root_path,
        timeout_keep_alive=int(settings.keep_alive_timeout),
        timeout_graceful_shutdown=int(settings.drain_timeout),
        server_header=False,
    )
    async with app.router.lifespan_context(app):
        await _Server(config, lambda: listening(_url_of(bound))).serve([bound])


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen."""
        await super().startup(sockets)
        self._listening()


def _bound(settings: Settings) -> socket.socket:
    """A socket with the address of the settings.

    Raises:
        InvalidParameterError: it is in use, may not be used or is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise pyggml.InvalidParameterError(
            f"cannot listen on port {settings.port} of {settings.host}: {error.strerror}; another port is another "
            "--port N, and --port 0 any free one"
        ) from None
    return bound


def _url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

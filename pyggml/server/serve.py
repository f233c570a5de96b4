"""Runs the server: uvicorn on a socket, from the first model's loading to the last request's end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.applications import Starlette

import pyggml
from pyggml.server.http.connections import Limits, close_all, connection_class, sweep
from pyggml.server.observability.logs import configure_logs
from pyggml.server.settings.options import Settings
from pyggml.server.worker import Worker


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
    configure_logs(settings)
    bound = _bound(settings)
    with bound:
        told_by = asyncio.run(_served(app, settings, bound, listening))
    if told_by:
        signal.raise_signal(told_by)


async def _served(app: Starlette, settings: Settings, bound: socket.socket, listening: Callable[[str], None]) -> int:
    """Serves; returns the signal that ended it."""
    _raise_descriptor_limit()
    async with app.router.lifespan_context(app):
        server = Server(app, settings, lambda: listening(_url_of(bound)))
        await server.serve([bound])
    return server.told_by


class Server(uvicorn.Server):
    """uvicorn's server, which ends by draining, and closes connections that wait too long for their clients.

    A first signal lets requests that run end, within a limit, while new ones hear that the server is stopping; a
    second one ends the process at once.

    Attributes:
        told_by: the signal that told it to end; 0: none.
    """

    def __init__(self, app: Starlette, settings: Settings, listening: Callable[[], None] = lambda: None) -> None:
        """Opens nothing yet.

        Args:
            app: what :func:`~pyggml.server.create_app` makes, whose lifespan has begun.
            settings: its limits.
            listening: called once connections are accepted.
        """
        super().__init__(_config(app, settings))
        self.told_by = 0
        self._worker: Worker = app.state.worker
        self._drain_timeout = settings.drain_timeout
        self._draining: asyncio.Task[None] | None = None
        self._listening = listening

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begins to drain; the second time, ends."""
        if self.told_by:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
            os._exit(128 + sig)  # process 1, as in a container, outlives signals of its own
        self.told_by = sig

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes what a terminal sends when it is closed as well, unless nohup has it ignored."""
        with super().capture_signals():
            before = signal.getsignal(signal.SIGHUP)
            if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
                yield
                return
            signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen."""
        await super().startup(sockets)
        self._listening()

    async def on_tick(self, counter: int) -> bool:
        """Looks after connections, ten times a second. Returns whether to close everything."""
        if counter % _TICKS_PER_SWEEP == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        if self.told_by and self._draining is None:
            self._draining = asyncio.create_task(self._worker.drain(self._drain_timeout))
        if self._draining is not None and self._draining.done():
            self._draining.result()
            return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes everything: what answers are still on their way has a moment to get there."""
        await super().shutdown(sockets)
        close_all(self.server_state.connections)


# uvicorn's loop ticks ten times a second.
_TICKS_PER_SWEEP = 5
# What clients get, in seconds, to read the rest of their answers.
_LAST_READS_S = 2


def _config(app: Starlette, settings: Settings) -> uvicorn.Config:
    limits = Limits(
        max_connections=min(settings.max_connections, _descriptors_for_connections()),
        max_head_bytes=settings.max_header_bytes,
        head_s=settings.header_timeout,
        keep_alive_s=settings.keep_alive_timeout,
        send_s=settings.send_timeout,
    )
    return uvicorn.Config(
        app,
        lifespan="off",  # whose errors it would log with a stack and keep
        http=connection_class(limits),
        h11_max_incomplete_event_size=settings.max_header_bytes,
        log_config=None,
        log_level="error",  # a line for each request that is no HTTP would let anybody fill a disk
        access_log=False,
        ws="none",
        proxy_headers=False,
        root_path=settings.root_path,
        timeout_keep_alive=int(settings.keep_alive_timeout),
        timeout_graceful_shutdown=_LAST_READS_S,
        server_header=False,
    )


# What models, logs and threads have open.
_OTHER_DESCRIPTORS = 64


def _descriptors_for_connections() -> int:
    """How many of the descriptors that the process may have open are for connections."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - _OTHER_DESCRIPTORS, soft // 2)


def _raise_descriptor_limit() -> None:
    """Allows as many descriptors as the system allows: many systems begin with 1024 for programs that use select()."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS says unlimited, and means less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# It is in use, or only root may use it.
_OF_THE_PORT = (errno.EADDRINUSE, errno.EACCES)


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
        way_out = "; --port N chooses another one, and --port 0 any that is free" if error.errno in _OF_THE_PORT else ""
        raise pyggml.InvalidParameterError(
            f"cannot listen on port {settings.port} of {settings.host}: {error.strerror}{way_out}"
        ) from None
    return bound


def _url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

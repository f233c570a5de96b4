"""Run the server: uvicorn on a socket, with graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.applications import Starlette

import pyggml
from pyggml.server.http.connections import close_all, connection_class, sweep
from pyggml.server.observability.logs import configure_logs, logger
from pyggml.server.settings.options import Settings
from pyggml.server.worker import Worker

if sys.platform != "win32":
    import resource


def run(app: Starlette, settings: Settings, listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, and then until running requests have ended.

    Args:
        app: an application of :func:`~pyggml.server.create_app`.
        settings: the address and the limits.
        listening: called with the URL once connections are accepted.

    Raises:
        InvalidParameterError: the address cannot be used.
        InferError: the first model cannot be loaded.
        KeyboardInterrupt: after SIGINT.
        SystemExit: with 143, after SIGTERM.
    """
    configure_logs(settings)
    sys.setswitchinterval(_SWITCH_S)
    with _bind(settings) as bound:
        stop_signal = asyncio.run(_serve(app, settings, bound, listening))
    if stop_signal:
        signal.raise_signal(stop_signal)


async def _serve(app: Starlette, settings: Settings, bound: socket.socket, listening: Callable[[str], None]) -> int:
    """Serve; return the signal that stopped the server."""
    _raise_descriptor_limit()
    server = Server(app, settings, lambda: listening(_url_of(bound, settings)))
    async with app.router.lifespan_context(app):
        await server.serve([bound])
    return server.stop_signal


class Server(uvicorn.Server):
    """uvicorn's server with graceful shutdown and connection limits.

    The first signal starts draining: running requests may finish within a timeout, and new ones get status 503. The
    second signal ends the process at once.

    Attributes:
        stop_signal: the signal that stopped the server; 0: none.
    """

    def __init__(self, app: Starlette, settings: Settings, listening: Callable[[], None] = lambda: None) -> None:
        """Set up the server of an application whose lifespan has begun; ``listening`` is called once it accepts."""
        super().__init__(_config(app, settings))
        self.stop_signal = 0
        self._worker: Worker = app.state.worker
        self._drain_timeout = settings.drain_timeout
        self._draining: asyncio.Task[None] | None = None
        self._listening = listening
        self._has_terminal = _has_terminal()
        self._must_reload = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Start draining; the second time, exit."""
        if self.stop_signal:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
            os._exit(128 + sig)  # process 1, as in a container, ignores its own signals
        self.stop_signal = sig

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        """Reload API keys and certificates; without any, or if the terminal was closed, start draining."""
        settings = self._worker.settings
        has_files = settings.api_key_file is not None or settings.tls_cert is not None
        if not has_files or (self._has_terminal and not _has_terminal()):
            self.handle_exit(sig, frame)
        else:
            self._must_reload = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Also handle SIGHUP, which reloads keys and is sent when a terminal is closed, unless nohup ignores it."""
        with super().capture_signals():
            before = signal.getsignal(signal.SIGHUP)
            if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
                yield
                return
            signal.signal(signal.SIGHUP, self.handle_hangup)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        self._listening()

    async def on_tick(self, counter: int) -> bool:
        """Check connections and draining, ten times a second. Return True to shut down."""
        if counter % _TICKS_PER_SWEEP == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        if self._must_reload:
            self._must_reload = False
            self._reload()
        if self.stop_signal and self._draining is None:
            self._draining = asyncio.create_task(self._worker.drain(self._drain_timeout))
        if self._draining is not None and self._draining.done():
            self._draining.result()
            return True
        return await super().on_tick(counter)

    def _reload(self) -> None:
        self._worker.reload_api_keys()
        if self.config.ssl is None:
            return
        try:
            _load_certificate(self.config.ssl, self._worker.settings)
        except pyggml.InvalidParameterError as error:
            logger.error("the certificate is not reloaded: %s", error)
        else:
            logger.info("reloaded the certificate")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections, after a moment for clients to read the rest of their responses."""
        await super().shutdown(sockets)
        close_all(self.server_state.connections)


# Seconds for which a thread keeps the GIL while others wait for it. By default 5 ms: next to bulk work in threads, a
# request would wait as long each time that it comes back to the event loop.
_SWITCH_S = 0.0005
# uvicorn's loop ticks ten times a second.
_TICKS_PER_SWEEP = 5
# Seconds for clients to read the rest of their responses.
_LAST_READS_S = 2


def _config(app: Starlette, settings: Settings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        lifespan="off",  # uvicorn would log its errors with a stack trace and not raise them
        http=connection_class(settings, min(settings.max_connections, _descriptors_for_connections())),
        h11_max_incomplete_event_size=settings.max_header_bytes,
        log_config=None,
        log_level="error",  # warnings of malformed requests would let clients fill the disk
        access_log=False,
        ws="none",
        proxy_headers=False,
        root_path=settings.root_path,
        timeout_keep_alive=int(settings.keep_alive_timeout),
        timeout_graceful_shutdown=_LAST_READS_S,
        server_header=False,
    )
    if settings.tls_cert is not None:
        config.load()
        config.ssl = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _load_certificate(config.ssl, settings)
    return config


def _load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Use the certificate of the settings for new connections.

    Raises:
        InvalidParameterError: a file cannot be read, or they are not a certificate and its key.
    """
    assert settings.tls_cert is not None
    try:
        # OpenSSL takes the certificate before it finds that the key does not belong to it: so first a trial.
        for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            each.load_cert_chain(settings.tls_cert, settings.tls_key, password=_no_password)
    except ssl.SSLError as error:
        raise pyggml.InvalidParameterError(
            f"tls_cert={settings.tls_cert} and tls_key={settings.tls_key} are not a certificate and its private key, "
            f"without a password, in PEM format: {error.reason or error}"
        ) from None
    except OSError as error:
        name = "tls_cert" if not os.access(settings.tls_cert, os.R_OK) else "tls_key"
        raise pyggml.InvalidParameterError(
            f"{name}={getattr(settings, name)} cannot be read: {error.strerror}"
        ) from None


def _no_password() -> str:
    return ""  # otherwise OpenSSL asks for it at the terminal


def _has_terminal() -> bool:
    """Return True if the process has a controlling terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


# File descriptors of models, logs and threads.
_OTHER_DESCRIPTORS = 64


def _descriptors_for_connections() -> int:
    """Return the number of file descriptors available for connections."""
    if sys.platform == "win32":
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - _OTHER_DESCRIPTORS, soft // 2)


def _raise_descriptor_limit() -> None:
    """Raise the limit on file descriptors to the hard limit; the default is often 1024, for programs using select()."""
    if sys.platform == "win32":
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS reports unlimited, but accepts less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# The port is in use, or reserved for root.
_PORT_ERRORS = (errno.EADDRINUSE, errno.EACCES)


def _bind(settings: Settings) -> socket.socket:
    """Return a socket bound to the address of the settings.

    Raises:
        InvalidParameterError: the address is in use, reserved, or not an address of this machine.
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
        way_out = "; choose one with --port N, or any free one with --port 0" if error.errno in _PORT_ERRORS else ""
        raise pyggml.InvalidParameterError(
            f"cannot listen on port {settings.port} of {settings.host}: {error.strerror}{way_out}"
        ) from None
    return bound


def _url_of(bound: socket.socket, settings: Settings) -> str:
    """Return a URL at which this machine reaches the server; 0.0.0.0 is no address to connect to."""
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

"""Real servers on free ports, for tests: in a thread, where a test can look inside, or in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import uvicorn
from starlette.applications import Starlette

import pyggml.server
from pyggml.server.http.errors import Failure
from pyggml.server.serve import Server
from pyggml.server.settings.options import Settings
from pyggml.server.worker import Worker

if TYPE_CHECKING:
    from typing_extensions import Self

_PATIENCE_S = 120.0


@contextlib.contextmanager
def serving(app: Starlette | None = None) -> Iterator[str]:
    """Serves an application in a thread, and yields its URL, such as "http://127.0.0.1:40001"."""
    app = app or pyggml.server.create_app()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not server.started:
            assert thread.is_alive(), "the server ended before it had started"
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(_PATIENCE_S)
        assert not thread.is_alive(), "the server does not end"


class Running(NamedTuple):
    """A server as ``pyggml serve`` runs it, in a thread of the test.

    Attributes:
        url: where it listens.
        host: that in two parts, as sockets take it.
        worker: what its endpoints share.
        server: what accepts connections.
    """

    url: str
    host: tuple[str, int]
    worker: Worker
    server: Server


@contextlib.contextmanager
def running(**settings: Any) -> Iterator[Running]:
    """Runs the server with its limits on connections."""
    app = pyggml.server.create_app(Settings(**{"port": 0, **settings}))
    worker: Worker = app.state.worker
    listening = threading.Event()
    # With the protocol named, or asyncio leaves Nagle's algorithm on.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    server = Server(app, worker.settings, listening.set)

    async def main() -> None:
        async with app.router.lifespan_context(app):
            await server.serve([bound])

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="server")
    thread.start()
    try:
        assert listening.wait(_PATIENCE_S), "the server does not start"
        yield Running(f"http://127.0.0.1:{bound.getsockname()[1]}", bound.getsockname(), worker, server)
    finally:
        server.should_exit = True
        thread.join(_PATIENCE_S)
        bound.close()
        assert not thread.is_alive(), "the server does not end"


class ServerProcess:
    """``pyggml serve`` in a separate process; a context manager that kills it at the end.

    Attributes:
        url: where it listens.
        process: the process.
        log: what it has written to standard error.
    """

    def __init__(self, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "pyggml", "serve", "--port", "0", *map(str, arguments)]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYGGML_")}
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**inherited, **(env or {})}
        )
        self.log = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.url = self._wait_for(r"https?://[\w.:\[\]]+:\d+")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(_PATIENCE_S)
        self._reader.join(_PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal, and returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE_S)

    def _wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + _PATIENCE_S
        while not (found := re.search(pattern, self.log)):
            assert self.process.poll() is None, f"the server ended before it listened:\n{self.log}"
            assert time.monotonic() < deadline, f"no {pattern} in:\n{self.log}"
            time.sleep(0.01)
        return found[0]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line


def events(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Server-sent events as (name, data)."""
    found, name, data = [], "", []
    for line in [*lines, ""]:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif not line and data:
            found.append((name, "\n".join(data)))
            name, data = "", []
    return found


def failure(status: int) -> Failure:
    """Some failure."""
    return Failure(status, "authentication", "no", "no")


def shape(value: Any) -> Any:
    """The keys and types of a JSON value."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return type(value).__name__


def eventually(what: Callable[[], bool]) -> None:
    """Waits for what happens a moment after a client has read its answer, or has left."""
    deadline = time.monotonic() + _PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)

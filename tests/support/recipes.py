"""The recipes of docs/: their programs, taken from the pages, and servers started with the commands that those show."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.checkpoints import models
from support.event_loops import until
from support.paths import ROOT

if TYPE_CHECKING:
    from typing_extensions import Self

PROGRAM = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)

_TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "


def page(name: str) -> str:
    """The text of ``docs/how-to/NAME.md``."""
    return (ROOT / "docs" / "how-to" / f"{name}.md").read_text()


def write_programs(name: str, directory: Path) -> Path:
    """Writes the programs that the page shows, each under the name in its first line. Returns the directory."""
    for file, program in PROGRAM.findall(page(name)):
        (directory / file).write_text(program)
    return directory


def cells(name: str) -> list[str]:
    """The Python blocks of a page that shows a notebook."""
    return CELL.findall(page(name))


def command(name: str, start: str) -> list[str]:
    """The line of the page that begins so, as a list of words that run with this Python."""
    lines = [line[2:] for block in CONSOLE.findall(page(name)) for line in block.splitlines() if line.startswith("$ ")]
    (line,) = [line for line in lines if line.startswith(start)]
    program, *words = shlex.split(line)
    return [sys.executable, *words] if program == "python" else [sys.executable, "-m", program, *words]


def write_talker(path: Path) -> Path:
    """A model with a chat template that hardly ever stops by itself: its weights are random.

    It has layers enough to be slow: what a test asks of a busy server has to happen while it is still busy.
    """
    vocabulary = {**models.byte_vocabulary(), "tokenizer.chat_template": _TEMPLATE}
    return models.write_llama(path, vocabulary, n_layer=96, context_length=32768)


def chat(content: str = "Hello", **fields: object) -> dict[str, Any]:
    """Return a chat request for the pages' servers."""
    return {"messages": [{"role": "user", "content": content}], **fields}


#: A request that is still being answered when the test has done what it wants.
LONG = chat(max_tokens=4096)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Server:
    """A server that runs.

    Attributes:
        process: it.
        port: where it listens.
        log: what it has written.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def open(self, path: str, body: object = None) -> Answer:
        """Asks, and returns when the headers are there."""
        return Answer(self.port, path, body)

    def ask(self, path: str, body: object = None) -> Any:
        """The whole answer, which must be JSON."""
        with self.open(path, body) as answer:
            assert answer.status == 200, answer.read()
            return json.loads(answer.read())

    def complaints(self) -> str:
        """Return its log from the first traceback on; empty if there was none."""
        written = self.log.read_text()
        return written[written.find("Traceback") :] if "Traceback" in written else ""

    def is_idle(self) -> bool:
        stats: dict[str, int] = self.ask("/stats")
        return stats["n_requests"] == stats["n_finished"] and stats["n_running"] == stats["n_queued"] == 0


class Answer:
    """A response whose headers have arrived."""

    def __init__(self, port: int, path: str, body: object) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.headers = self._response.headers

    def read(self) -> str:
        return self._response.read().decode()

    def some(self) -> str:
        """Read what has arrived, and at least one byte."""
        return self._response.read1().decode(errors="replace")

    def close(self) -> None:
        """Goes away, whatever is still to come."""
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def serve(start: list[str], directory: Path, port: int, **environment: str) -> Iterator[Server]:
    """Runs a server until the block is left, which must end it in good order."""
    log = directory / "server.log"
    variables = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
    with (
        log.open("wb") as file,
        subprocess.Popen(
            start, cwd=directory, env=variables, stdout=file, stderr=file, start_new_session=True
        ) as process,
    ):
        try:
            until(lambda: process.poll() is not None or _listens(port))
            assert process.poll() is None, log.read_text()
            yield Server(process, port, log)
            process.terminate()
            assert process.wait(60) in (0, -signal.SIGTERM), log.read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

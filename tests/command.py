"""The command as a user starts it: in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pexpect
import pyte

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Run:
    """What became of it."""

    code: int
    out: str
    err: str


def pyggml(*arguments: object, stdin: str = "", env: dict[str, str] | None = None, **options: Any) -> Run:
    """Runs ``pyggml arguments``; its output is no terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "pyggml", *map(str, arguments)],
        input=stdin,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def fails(code: int, *arguments: object, **options: Any) -> str:
    """Runs a command that must fail in one line without a traceback, and returns that line."""
    done = pyggml(*arguments, **options)
    assert done.code == code, done
    assert done.err.startswith("pyggml"), done.err
    assert done.err.count("\n") == 1, done.err
    return done.err


def interrupted(*arguments: object, once: Callable[[], object]) -> Run:
    """Starts a command, and presses Ctrl-C when ``once()`` says so."""
    command = [sys.executable, "-m", "pyggml", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not once():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    return Run(process.returncode, out, err)


class Terminal:
    """A command on a terminal of its own, and what its screen shows; a context manager."""

    def __init__(self, *arguments: object, columns: int = 80, lines: int = 50) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
        self._child = pexpect.spawn(
            sys.executable,
            ["-m", "pyggml", *map(str, arguments)],
            dimensions=(lines, columns),
            env=cast("Any", {**env, "TERM": "xterm-256color"}),
            timeout=60,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close(force=True)

    @property
    def text(self) -> str:
        """What is to be read on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def shows_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    def until(self, pattern: str) -> str:
        """Waits until the screen shows something, and returns the screen."""
        while not re.search(pattern, self.text):
            assert self._read(), f"{pattern!r} never came; at the end:\n{self.text}"
        return self.text

    def press(self, keys: str) -> None:
        self._child.send(keys)

    def end(self) -> int:
        """Waits for the end of the command, and returns its exit code."""
        while self._read():
            pass
        self._child.close()
        code: int | None = self._child.exitstatus
        assert code is not None, f"ended by signal {self._child.signalstatus}"
        return code

    def _read(self) -> bool:
        try:
            self._stream.feed(self._child.read_nonblocking(4096))
        except pexpect.EOF:
            return False
        return True

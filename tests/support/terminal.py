"""A terminal to run the command in: what a user sees, cell by cell, and what a user types."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyte

if TYPE_CHECKING:
    from typing_extensions import Self

LINES = 24
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
_PATIENCE_S = 120.0  # for a machine that has other things to do
# A session of its own takes the first terminal that it opens for its controlling one, which Ctrl-C needs.
_ENTER = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


class _Screen(pyte.HistoryScreen):
    """One that answers where its cursor is, as terminals do."""

    def __init__(self, columns: int, answer: Callable[[str], object]) -> None:
        super().__init__(columns, LINES, history=10_000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """``pyggml arguments``, or another Python program, in a terminal of so many columns.

    Attributes:
        raw: all that it was sent, escape sequences included.
    """

    def __init__(
        self,
        *arguments: object,
        program: Sequence[str] = ("-m", "pyggml"),
        columns: int = 80,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.columns = columns
        self.raw = ""
        self._typed_at = 0
        self._screen = _Screen(columns, lambda answer: os.write(self._keyboard, answer.encode()))
        self._stream = pyte.ByteStream(self._screen)
        self._keyboard, line = os.openpty()
        _set_size(line, columns)
        inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ENTER, *program, *map(str, arguments)],
            stdin=line,
            stdout=line,
            stderr=line,
            start_new_session=True,
            env={**inherited, "TERM": "xterm-256color", **(env or {})},
            cwd=cwd,
        )
        os.close(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._keyboard)

    def resize(self, columns: int) -> None:
        """Makes it narrower or wider, as somebody who drags the window's edge. A prompt is then drawn again."""
        self._typed_at = len(self.raw)
        self.columns = columns
        self._screen.resize(LINES, columns)
        _set_size(self._keyboard, columns)

    def send(self, keys: str) -> None:
        """Types, or pastes."""
        self._typed_at = len(self.raw)
        data = keys.encode()
        while data:
            self._read(0.0)  # a terminal takes no more keys while its own output waits
            if select.select([], [self._keyboard], [], 0.05)[1]:
                data = data[os.write(self._keyboard, data[:512]) :]

    def paste(self, text: str) -> None:
        """As terminals do: marked, with line ends as Enter sends them."""
        self.send("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~")

    def shows(self, text: str) -> bool:
        """Return True if it shows a text, wherever lines are broken."""
        return "".join(text.split()) in "".join(self.text.split())

    def wait_for(self, text: str) -> None:
        """Until it is shown."""
        self.wait_until(lambda: self.shows(text), repr(text))

    def wait_for_match(self, pattern: str) -> str:
        """Until a row shows something like it; returns that."""
        found: list[str] = []

        def matches() -> bool:
            found[:] = [match[0] for row in self.rows if (match := re.search(pattern, row))]
            return bool(found)

        self.wait_until(matches, repr(pattern))
        return found[0]

    def wait_for_prompt(self) -> None:
        """Until there is a prompt with nothing behind it that was not there at the last key or resize."""
        self.wait_until(lambda: self.rows[-1] == ">>>" and ">>>" in self.raw[self._typed_at :], "prompt")

    def say(self, text: str) -> None:
        """Types a line, and waits for the prompt after it."""
        self.send(text + "\r")
        self.wait_for_prompt()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            ended = self._process.poll() is not None
            while self._read(0.1) and ended:
                pass
            if condition():
                return
            assert not ended, f"it ended with {self._process.returncode} before {what}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {what} in:\n{self.text}\n{self.raw[-2000:]!r}"

    def wait_for_exit(self, *, again: str = "") -> int:
        """The exit code.

        Args:
            again: is typed every few seconds until then: Ctrl-C, where a process may have been about to read a line,
                and notices it with the next key.
        """
        deadline = time.monotonic() + _PATIENCE_S
        typed = time.monotonic()
        while self._process.poll() is None:
            self._read(0.1)
            if again and time.monotonic() > typed + 5:
                self.send(again)
                typed = time.monotonic()
            assert time.monotonic() < deadline, f"it goes on:\n{self.text}"
        while self._read(0.0):
            pass
        return self._process.returncode

    @property
    def rows(self) -> list[str]:
        """Return the rows shown, as they are seen, with those scrolled away; without the empty ones at the end."""
        cells = [*self._screen.history.top, *(self._screen.buffer[row] for row in range(LINES))]
        text = "\n".join("".join(row[column].data for column in range(self.columns)).rstrip() for row in cells)
        return text.rstrip("\n").split("\n")

    @property
    def text(self) -> str:
        """The rows as one text."""
        return "\n".join(self.rows)

    @property
    def shows_cursor(self) -> bool:
        """Return True if the cursor was left visible."""
        return not self._screen.cursor.hidden

    @property
    def styles(self) -> set[str]:
        """The escape sequences for colours and the like that it was sent, but for those that end them."""
        return set(_STYLE.findall(self.raw)) - {"", "0"}

    def _read(self, timeout_s: float) -> bool:
        """Read what there is; return False if there was nothing."""
        if not select.select([self._keyboard], [], [], timeout_s)[0]:
            return False
        data = b""
        with contextlib.suppress(OSError):  # the other end is closed
            data = os.read(self._keyboard, 65_536)
        self.raw += data.decode(errors="replace")
        self._stream.feed(data)
        return bool(data)


def _set_size(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))

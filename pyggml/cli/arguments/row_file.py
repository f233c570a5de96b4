"""Files of rows that commands read, also from standard input."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import click

from pyggml.units import seconds_text

# Seconds between progress lines in a log, and between updates of the progress line on a terminal.
_LOG_INTERVAL_S, _TERMINAL_INTERVAL_S = 10.0, 0.5


@contextlib.contextmanager
def row_file(source: str) -> Iterator[str]:
    """Yield the path of a file of rows; for "-", of a copy of standard input: JSON lines or plain text."""
    if source != "-":
        yield source
        return
    content = sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory(prefix="pyggml-") as folder:
        path = Path(folder) / ("stdin.jsonl" if content.lstrip()[:1] == b"{" else "stdin.txt")
        path.write_bytes(content)
        yield str(path)


class Progress(Protocol):
    """Progress of a job over rows."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_done(self) -> int:
        """Rows that are done."""

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the job is done; None: not known yet."""


P = TypeVar("P", bound=Progress)


class ProgressPrinter(Generic[P]):
    """Periodic progress output on standard error."""

    def __init__(self, summary: Callable[[P], str]) -> None:
        """Print what ``summary`` returns for a state of the job."""
        self._summary = summary
        self._is_terminal = sys.stderr.isatty()
        self._interval_s = _TERMINAL_INTERVAL_S if self._is_terminal else _LOG_INTERVAL_S
        self._printed_s = time.monotonic()

    def __call__(self, state: P) -> None:
        """Print the state, unless the last line was printed a moment ago."""
        now = time.monotonic()
        is_last = state.n_done == state.n_rows
        if now - self._printed_s < self._interval_s and not is_last:
            return
        self._printed_s = now
        left = "" if state.left_s is None or is_last else f", {seconds_text(state.left_s)} left"
        if self._is_terminal:
            click.echo(f"\r\x1b[K{'' if is_last else self._summary(state) + left}", err=True, nl=False)
        elif not is_last:
            click.echo(f"{self._summary(state)}{left}", err=True)

"""Output of generated text: sanitised and wrapped on a terminal, unchanged for programs."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from pyggml import Completion
    from pyggml.cli.show.wrapping import WordWrap

_DEFAULT_COLUMNS = 80
_FIRST_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

# Control characters in generated text -> visible symbols.
_SANITISED = (
    {code: 0x2400 + code for code in range(0x20)}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
    | {0x7F: 0x2421, ord("\n"): ord("\n"), ord("\t"): ord("\t"), ord("\r"): None}
)


def supports_escapes(stream: TextIO) -> bool:
    """Return True for a terminal that supports escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class Screen:
    """Standard output for generated text.

    Attributes:
        is_terminal: True if the output is a terminal.
        wraps: word wrap, on a terminal that supports escape sequences.
    """

    def __init__(self) -> None:
        self._file: TextIO = sys.stdout
        self.is_terminal = self._file.isatty()
        self.wraps = True
        self._supports_escapes = supports_escapes(self._file)
        self._at_line_start = True
        self._wrap: WordWrap | None = None
        if self._supports_escapes:
            from pyggml.cli.show.wrapping import WordWrap  # imports rich, which only terminals need

            self._wrap = WordWrap()

    def write(self, text: str, *, dim: bool = False) -> None:
        """Write and flush generated text."""
        if not text:
            return
        self._at_line_start = text.endswith("\n")
        if self.is_terminal:
            text = text.translate(_SANITISED)
        if self._wrap is not None and self.wraps:
            text = self._wrap.feed(text, self._columns())
        self._send(text, dim=dim)

    def end_line(self) -> None:
        """End the current line, if there is one."""
        if not self._at_line_start:
            self._send("\n")
        self.reset_line()

    def reset_line(self) -> None:
        """Reset the state to the start of a line, after other output has ended the line."""
        self._at_line_start = True
        if self._wrap is not None:
            self._wrap.end_line()

    def note(self, text: str) -> None:
        """Print a message; on standard error if the output is not a terminal."""
        self.end_line()
        if self.is_terminal:
            for line in text.split("\n"):
                self._send(_fill(line.translate(_SANITISED), self._columns()) + "\n")
        else:
            click.echo(text, err=True)

    def _send(self, text: str, *, dim: bool = False) -> None:
        is_dim = dim and self._supports_escapes and not os.environ.get("NO_COLOR")
        self._file.write(f"{_DIM}{text}{_PLAIN}" if is_dim else text)
        self._file.flush()

    def _columns(self) -> int:
        """Return the terminal's current width. The variable COLUMNS does not change when the terminal is resized."""
        try:
            return os.get_terminal_size(self._file.fileno()).columns or _DEFAULT_COLUMNS
        except OSError:  # a terminal without a size
            return _DEFAULT_COLUMNS


def _fill(line: str, columns: int) -> str:
    """Wrap a line between words, with a hanging indent at the second column of a two-column row."""
    first = _FIRST_COLUMN.match(line)
    n_indent = len(first[0]) if first and len(first[0]) <= columns // 2 else 2
    return textwrap.fill(line, columns, subsequent_indent=" " * n_indent)


def stats_line(done: Completion) -> str:
    """Return the tokens and speed of a generation."""
    cached = f" ({done.cached_tokens:,} cached)" if done.cached_tokens else ""
    timings = done.timings
    rate = f", {timings.tokens_per_s:,.1f} tokens/s" if timings.tokens_per_s else ""  # one token has none
    delay = f"{timings.ttft_s:.2f} s" if timings.ttft_s >= 1 else f"{timings.ttft_s * 1000:.1f} ms"
    prompt = f"{done.prompt_tokens:,} prompt token{'s' * (done.prompt_tokens != 1)}"
    return f"{prompt}{cached}, {len(done.token_ids):,} generated, first after {delay}{rate}"

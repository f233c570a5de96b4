"""Where generated text goes: a terminal, which it must not garble, or a program, which gets the bare text."""

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

_USUAL_COLUMNS = 80
_FIRST_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

# What a model writes may contain control characters: they are shown, and not sent to the terminal.
_HARMLESS = (
    {code: 0x2400 + code for code in range(0x20)}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
    | {0x7F: 0x2421, ord("\n"): ord("\n"), ord("\t"): ord("\t"), ord("\r"): None}
)


def obeys_escapes(stream: TextIO) -> bool:
    """Whether it is a terminal that understands escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class Screen:
    """Shows text as it is generated.

    Attributes:
        is_terminal: whether a person reads it.
        wraps: break its lines between words; never where the output is not a terminal that obeys escape sequences.
    """

    def __init__(self) -> None:
        """Writes to standard output."""
        self._file: TextIO = sys.stdout
        self.is_terminal = self._file.isatty()
        self.wraps = True
        self._obeys = obeys_escapes(self._file)
        self._at_line_start = True
        self._wrap = _word_wrap() if self._obeys else None

    def write(self, text: str, *, dim: bool = False) -> None:
        """Shows more of the generated text, at once."""
        if not text:
            return
        self._at_line_start = text.endswith("\n")
        if self.is_terminal:
            text = text.translate(_HARMLESS)
        if self._wrap is not None and self.wraps:
            text = self._wrap.shown(text, self._columns())
        self._send(text, dim=dim)

    def end_line(self) -> None:
        """Ends the line, unless it has ended."""
        if not self._at_line_start:
            self._send("\n")
        self.forget_line()

    def forget_line(self) -> None:
        """Notes that something else has ended the line."""
        self._at_line_start = True
        if self._wrap is not None:
            self._wrap.end_line()

    def note(self, text: str) -> None:
        """Says something that is not generated. If the output is not a terminal, it goes to standard error."""
        self.end_line()
        if self.is_terminal:
            for line in text.split("\n"):
                self._send(_filled(line.translate(_HARMLESS), self._columns()) + "\n")
        else:
            click.echo(text, err=True)

    def _send(self, text: str, *, dim: bool = False) -> None:
        self._file.write(f"{_DIM}{text}{_PLAIN}" if dim and self._obeys and not os.environ.get("NO_COLOR") else text)
        self._file.flush()

    def _columns(self) -> int:
        """How wide the terminal is now. COLUMNS does not count: it stays the same when somebody resizes it."""
        try:
            return os.get_terminal_size(self._file.fileno()).columns or _USUAL_COLUMNS
        except OSError:  # a terminal that does not say
            return _USUAL_COLUMNS


def _filled(line: str, columns: int) -> str:
    """A line broken between words. What continues a row of two columns stands below the second."""
    first = _FIRST_COLUMN.match(line)
    n_indent = len(first[0]) if first and len(first[0]) <= columns // 2 else 2
    return textwrap.fill(line, columns, subsequent_indent=" " * n_indent)


def _word_wrap() -> WordWrap:
    from pyggml.cli.show.wrapping import WordWrap  # imports rich, which nobody needs whose output goes to a program

    return WordWrap()


def stats_line(done: Completion) -> str:
    """How many tokens a generation took, and how fast they came."""
    cached = f" ({done.cached_tokens:,} cached)" if done.cached_tokens else ""
    timings = done.timings
    rate = f", {timings.tokens_per_s:,.1f} tokens/s" if timings.tokens_per_s else ""  # one token has none
    return (
        f"{done.prompt_tokens:,} prompt token{'s' * (done.prompt_tokens != 1)}{cached}, {len(done.token_ids):,} "
        f"generated, first after {_duration(timings.ttft_s)}{rate}"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"

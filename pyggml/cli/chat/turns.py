'''What a user says, turn by turn: a turn is a line, or what stands between two fences, which are """.'''

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyggml.cli._interrupts import Interrupts
    from pyggml.cli.show.screen import Screen

PROMPT = ">>> "
_FENCE = '"""'


class Reader(Protocol):
    """Reads what is typed."""

    def read(self) -> str:
        """The next turn.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            EOFError: there is none.
        """

    @property
    def is_empty(self) -> bool:
        """Whether the line was, when the last :meth:`read` ended."""


class PlainReader:
    """Leaves editing to a terminal that obeys no escape sequences."""

    is_empty = True

    def __init__(self, screen: Screen, interrupts: Interrupts) -> None:
        """Prompts on a screen."""
        self._screen = screen
        self._interrupts = interrupts

    def read(self) -> str:
        """As :class:`Reader`."""
        text = ""
        while not text or is_open(text):
            self._screen.write(PROMPT if not text else "... ")
            with self._interrupts.raising():
                line = sys.stdin.readline()
            if not line:
                raise EOFError
            text += line
            self._screen.forget_line()
        return text


def typed(reader: Reader, screen: Screen) -> Iterator[str]:
    """The turns that are typed, until the end of input, or Ctrl-C for the second time."""
    is_leaving = False
    while True:
        try:
            turn = unfenced(reader.read())
        except EOFError:
            return
        except KeyboardInterrupt:
            if is_leaving and reader.is_empty:
                return
            is_leaving = True
            screen.note("Ctrl-C again, Ctrl-D or /exit leaves.")
            continue
        is_leaving = False
        if turn.strip():
            yield turn


def turns_of(lines: Iterable[str]) -> Iterator[str]:
    """The turns that lines make; empty ones are left out, and the end closes a fence."""
    text = ""
    for line in lines:
        text += line
        if not is_open(text):
            if (turn := unfenced(text)).strip():
                yield turn
            text = ""
    if (turn := unfenced(text)).strip():
        yield turn


def is_open(text: str) -> bool:
    """Whether it begins with a fence and does not end with another."""
    body = text.strip()
    return body.startswith(_FENCE) and not (body.endswith(_FENCE) and len(body) >= 2 * len(_FENCE))


def unfenced(text: str) -> str:
    """The turn without the fences around it, or without the line's end."""
    body = text.strip()
    if body.startswith(_FENCE):
        return body.removeprefix(_FENCE).removesuffix(_FENCE).strip("\n")
    return text.strip("\r\n")

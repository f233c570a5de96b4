'''What a user types: one input is a line, or what stands between two fences, which are """.'''

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyggml.cli.interrupts import Interrupts
    from pyggml.cli.show.screen import Screen

PROMPT = ">>> "
_FENCE = '"""'


class Reader(Protocol):
    """Reads what is typed, one input at a time."""

    def read(self) -> str:
        """The next input.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            EOFError: Ctrl-D, or the end of the input.
        """

    @property
    def is_empty(self) -> bool:
        """Whether nothing had been typed when the last :meth:`read` ended."""


class PlainReader:
    """Leaves editing to a terminal that understands no escape sequences."""

    is_empty = True

    def __init__(self, screen: Screen, interrupts: Interrupts) -> None:
        """Prompts on a screen."""
        self._screen = screen
        self._interrupts = interrupts

    def read(self) -> str:
        """As :class:`Reader`."""
        text = ""
        while not text or is_open(text):
            with self._interrupts.raising():
                self._screen.write(PROMPT if not text else "... ")
                self._interrupts.wait_for_line(sys.stdin)
                line = sys.stdin.readline()
            if not line:
                raise EOFError
            text += line
            self._screen.forget_line()
        return text


def typed_inputs(reader: Reader, screen: Screen) -> Iterator[str]:
    """What is typed, until Ctrl-D or a second Ctrl-C; empty inputs are left out."""
    is_leaving = False
    while True:
        try:
            text = unfenced(reader.read())
        except EOFError:
            return
        except KeyboardInterrupt:
            if is_leaving and reader.is_empty:
                return
            is_leaving = True
            screen.note("To leave: Ctrl-C again, Ctrl-D or /exit.")
            continue
        is_leaving = False
        if text.strip():
            yield text


def inputs_of(lines: Iterable[str]) -> Iterator[str]:
    """The inputs that lines make up; empty ones are left out, and the last line closes an open fence."""
    text = ""
    for line in lines:
        text += line
        if not is_open(text):
            if (whole := unfenced(text)).strip():
                yield whole
            text = ""
    if (rest := unfenced(text)).strip():
        yield rest


def is_open(text: str) -> bool:
    """Whether it begins with a fence that is not closed yet."""
    body = text.strip()
    return body.startswith(_FENCE) and not (body.endswith(_FENCE) and len(body) >= 2 * len(_FENCE))


def unfenced(text: str) -> str:
    """The input without the fences around it, or without the newline at its end."""
    body = text.strip()
    if body.startswith(_FENCE):
        return body.removeprefix(_FENCE).removesuffix(_FENCE).strip("\n")
    return text.strip("\r\n")

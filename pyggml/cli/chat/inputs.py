'''The inputs of a chat: an input is a line, or a text between two fences, which are """.'''

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyggml.cli.chat.editor import Editor
    from pyggml.cli.interrupts import Interrupts
    from pyggml.cli.show.screen import Screen

PROMPT = ">>> "
_FENCE = '"""'


class PlainReader:
    """Reader for terminals without escape sequences, which edit lines themselves. See also :class:`Editor`.

    Attributes:
        is_empty: True if the line was empty when the last :meth:`read` ended.
    """

    is_empty = True

    def __init__(self, screen: Screen, interrupts: Interrupts) -> None:
        self._screen = screen
        self._interrupts = interrupts

    def read(self) -> str:
        """Read the next input; raise KeyboardInterrupt for Ctrl-C, and EOFError for Ctrl-D."""
        text = ""
        while not text or has_open_fence(text):
            with self._interrupts.raising():
                self._screen.write(PROMPT if not text else "... ")
                self._interrupts.wait_for_line(sys.stdin)
                line = sys.stdin.readline()
            if not line:
                raise EOFError
            text += line
            self._screen.reset_line()
        return text


def typed_inputs(reader: Editor | PlainReader, screen: Screen) -> Iterator[str]:
    """Read inputs until Ctrl-D or a second Ctrl-C, skipping empty ones."""
    is_leaving = False
    while True:
        try:
            text = strip_fence(reader.read())
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


def inputs_from_lines(lines: Iterable[str]) -> Iterator[str]:
    """Join lines into inputs, skipping empty ones. The end of the lines closes an open fence."""
    text = ""
    for line in lines:
        text += line
        if not has_open_fence(text):
            if (whole := strip_fence(text)).strip():
                yield whole
            text = ""
    if (rest := strip_fence(text)).strip():
        yield rest


def has_open_fence(text: str) -> bool:
    """Return True if a text starts with a fence that is not closed yet."""
    body = text.strip()
    return body.startswith(_FENCE) and not (body.endswith(_FENCE) and len(body) >= 2 * len(_FENCE))


def strip_fence(text: str) -> str:
    """Remove the fences around an input, or its last newline."""
    body = text.strip()
    if body.startswith(_FENCE):
        return body.removeprefix(_FENCE).removesuffix(_FENCE).strip("\n")
    return text.strip("\r\n")

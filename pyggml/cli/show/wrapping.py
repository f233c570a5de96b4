"""Breaks generated text between words, while it is being generated."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import get_character_cell_size

# Narrower terminals are left to break lines wherever they like.
_NARROWEST = 10
_TAB_STOP = 8
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
# A row of a table, or code that is indented and not the item of a list: no line break may be added to those.
_PREFORMATTED = re.compile(r"\s*\||(?: {4}|\t)(?!\s*(?:[-*+]|\d+[.)])\s)")
# Categories of characters that never begin a line of Chinese or Japanese, and those that never end one.
# Parts of one emoji stay together, too.
_NEVER_FIRST, _NEVER_LAST = ("Pe", "Pf", "Po", "Sk", "Cf"), ("Ps", "Pi", "Cf")


class WordWrap:
    """Turns text into what a terminal is to be sent, so that its lines end between words.

    What comes is shown at once, also the beginning of a word. A word that turns out not to fit is taken back and begins
    the next line. Spaces wait until something follows them, and those at the end of a line are left out. Fenced and
    indented code, and rows of tables, get no line breaks, so that they can be copied.
    """

    def __init__(self) -> None:
        """Begins at the start of a line."""
        self._columns = 0
        self._column = 0  # cells that the row has now
        self._spaces = ""  # not shown yet
        self._word = ""  # the part of the last word that is shown and could still be moved
        self._line = ""  # the line of the text, which may take several rows
        self._fence = ""  # what opened the code that the line is part of

    def shown(self, text: str, columns: int) -> str:
        """What to send for more of the text.

        Args:
            text: what comes next; without control characters, but for tabs and line feeds.
            columns: how many cells the terminal's rows have now.
        """
        if columns != self._columns:
            self._resized(columns)
        return "".join(map(self._character, text))

    def end_line(self) -> None:
        """Notes that something else has ended the line, and the text."""
        self._column, self._spaces, self._word, self._line, self._fence = 0, "", "", "", ""

    def _resized(self, columns: int) -> None:
        # Most terminals break the rows anew. What is there can no longer be taken back.
        self._columns = columns
        self._column %= columns
        self._word = ""

    def _character(self, character: str) -> str:
        if character == "\n":
            return self._line_feed()
        self._line += character
        if character in " \t":
            self._spaces += character
            return ""
        return self._visible(character)

    def _line_feed(self) -> str:
        fence = _FENCE.match(self._line)
        if fence and not self._fence:
            self._fence = fence[1]
        elif fence and fence[1].startswith(self._fence) and not fence[2].strip():
            self._fence = ""
        self._column, self._spaces, self._word, self._line = 0, "", "", ""
        return "\n"

    def _visible(self, character: str) -> str:
        width = get_character_cell_size(character)
        begins_word = bool(self._spaces) or _may_break(self._word[-1:], character)
        spaces, self._spaces = self._spaces, ""
        self._word = character if begins_word else self._word + character
        # The last column stays free: how far left a cursor at the margin can be taken depends on the terminal.
        if self._after(spaces) + width < self._columns:
            self._column = self._after(spaces) + width
            return spaces + character
        if self._can_wrap():
            return self._on_next_row(character, begins_word)
        self._column = self._wrapped_by_terminal(spaces + character)
        return spaces + character

    def _on_next_row(self, character: str, begins_word: bool) -> str:
        n_shown = 0 if begins_word else _width(self._word[:-1])
        if not begins_word and self._column <= n_shown:  # the word began at the margin: it is longer than a row
            self._column = self._wrapped_by_terminal(character)
            return character
        line_feed = "\n" if self._column else ""
        self._column = _width(self._word)
        return (f"\x1b[{n_shown}D\x1b[K" if n_shown else "") + line_feed + self._word

    def _after(self, spaces: str) -> int:
        """The column behind spaces and tabs, were the row long enough for them."""
        column = self._column
        for space in spaces:
            column += 1 if space == " " else _TAB_STOP - column % _TAB_STOP
        return column

    def _wrapped_by_terminal(self, text: str) -> int:
        """The column behind a text that the terminal breaks wherever its rows end."""
        column = self._column
        for character in text:
            if character == "\t":
                column = min(column + _TAB_STOP - column % _TAB_STOP, self._columns - 1)
            else:
                width = get_character_cell_size(character)
                column = column + width if column + width <= self._columns else width
        return column

    def _can_wrap(self) -> bool:
        if self._columns < _NARROWEST or self._fence:
            return False
        return not (_PREFORMATTED.match(self._line) or _FENCE.match(self._line))


def _may_break(before: str, after: str) -> bool:
    """Whether a line may end between two characters that no space parts: only beside a wide one."""
    if not before:
        return True
    if get_character_cell_size(before) < 2 and get_character_cell_size(after) < 2:
        return False
    return (
        get_character_cell_size(after) > 0
        and unicodedata.category(after) not in _NEVER_FIRST
        and unicodedata.category(before) not in _NEVER_LAST
    )


def _width(text: str) -> int:
    return sum(map(get_character_cell_size, text))

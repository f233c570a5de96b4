"""Word wrap of generated text, while it is being generated."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import get_character_cell_size

# Narrower terminals break lines themselves.
_MIN_COLUMNS = 10
_TAB_STOP = 8
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
# A row of a table, or indented code that is not a list item: these are not wrapped.
_PREFORMATTED = re.compile(r"\s*\||(?: {4}|\t)(?!\s*(?:[-*+]|\d+[.)])\s)")
# Unicode categories that never start a line of Chinese or Japanese, and those that never end one. Cf keeps
# an emoji together.
_NEVER_FIRST, _NEVER_LAST = ("Pe", "Pf", "Po", "Sk", "Cf"), ("Ps", "Pi", "Cf")


class WordWrap:
    """Incremental word wrap: converts text to terminal output whose lines end between words.

    All text is shown at once, including the first part of a word. A word that does not fit is erased and moved to the
    next line. Spaces are held back until a word follows, and dropped at the end of a line. Code blocks and rows of
    tables are not wrapped, so that they can be copied.
    """

    def __init__(self) -> None:
        self._columns = 0
        self._column = 0  # of the cursor, in cells
        self._spaces = ""  # held back
        self._word = ""  # the shown part of the last word, which can still be moved
        self._line = ""  # the line of the text, which may take several rows
        self._fence = ""  # the opening fence of the current code block

    def feed(self, text: str, columns: int) -> str:
        """Return the output for more text without control characters, on a terminal of so many cells per row."""
        if columns != self._columns:
            self._resize(columns)
        return "".join(map(self._character, text))

    def end_line(self) -> None:
        """Reset the state after other output has ended the line and the text."""
        self._column, self._spaces, self._word, self._line, self._fence = 0, "", "", "", ""

    def _resize(self, columns: int) -> None:
        # Most terminals reflow the rows, so that the shown word can no longer be erased.
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
        # Keep the last column free: cursor movement from the margin depends on the terminal.
        if self._after(spaces) + width < self._columns:
            self._column = self._after(spaces) + width
            return spaces + character
        if self._can_wrap():
            return self._on_next_row(character, begins_word)
        self._column = self._wrapped_by_terminal(spaces + character)
        return spaces + character

    def _on_next_row(self, character: str, begins_word: bool) -> str:
        n_shown = 0 if begins_word else _width(self._word[:-1])
        if not begins_word and self._column <= n_shown:  # the word is longer than a row
            self._column = self._wrapped_by_terminal(character)
            return character
        line_feed = "\n" if self._column else ""
        self._column = _width(self._word)
        return (f"\x1b[{n_shown}D\x1b[K" if n_shown else "") + line_feed + self._word

    def _after(self, spaces: str) -> int:
        """Return the column after spaces and tabs, on a row of unlimited length."""
        column = self._column
        for space in spaces:
            column += 1 if space == " " else _TAB_STOP - column % _TAB_STOP
        return column

    def _wrapped_by_terminal(self, text: str) -> int:
        """Return the column after a text that the terminal itself wraps."""
        column = self._column
        for character in text:
            if character == "\t":
                column = min(column + _TAB_STOP - column % _TAB_STOP, self._columns - 1)
            else:
                width = get_character_cell_size(character)
                column = column + width if column + width <= self._columns else width
        return column

    def _can_wrap(self) -> bool:
        if self._columns < _MIN_COLUMNS or self._fence:
            return False
        return not (_PREFORMATTED.match(self._line) or _FENCE.match(self._line))


def _may_break(before: str, after: str) -> bool:
    """Return True if a line may end between two characters without a space: only next to a wide one."""
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

"""Quoting: special tokens in messages stay plain text, while the template's own are interpreted.

A template writes its special tokens as text, so its prompt must be encoded with ``parse_special``, and then a user who
writes ``<|im_end|>`` would end the turn. A rendered prompt does not show which parts come from messages, and the
template may trim, cut, join, replace and escape them. So the messages are marked and rendered a second time:

1. Every character in a message that could begin a special token (mostly ``<``) is preceded by a mark: a random number
   of 24 digits. Digits survive trimming, changes of case, JSON and so on, and an author of a message cannot guess them.
2. Whatever the template did to the messages, a special token without a mark in front must be the template's own.
3. If the unmarked prompt contains only the template's own special tokens, it is used unchanged. Otherwise the marked
   prompt is split at the template's own tokens, where tokenizers split first anyway. The marks are then removed from
   the text in between, and texts that had marks are encoded without special tokens.

So a prompt without injected tokens has exactly the token ids of its text, and one with injected tokens differs only in
those.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping

from pyggml.tokenizer import Tokenizer

_MARK_DIGITS = 24
_BLANKS = " \t\n\v\f\r"
_NOTHING = "(?!)"  # matches nowhere


class SpecialTexts:
    """The texts that a tokenizer reads as special tokens only on request. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Read the texts from the tokenizer."""
        self._strips = {text: blanks for text, blanks in tokenizer.special_texts.items() if text}
        texts = sorted(self._strips, key=len, reverse=True)  # tokenizers prefer longer ones
        first = "".join(sorted({case for text in texts for case in (text[0], text[0].lower(), text[0].upper())}))
        self._any = "|".join(map(re.escape, texts)) or _NOTHING
        self._special = re.compile(self._any)
        self._beginning = re.compile(f"[{re.escape(first)}]" if first else _NOTHING)

    def may_occur_in(self, texts: Iterable[str]) -> bool:
        """Return True if any of these texts contains a character that could begin a special token."""
        return any(self._beginning.search(text) for text in texts)

    def find_all(self, prompt: str) -> list[str]:
        """Return the special texts in a prompt, in order."""
        return self._special.findall(prompt)

    def new_marks(self) -> Marks:
        """Create marks for one conversation."""
        return Marks(self._any, self._beginning, self._strips)


class Marks:
    """Marks in front of each character of a message that could begin a special token."""

    def __init__(self, special: str, beginning: re.Pattern[str], strips: Mapping[str, tuple[bool, bool]]) -> None:
        """Draw a random number.

        ``special`` and ``beginning`` match special tokens and their first characters; ``strips``: text of a token ->
        True if it strips blanks before it, and the same for blanks after it.
        """
        self._beginning = beginning
        self._strips = {**strips, "": (False, False)}
        self._mark = "".join(secrets.choice("0123456789") for _ in range(_MARK_DIGITS))
        self._marked_or_own = re.compile(f"{self._mark}(?:{special})?|({special})")

    def insert(self, text: str) -> str:
        """Insert the marks into a text."""
        return self._beginning.sub(lambda found: self._mark + found[0], text)

    def template_tokens(self, prompt: str) -> list[str]:
        """Return the special tokens that the template itself wrote into a marked prompt."""
        return [match[1] for match in self._template_matches(prompt)]

    def split(self, prompt: str) -> list[tuple[str, bool]]:
        """Split a marked prompt into parts for the tokenizer, and remove the marks.

        Returns:
            The text of each part, and True if special tokens in it, all of them the template's own, are interpreted.
        """
        parts: list[tuple[str, bool]] = []
        special, before, end = "", "", 0
        for match in (*self._template_matches(prompt), None):
            text, token = (prompt[end : match.start()], match[1]) if match else (prompt[end:], "")
            if self._mark in text:
                plain = self._stripped(before, text.replace(self._mark, ""), token)
                parts += [(special, True), (plain, False)]
                special = token
            else:
                special += text + token
            before, end = token, match.end() if match else end
        return [*parts, (special, True)]

    def _template_matches(self, prompt: str) -> list[re.Match[str]]:
        return [match for match in self._marked_or_own.finditer(prompt) if match[1]]

    def _stripped(self, before: str, text: str, behind: str) -> str:
        """Remove the blanks that the special tokens on either side strip."""
        text = text.lstrip(_BLANKS) if self._strips[before][1] else text
        return text.rstrip(_BLANKS) if self._strips[behind][0] else text

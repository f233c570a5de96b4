"""Quoting: keeps special tokens in messages as plain text, although the template's own are interpreted.

A template writes its special tokens as text, so its prompt must be encoded with ``parse_special``, and then a user who
writes ``<|im_end|>`` would end the turn. A template does not say which parts of the prompt come from messages, and it
may trim, cut, join, replace and escape them. So the messages are marked and rendered a second time:

1. Every character in a message that could begin a special token (mostly ``<``) gets a mark in front: a random number of
   24 digits. Digits survive trimming, changes of case, JSON and so on, and no author of a message can guess them.
2. Whatever the template did to the messages, a special token without a mark in front must be the template's own.
3. If the unmarked prompt contains only the template's own special tokens, it is used unchanged. Otherwise the marked
   prompt is cut at the template's own tokens, where tokenizers cut first anyway. The marks are then removed from the
   stretches in between, and stretches that had any are encoded as plain text.

So a prompt without smuggled tokens gets exactly the token ids of its text, and one with smuggled tokens differs only
where those are.
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
        """Gets the texts from the tokenizer."""
        self._swallows = {text: blanks for text, blanks in tokenizer.special_texts.items() if text}
        texts = sorted(self._swallows, key=len, reverse=True)  # tokenizers prefer longer ones
        first = "".join(sorted({case for text in texts for case in (text[0], text[0].lower(), text[0].upper())}))
        self._any = "|".join(map(re.escape, texts)) or _NOTHING
        self._special = re.compile(self._any)
        self._beginning = re.compile(f"[{re.escape(first)}]" if first else _NOTHING)

    def may_begin_in(self, texts: Iterable[str]) -> bool:
        """Whether any of these texts contains a character that could begin a special token."""
        return any(self._beginning.search(text) for text in texts)

    def of(self, prompt: str) -> list[str]:
        """The special texts in a prompt, in order."""
        return self._special.findall(prompt)

    def new_marks(self) -> Marks:
        """Marks for one conversation."""
        return Marks(self._any, self._beginning, self._swallows)


class Marks:
    """Marks in front of each character of a message that could begin a special token."""

    def __init__(self, special: str, beginning: re.Pattern[str], swallows: Mapping[str, tuple[bool, bool]]) -> None:
        """Draws a random number.

        Args:
            special: a regular expression that matches the texts of special tokens.
            beginning: a regular expression that matches their first characters.
            swallows: text -> whether the token swallows blanks before it, and after it.
        """
        self._beginning = beginning
        self._swallows = {**swallows, "": (False, False)}
        self._mark = "".join(secrets.choice("0123456789") for _ in range(_MARK_DIGITS))
        self._marked_or_own = re.compile(f"{self._mark}(?:{special})?|({special})")

    def put(self, text: str) -> str:
        """Adds the marks to a text."""
        return self._beginning.sub(lambda found: self._mark + found[0], text)

    def own(self, prompt: str) -> list[str]:
        """The special tokens that the template itself wrote into a marked prompt."""
        return [found[1] for found in self._own(prompt)]

    def parts(self, prompt: str) -> list[tuple[str, bool]]:
        """Splits a marked prompt into parts for the tokenizer, and removes the marks.

        Returns:
            The text of each part, and whether to interpret special tokens in it, all of which are the template's own.
        """
        parts: list[tuple[str, bool]] = []
        read, before, end = "", "", 0
        for found in (*self._own(prompt), None):
            stretch, own = (prompt[end : found.start()], found[1]) if found else (prompt[end:], "")
            if self._mark in stretch:
                plain = self._without_swallowed(before, stretch.replace(self._mark, ""), own)
                parts += [(read, True), (plain, False)]
                read = own
            else:
                read += stretch + own
            before, end = own, found.end() if found else end
        return [*parts, (read, True)]

    def _own(self, prompt: str) -> list[re.Match[str]]:
        return [found for found in self._marked_or_own.finditer(prompt) if found[1]]

    def _without_swallowed(self, before: str, text: str, behind: str) -> str:
        """Removes the blanks that the special tokens on either side swallow."""
        text = text.lstrip(_BLANKS) if self._swallows[before][1] else text
        return text.rstrip(_BLANKS) if self._swallows[behind][0] else text

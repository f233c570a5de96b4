"""Quoting: what looks like a special token in a message stays text, though the prompt around it is full of them.

A template writes its special tokens as text, so the prompt that it renders must be read with ``parse_special``, and
then a user who writes ``<|im_end|>`` ends the turn. Which parts of a prompt came from messages no template tells: it
trims, cuts, joins, replaces and escapes as it likes. So the messages are marked and rendered once more:

1. A mark goes in front of every character, in any message, that a special token could begin with (mostly ``<``). It is
   a number of 24 random digits: they go through trimming, changes of case, JSON and the like unharmed, and nobody who
   writes a message can know them.
2. Whatever became of the messages, a special token's text in the marked prompt with no mark in front began in the
   template: it is the template's own.
3. Where the unmarked prompt has just the template's own special tokens, it is taken as it is. Otherwise the marked one
   is cut at the template's own tokens, where tokenizers cut before they do anything else; the stretches between
   them lose their marks, and those that had any are encoded as plain text.

So a prompt into which nothing was smuggled has exactly the token ids of its text, and one into which something was has
those too but for what was smuggled.
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
    """The texts that a tokenizer reads as special tokens only when asked to. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Asks the tokenizer for them."""
        self._swallows = {text: blanks for text, blanks in tokenizer.special_texts.items() if text}
        texts = sorted(self._swallows, key=len, reverse=True)  # as tokenizers prefer them
        first = "".join(sorted({case for text in texts for case in (text[0], text[0].lower(), text[0].upper())}))
        self._any = "|".join(map(re.escape, texts)) or _NOTHING
        self._special = re.compile(self._any)
        self._beginning = re.compile(f"[{re.escape(first)}]" if first else _NOTHING)

    def may_begin_in(self, texts: Iterable[str]) -> bool:
        """Whether any of these texts holds a character that begins one."""
        return any(self._beginning.search(text) for text in texts)

    def of(self, prompt: str) -> list[str]:
        """Those of a prompt, in their order."""
        return self._special.findall(prompt)

    def new_marks(self) -> Marks:
        """Marks for one conversation."""
        return Marks(self._any, self._beginning, self._swallows)


class Marks:
    """What is put in front of each character of a message that could begin a special token."""

    def __init__(self, special: str, beginning: re.Pattern[str], swallows: Mapping[str, tuple[bool, bool]]) -> None:
        """Draws a number.

        Args:
            special: a regular expression that matches the special tokens' texts.
            beginning: one that matches the characters they begin with.
            swallows: of each, whether it swallows blanks before, and behind it.
        """
        self._beginning = beginning
        self._swallows = {**swallows, "": (False, False)}
        self._mark = "".join(secrets.choice("0123456789") for _ in range(_MARK_DIGITS))
        self._marked_or_own = re.compile(f"{self._mark}(?:{special})?|({special})")

    def put(self, text: str) -> str:
        """A text with its marks."""
        return self._beginning.sub(lambda found: self._mark + found[0], text)

    def own(self, prompt: str) -> list[str]:
        """The special tokens that the template itself wrote into a marked prompt."""
        return [found[1] for found in self._own(prompt)]

    def parts(self, prompt: str) -> list[tuple[str, bool]]:
        """A marked prompt in parts, without its marks, as tokenizers take it.

        Returns:
            Texts, in order, and whether special tokens in them are read as such: all of those are the template's own.
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
        """What is left of a text between two special tokens."""
        text = text.lstrip(_BLANKS) if self._swallows[before][1] else text
        return text.rstrip(_BLANKS) if self._swallows[behind][0] else text

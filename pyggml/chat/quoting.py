"""Quoting: special tokens in messages stay plain text, while the template's own are interpreted.

A template writes its special tokens as text, so its prompt must be encoded with ``parse_special``, and then a user who
writes ``<|im_end|>`` would end the turn. So messages that may contain such texts are rendered as
:class:`~pyggml.chat.jinja.quoted_text.QuotedText`, which keeps track of the characters that come from messages. The
prompt is split at the template's own special tokens, where tokenizers split first anyway, and stretches with special
tokens from messages are encoded as plain text. All other token ids are those of the prompt's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyggml.chat.jinja.quoted_text import QuotedText, flags_of
from pyggml.tokenizer import Tokenizer

_BLANKS = " \t\n\v\f\r"
_NOTHING = "(?!)"  # matches nowhere


class SpecialTexts:
    """The texts that a tokenizer reads as special tokens only on request. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Read the texts from the tokenizer."""
        texts = {text: blanks for text, blanks in tokenizer.special_texts.items() if text}
        # Text of a token -> True if it strips blanks before it, and the same for blanks behind it.
        self._strips = {**texts, "": (False, False)}
        longest_first = sorted(texts, key=len, reverse=True)  # as tokenizers prefer them
        self._special = re.compile("|".join(map(re.escape, longest_first)) or _NOTHING)
        first = "".join(sorted({case for text in texts for case in (text[0], text[0].lower(), text[0].upper())}))
        self._beginning = re.compile(f"[{re.escape(first)}]" if first else _NOTHING)

    def may_occur_in(self, texts: Iterable[str]) -> bool:
        """Return True if any of these texts contains a character that could begin a special token."""
        return any(self._beginning.search(text) for text in texts)

    def split(self, prompt: QuotedText) -> list[tuple[str, bool]]:
        """Split a prompt into parts for the tokenizer.

        Returns:
            The text of each part, and True if special tokens in it, all of them the template's own, are interpreted.
        """
        parts: list[tuple[str, bool]] = []
        special, plain, before, end = "", False, "", 0
        whole, flags = str.__str__(prompt), flags_of(prompt)
        for found in (*self._special.finditer(whole), None):
            if found and any(flags[found.start() : found.end()]):
                plain = True  # this token's text stays in the stretch up to the template's next token
                continue
            text, token = (whole[end : found.start()], found[0]) if found else (whole[end:], "")
            if plain:
                parts += [(special, True), (self._stripped(before, text, token), False)]
                special, plain = token, False
            else:
                special += text + token
            before, end = token, found.end() if found else end
        return [*parts, (special, True)]

    def _stripped(self, before: str, text: str, behind: str) -> str:
        """Remove the blanks that the special tokens on either side strip."""
        text = text.lstrip(_BLANKS) if self._strips[before][1] else text
        return text.rstrip(_BLANKS) if self._strips[behind][0] else text

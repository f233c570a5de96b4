"""Decoding of a stream of tokens, and stop strings in a stream of text.

A token may end inside a UTF-8 character, so :class:`StreamDecoder` waits for the rest of it. A stop string may arrive
in several chunks, so :class:`StopStrings` holds back text that could still become one.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence

from pyggml.tokenizer.base import Tokenizer


class StreamDecoder:
    """A decoder of a stream of tokens to text. Each call returns whole characters, and none are lost between calls."""

    def __init__(self, tokenizer: Tokenizer, shown: Mapping[int, bytes] | None = None) -> None:
        """Create a decoder at the start of a text.

        Args:
            tokenizer: the model's tokenizer.
            shown: special tokens that add bytes to the text -> those bytes; all others add none.
        """
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int], *, last: bool = False) -> str:
        """Return the characters that these tokens complete; with ``last``, also U+FFFD for an incomplete one.

        Args:
            token_ids: the next tokens of the stream.
            last: the stream ends with them.
        """
        return self._utf8.decode(b"".join(map(self._piece, token_ids)), last)

    def _piece(self, token_id: int) -> bytes:
        shown = self._shown.get(token_id)
        return self._tokenizer.piece(token_id) if shown is None else shown


class StopStrings:
    """A filter that ends a stream of text before the first stop string, and never passes on a part of one."""

    def __init__(self, stop: Sequence[str]) -> None:
        """Create a filter for stop strings, if any.

        Args:
            stop: the stop strings; (): none, and every text passes.
        """
        self._stop = tuple(stop)
        self._held = ""
        self.found: str | None = None  # the stop string that ended the text

    @property
    def active(self) -> bool:
        """True if there are stop strings."""
        return bool(self._stop)

    def feed(self, text: str, *, last: bool = False) -> str:
        """Return the text that is safe to show; with ``last``, including the text that was held back.

        Args:
            text: the next chunk of the stream.
            last: the stream ends with it.
        """
        if not self._stop:
            return text
        text = self._held + text
        self._held = ""
        end = self._first_stop(text)
        if end is None and not last:
            end = self._possible_stop(text)
            self._held = text[end:]
        return text[:end]

    def _first_stop(self, text: str) -> int | None:
        """Index of the earliest stop string, the longest if several start there; stores it in ``found``."""
        hits = [(text.find(stop), -len(stop), stop) for stop in self._stop if stop in text]
        if not hits:
            return None
        index, _, self.found = min(hits)
        return index

    def _possible_stop(self, text: str) -> int:
        """Start of the longest suffix of the text that is a prefix of a stop string."""
        longest = max(map(len, self._stop)) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stop):
                return start
        return len(text)

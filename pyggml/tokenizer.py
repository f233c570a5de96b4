"""Text to token ids and back, whole and as a stream.

Streaming has two traps, each with its own small class here: a token may end inside a UTF-8 character
(:class:`StreamDecoder` waits for the rest), and a stop string may arrive in pieces (:class:`StopStrings` holds
back whatever could still become one).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from pyggml.errors import InvalidParameterError
from pyggml.vocab import Vocab


class Tokenizer:
    """The model's own vocabulary as a tokenizer of text. Safe to share between threads."""

    def __init__(self, vocab: Vocab) -> None:
        """Wraps a vocabulary, which the caller keeps open."""
        self._vocab = vocab
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Text to token ids.

        Args:
            text: any text without NUL characters.
            add_special: add the tokens the model wants around a prompt (BOS, rarely EOS), once.
            parse_special: read special tokens' texts, such as ``<|im_end|>``, as those tokens. Off, they are
                plain text, which is what text from users should be.

        Raises:
            InvalidParameterError: the text is not a string, holds a NUL or an unpaired surrogate.
            ClosedError: the model was closed.
        """
        if not isinstance(text, str):
            raise InvalidParameterError(f"the text must be a string, not {type(text).__name__}")
        if "\0" in text:
            raise InvalidParameterError(f"the text holds a NUL character at index {text.index(chr(0))}: remove it")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidParameterError(
                f"the text holds an unpaired surrogate at index {error.start}, which UTF-8 cannot express"
            ) from None
        return self._vocab.tokenize(data, add_special=add_special, parse_special=parse_special)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Token ids to text, special tokens left out; bytes that are not UTF-8 become U+FFFD.

        Raises:
            InvalidParameterError: an id is outside the vocabulary.
            ClosedError: the model was closed.
        """
        return self._vocab.detokenize(token_ids)

    def piece(self, token_id: int) -> bytes:
        """The bytes one token adds to a text; none for special tokens. Cached."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._vocab.piece(token_id)
        return piece


class StreamDecoder:
    """Tokens to text as they come: what each call returns is valid UTF-8, and nothing is lost between calls."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Starts an empty text."""
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int], *, last: bool = False) -> str:
        """The characters these tokens complete; with ``last``, also what is left of an incomplete one (U+FFFD)."""
        return self._utf8.decode(b"".join(map(self._tokenizer.piece, token_ids)), last)


class StopStrings:
    """Cuts a stream of text before the first stop string, never letting part of one through."""

    def __init__(self, stop: Sequence[str]) -> None:
        """Takes the strings to look for; there may be none."""
        self._stop = tuple(stop)
        self._held = ""
        self.found: str | None = None  # the stop string that ended the text

    @property
    def active(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._stop)

    def feed(self, text: str, *, last: bool = False) -> str:
        """The text that is safe to show. With ``last``, what was held back comes out too."""
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
        """Index of the earliest stop string, remembered as found; the longest wins where two start together."""
        hits = [(text.find(stop), -len(stop), stop) for stop in self._stop if stop in text]
        if not hits:
            return None
        index, _, self.found = min(hits)
        return index

    def _possible_stop(self, text: str) -> int:
        """Index where the longest ending of the text that begins a stop string begins."""
        longest = max(map(len, self._stop)) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stop):
                return start
        return len(text)

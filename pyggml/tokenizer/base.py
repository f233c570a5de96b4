"""Text to token ids and back, whole and as a stream.

Streaming has two traps, each with its own small class here: a token may end inside a UTF-8 character
(:class:`StreamDecoder` waits for the rest), and a stop string may arrive in pieces (:class:`StopStrings` holds
back whatever could still become one).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from pyggml._native import int32_array, utf8
from pyggml.errors import InvalidParameterError
from pyggml.vocab import TokenAttr, Vocab

# What a file says of tokens that are text; the engine may have added that they are special.
_TEXT = TokenAttr.NORMAL | TokenAttr.USER_DEFINED


class Tokenizer:
    """The model's own vocabulary as a tokenizer of text. Safe to share between threads.

    Other tokenizers derive from it and say for themselves how text is cut and which bytes a token stands for; which
    tokens go around a text is the model's to say in either case.

    Attributes:
        vocab: the vocabulary.
    """

    def __init__(self, vocab: Vocab) -> None:
        """Wraps a vocabulary, which the caller keeps open."""
        self.vocab = vocab
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Text to token ids.

        Args:
            text: any text without NUL characters.
            add_special: begin with the token that the model wants in front of a text (BOS), and end with the one it
                wants behind it (rarely one), unless the text, with ``parse_special``, has them already.
            parse_special: read special tokens' texts, such as ``<|im_end|>``, as those tokens. Off, they are
                plain text, which is what text from users should be.

        Raises:
            InvalidParameterError: the text is not a string, holds a NUL or an unpaired surrogate.
            TokenizerError: the text cannot be encoded.
            ClosedError: the model was closed.
        """
        ids = self._encode(_checked(text), parse_special)
        return self._surrounded(ids) if add_special else ids

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of a text in parts, with what the model wants around it.

        Args:
            parts: texts, in order, and whether special tokens in each are read as such.

        Raises:
            As :meth:`encode`.
        """
        return self._surrounded([i for text, is_read in parts for i in self._encode(_checked(text), is_read)])

    @cached_property
    def special_texts(self) -> Mapping[str, tuple[bool, bool]]:
        """The texts that only ``parse_special`` reads as tokens, and whether each swallows blanks before and behind."""
        attrs = {self.vocab.text(token_id): self.vocab.attr(token_id) for token_id in self.vocab.special_ids}
        return {text: (bool(attr & TokenAttr.LSTRIP), bool(attr & TokenAttr.RSTRIP)) for text, attr in attrs.items()}

    def decode(self, token_ids: Sequence[int]) -> str:
        """Token ids to text, the inverse of :meth:`encode`.

        Special tokens are left out, as is the space that some tokenizers put in front of every text. Bytes that are
        not UTF-8 become U+FFFD.

        Raises:
            InvalidParameterError: an id is outside the vocabulary.
            ClosedError: the model was closed.
        """
        data = b"".join(map(self.piece, int32_array("token_ids", token_ids).tolist()))
        if data.startswith(b" ") and self._puts_space_first:
            data = data[1:]
        return data.decode(errors="replace")

    def piece(self, token_id: int) -> bytes:
        """The bytes one token adds to a text, perhaps part of a character; none for special tokens. Cached."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._piece(token_id)
        return piece

    def _encode(self, text: str, parse_special: bool) -> list[int]:
        """The ids of a text, and nothing around them."""
        return self.vocab.tokenize(text, add_special=False, parse_special=parse_special)

    def _piece(self, token_id: int) -> bytes:
        # The engine hides every token that ends some model, such as `</s>`, also from those whose text it is.
        return self.vocab.piece(token_id, special=bool(self.vocab.attr(token_id) & _TEXT))

    def _surrounded(self, ids: list[int]) -> list[int]:
        """With what belongs around a text, which may have come with it: templates often write BOS themselves."""
        before, after = self._around
        if before and ids[: len(before)] == before:
            ids = ids[len(before) :]
        if after and ids[-len(after) :] == after:
            ids = ids[: -len(after)]
        return before + ids + after

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """The tokens that the model wants before and behind a text, as the engine adds them."""
        inner = self.vocab.tokenize("a", add_special=False)
        whole = self.vocab.tokenize("a", add_special=True)
        starts = (i for i in range(len(whole)) if inner and whole[i : i + len(inner)] == inner)
        start = next(starts, int(self.vocab.add_bos))
        return whole[:start], whole[start + len(inner) :]

    @cached_property
    def _puts_space_first(self) -> bool:
        return b"".join(map(self.piece, self._encode("a", False))) == b" a"


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise InvalidParameterError(f"the text must be a string, not {type(text).__name__}")
    if "\0" in text:
        raise InvalidParameterError(f"the text holds a NUL character at index {text.index(chr(0))}: remove it")
    utf8("the text", text)
    return text


class StreamDecoder:
    """Tokens to text as they come: what each call returns is valid UTF-8, and nothing is lost between calls."""

    def __init__(self, tokenizer: Tokenizer, shown: Mapping[int, bytes] | None = None) -> None:
        """Starts an empty text.

        Args:
            tokenizer: the model's.
            shown: special tokens that add these bytes to the text; all others add none.
        """
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int], *, last: bool = False) -> str:
        """The characters these tokens complete; with ``last``, also what is left of an incomplete one (U+FFFD)."""
        return self._utf8.decode(b"".join(map(self._piece, token_ids)), last)

    def _piece(self, token_id: int) -> bytes:
        shown = self._shown.get(token_id)
        return self._tokenizer.piece(token_id) if shown is None else shown


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

"""Text to token ids and back, whole and as a stream.

Streaming has two traps, each with its own small class here: a token may end inside a UTF-8 character
(:class:`StreamDecoder` waits for the rest), and a stop string may arrive in pieces (:class:`StopStrings` holds back
text that could still become one).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from pyggml._native import int32_array, utf8
from pyggml._owner import Owner
from pyggml.errors import InvalidParameterError
from pyggml.vocab import TokenAttr, Vocab

# The attributes of text tokens in a file; the engine may have marked some of these as special in addition.
_TEXT = TokenAttr.NORMAL | TokenAttr.USER_DEFINED


class Tokenizer(Owner):
    """The model's own vocabulary as a tokenizer of text. Safe to share between threads.

    Other tokenizers derive from it and define how text is cut and which bytes a token stands for. The model always
    decides which tokens go around a text.

    Attributes:
        vocab: the vocabulary.
    """

    _instead_of_a_copy = "share this one between threads; another process takes that of the model it loads"

    def __init__(self, vocab: Vocab) -> None:
        """Wraps a vocabulary, which the caller keeps open."""
        self.vocab = vocab
        self._pieces: dict[int, bytes] = {}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Converts text to token ids.

        Args:
            text: any text without NUL characters.
            add_special: add the token that the model expects before a text (BOS) and, for a few models, after it,
                unless the text already has it by ``parse_special``.
            parse_special: read special tokens' texts, such as ``<|im_end|>``, as those tokens. Leave it off for text
                from users: then they are plain text.

        Raises:
            InvalidParameterError: the text is not a string, or holds a NUL or an unpaired surrogate.
            TokenizerError: the text cannot be encoded.
            ClosedError: the model was closed.
        """
        ids = self._encode(_checked(text), parse_special)
        return self._surrounded(ids) if add_special else ids

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Converts a text in parts to token ids, with the tokens that the model expects around it.

        Args:
            parts: texts, in order, each with whether special tokens in it are read as such.

        Raises:
            As :meth:`encode`.
        """
        return self._surrounded([i for text, is_read in parts for i in self._encode(_checked(text), is_read)])

    @cached_property
    def special_texts(self) -> Mapping[str, tuple[bool, bool]]:
        """Texts that only ``parse_special`` reads as tokens -> whether they swallow blanks before and after them."""
        attrs = {self.vocab.text(token_id): self.vocab.attr(token_id) for token_id in self.vocab.special_ids}
        return {text: (bool(attr & TokenAttr.LSTRIP), bool(attr & TokenAttr.RSTRIP)) for text, attr in attrs.items()}

    def decode(self, token_ids: Sequence[int]) -> str:
        """Converts token ids to text, the inverse of :meth:`encode`.

        Special tokens are left out, and so is the space that some tokenizers put before every text. Bytes that are not
        UTF-8 become U+FFFD.

        Raises:
            InvalidParameterError: an id is outside the vocabulary.
            ClosedError: the model was closed.
        """
        data = b"".join(map(self.piece, int32_array("token_ids", token_ids).tolist()))
        if data.startswith(b" ") and self._puts_space_first:
            data = data[1:]
        return data.decode(errors="replace")

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text, possibly part of a character; none for special tokens. Cached."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._piece(token_id)
        return piece

    def _encode(self, text: str, parse_special: bool) -> list[int]:
        """The ids of a text, without tokens around it."""
        return self.vocab.tokenize(text, add_special=False, parse_special=parse_special)

    def _piece(self, token_id: int) -> bytes:
        # The engine hides tokens such as `</s>`, which end texts in some models, also in models where they are text.
        return self.vocab.piece(token_id, special=bool(self.vocab.attr(token_id) & _TEXT))

    def _surrounded(self, ids: list[int]) -> list[int]:
        """Adds the tokens around a text, unless it has them already: templates often write BOS themselves."""
        before, after = self._around
        if before and ids[: len(before)] == before:
            ids = ids[len(before) :]
        if after and ids[-len(after) :] == after:
            ids = ids[: -len(after)]
        return before + ids + after

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """The tokens that the engine adds before and after a text for this model."""
        # An empty text, since the engine need not be able to cut any other where a tokenizer of another kind encodes.
        around = self.vocab.tokenize("", add_special=True)
        n_before = 1 if len(around) > 1 else int(self.vocab.add_bos)
        return around[:n_before], around[n_before:]

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
    """Converts a stream of tokens to text; each call returns whole characters, and none are lost between calls."""

    def __init__(self, tokenizer: Tokenizer, shown: Mapping[int, bytes] | None = None) -> None:
        """Starts an empty text.

        Args:
            tokenizer: the model's tokenizer.
            shown: special tokens that add bytes to the text -> those bytes; all others add none.
        """
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Iterable[int], *, last: bool = False) -> str:
        """The characters that these tokens complete; with ``last``, also U+FFFD for an incomplete one."""
        return self._utf8.decode(b"".join(map(self._piece, token_ids)), last)

    def _piece(self, token_id: int) -> bytes:
        shown = self._shown.get(token_id)
        return self._tokenizer.piece(token_id) if shown is None else shown


class StopStrings:
    """Cuts a stream of text before the first stop string, never letting part of one through."""

    def __init__(self, stop: Sequence[str]) -> None:
        """Takes the strings to look for, if any."""
        self._stop = tuple(stop)
        self._held = ""
        self.found: str | None = None  # the stop string that ended the text

    @property
    def active(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._stop)

    def feed(self, text: str, *, last: bool = False) -> str:
        """Returns the text that is safe to show; with ``last``, including the text that was held back."""
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

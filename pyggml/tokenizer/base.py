"""The model's own vocabulary as a tokenizer of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pyggml._core.c_values import int32_array
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import INT32_MAX, flag, integer, items, shown, utf8
from pyggml._core.hints import HintedObject, hints, with_hints
from pyggml._core.owner import Owner
from pyggml._native.token_batch import TokenBatch
from pyggml._native.vocab import TokenAttr, Vocab, is_markup
from pyggml.errors import InvalidParameterError

# The attributes of text tokens in a file; the engine may have marked some of these as special in addition.
_TEXT = TokenAttr.NORMAL | TokenAttr.USER_DEFINED
_BLANKS = r"[ \t\n\v\f\r]*"
# The attributes of tokens that are split off a text first.
_CUT_OUT = TokenAttr.CONTROL | TokenAttr.UNKNOWN | TokenAttr.USER_DEFINED


class Tokenizer(Owner, HintedObject):
    """The model's own vocabulary as a tokenizer of text. Safe to share between threads.

    Subclasses define how text becomes tokens, and the bytes of each token. The model always determines the special
    tokens around a text.

    Attributes:
        vocab: the vocabulary.
    """

    _instead_of_a_copy = "share this one between threads; another process takes that of the model it loads"
    _hints = hints("tokenizer")

    def __init__(self, vocab: Vocab) -> None:
        """Wrap a vocabulary, which the caller keeps open."""
        self.vocab = vocab
        self._pieces: dict[int, bytes] = {}
        self._begins: dict[int, bool] = {}

    @with_hints("encoding")
    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Convert text to token ids.

        Args:
            text: any text without NUL characters.
            add_special: add the token that the model expects before a text (BOS) and, for a few models, after it,
                unless the text already has it by ``parse_special``.
            parse_special: read special tokens' texts, such as ``<|im_end|>``, as those tokens. False, for untrusted
                text: they are plain text.

        Raises:
            InvalidParameterError: the text is not a string, or holds a NUL or an unpaired surrogate; or
                ``parse_special`` is not a bool.
            TokenizerError: the text cannot be encoded.
            ClosedError: the model was closed.
        """
        ids = self._encode(_checked(text), flag("parse_special", parse_special))
        return self._surrounded(ids) if flag("add_special", add_special) else ids

    def encode_batch(self, texts: Iterable[str], *, add_special: bool = True, parse_special: bool = True) -> TokenBatch:
        """Convert many texts to token ids, on several threads without the GIL: the same ids as :meth:`encode`.

        Args:
            texts: the texts.
            add_special: as for :meth:`encode`.
            parse_special: as for :meth:`encode`.

        Returns:
            The ids of all texts in one array, and the length of each.

        Raises:
            InferError: as :meth:`encode`; messages name the index of the text.
        """
        checked = [_checked(text, f"texts[{index}]") for index, text in enumerate(items("texts", texts))]
        flags = flag("add_special", add_special), flag("parse_special", parse_special)
        return self._encode_batch(checked, *flags)

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Convert a text in parts to token ids, with the special tokens that the model expects around it.

        Args:
            parts: pairs of a text and its ``parse_special``, in order.

        Raises:
            InferError: as :meth:`encode`.
        """
        checked = [_checked_part(part) for part in items("parts", parts)]
        return self._surrounded([i for text, is_read in checked for i in self._encode(text, is_read)])

    @cached_property
    def special_texts(self) -> Mapping[str, tuple[bool, bool]]:
        """Texts that only ``parse_special`` reads as tokens -> flags for stripping blanks before and after them."""
        attrs = {self.vocab.text(token_id): self.vocab.attr(token_id) for token_id in self.vocab.special_ids}
        return {
            text: (bool(attr & TokenAttr.LSTRIP), bool(attr & TokenAttr.RSTRIP))
            for text, attr in attrs.items()
            if text not in self._mistaken
        }

    @with_hints("decoding")
    def decode(self, token_ids: Sequence[int], *, remove_special: bool = True, unparse_special: bool = True) -> str:
        """Convert token ids to text, the inverse of :meth:`encode`.

        A text comes back as it was, unless its tokenizer normalises text or a special token stripped the blanks
        around it. Spaces that the tokenizer itself puts before a text, or behind a special token, are left out.
        Bytes that are not UTF-8 become U+FFFD.

        Args:
            token_ids: the tokens.
            remove_special: leave out the tokens at either end that :meth:`encode` adds with ``add_special``.
            unparse_special: write special tokens as their texts, the inverse of ``parse_special``; otherwise leave them
                out.

        Raises:
            InvalidParameterError: an id is outside the vocabulary.
            TokenizerError: with ``remove_special``, as :meth:`encode`.
            ClosedError: the model was closed.
        """
        ids = int32_array("token_ids", token_ids).tolist()
        unparse_special = flag("unparse_special", unparse_special)
        if flag("remove_special", remove_special):
            ids = ids[self.vocab.inside(ids)]
        written, begins = [], self._puts_space_first
        for token_id in ids:
            piece = self.piece(token_id) or (self._special_piece(token_id) if unparse_special else b"")
            if piece:
                written.append(piece.removeprefix(b" ") if begins else piece)
                begins = self._begins_after(token_id)
        return b"".join(written).decode(errors="replace")

    def piece(self, token_id: int) -> bytes:
        """Return the bytes that a token adds to a text, possibly part of a character; special tokens have none.

        Args:
            token_id: the token.
        """
        try:
            piece = self._pieces.get(token_id)
        except (TypeError, ValueError):  # not hashable
            piece = None
        if piece is None:
            token_id = integer("token_id", token_id, 0, INT32_MAX)
            piece = self._pieces[token_id] = self._piece(token_id)
        return piece

    def _encode(self, text: str, parse_special: bool) -> list[int]:
        """Return the ids of a text, without special tokens around it."""
        if not parse_special or not self._holds_mistaken(text):
            return self.vocab.tokenize(text, add_special=False, parse_special=parse_special)
        ids: list[int] = []
        for i, part in enumerate(self._special.split(text)):  # every second one is special
            ids += self.vocab.tokenize(part, add_special=False, parse_special=i % 2 == 1)
        return ids

    def _encode_batch(self, texts: list[str], add_special: bool, parse_special: bool) -> TokenBatch:
        """As :meth:`encode_batch`, for texts that have been checked."""
        if parse_special and self._mistaken and any(self._holds_mistaken(text) for text in texts):
            return self._joined((self._encode(text, parse_special) for text in texts), add_special)
        return self.vocab.tokenize_batch(texts, add_special, parse_special)

    def _joined(self, texts: Iterable[list[int]], add_special: bool) -> TokenBatch:
        """Join the ids of texts that have no special tokens around them yet."""
        return TokenBatch.join(map(self._surrounded, texts) if add_special else texts)

    def _holds_mistaken(self, text: str) -> bool:
        return any(mistaken in text for mistaken in self._mistaken)

    @cached_property
    def _mistaken(self) -> frozenset[str]:
        """Texts that the engine takes for special tokens, since they are in other models, but that are text here.

        One is ``</s>`` in Qwen 2: transformers always reads it as text.
        """
        vocab = self.vocab
        named = (vocab.eos, vocab.eot)
        found = {vocab.text(i): bool(vocab.attr(i) & TokenAttr.NORMAL) for i in vocab.special_ids if i not in named}
        return frozenset(text for text, typed_normal in found.items() if is_markup(text, typed_normal))

    @cached_property
    def _special(self) -> re.Pattern[str]:
        """A pattern of special tokens, longer ones first, as in the engine, with the blanks that they strip."""
        texts = sorted(filter(None, self.special_texts), key=len, reverse=True)
        blanks = {False: "", True: _BLANKS}
        around = [(text, *map(blanks.__getitem__, self.special_texts[text])) for text in texts]
        return re.compile("(" + "|".join(before + re.escape(text) + after for text, before, after in around) + ")")

    def _piece(self, token_id: int) -> bytes:
        # The engine hides tokens such as `</s>`, which are special in some models, even where they are text.
        return self.vocab.piece(token_id, special=bool(self.vocab.attr(token_id) & _TEXT))

    def _surrounded(self, ids: list[int]) -> list[int]:
        """Add the special tokens around a text, unless it has them already: templates often write BOS themselves."""
        before, after = self.vocab.around
        return before + ids[self.vocab.inside(ids)] + after

    def _special_piece(self, token_id: int) -> bytes:
        """Return the text of a token that has no piece."""
        text = self.vocab.piece(token_id, special=True)
        return b" " + text if text and self.vocab.type == "wpm" else text  # like other words of WordPiece

    @cached_property
    def _puts_space_first(self) -> bool:
        """True if a text is encoded with a space in front of it."""
        return b"".join(map(self.piece, self._encode("a", False))) == b" a"

    def _begins_after(self, token_id: int) -> bool:
        """Return True if text after this token is encoded like the beginning of a text, with a space in front of it."""
        if not self._puts_space_first:
            return False
        found = self._begins.get(token_id)
        if found is None:
            is_cut_out = bool(self.vocab.attr(token_id) & _CUT_OUT)
            found = self._begins[token_id] = is_cut_out and self._puts_space_after(token_id)
        return found

    def _puts_space_after(self, token_id: int) -> bool:
        text = self.vocab.text(token_id)
        glued, apart = self._encode(f"{text}a", True), self._encode(f"{text} a", True)
        return glued != apart and glued[:1] == [token_id] and b"".join(map(self.piece, glued[1:])) == b" a"


def _checked_part(part: object) -> tuple[str, bool]:
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise InvalidParameterError(f"a part is a text and its parse_special, not {shown(part)}")
    return _checked(part[0]), flag("parse_special", part[1])


def _checked(text: str, name: str = "the text") -> str:
    if not isinstance(text, str):
        way_out = ": text.decode() makes one" if isinstance(text, (bytes, bytearray)) else ""
        raise InvalidParameterError(f"{name} must be a string, not {type(text).__name__}{way_out}")
    if "\0" in text:
        raise InvalidParameterError(f"{name} holds a NUL character at index {text.index(chr(0))}: remove it")
    if not text.isascii():
        utf8(name, text)
    return text

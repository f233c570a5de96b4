"""A model's vocabulary: text to token ids and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.c_values import int32_array, pointer
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import INT32_MAX, flag, integer, items, utf8
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import Owner
from pyggml._native.token_batch import TokenBatch

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


class TokenType(IntEnum):
    """Token types in GGUF and SentencePiece files; the numbers are ``enum llama_token_type``."""

    NORMAL = lib.LLAMA_TOKEN_TYPE_NORMAL
    UNKNOWN = lib.LLAMA_TOKEN_TYPE_UNKNOWN
    CONTROL = lib.LLAMA_TOKEN_TYPE_CONTROL
    USER_DEFINED = lib.LLAMA_TOKEN_TYPE_USER_DEFINED
    UNUSED = lib.LLAMA_TOKEN_TYPE_UNUSED
    BYTE = lib.LLAMA_TOKEN_TYPE_BYTE


class TokenAttr(IntFlag):
    """A token's attributes; the bits are ``enum llama_token_attr``."""

    UNKNOWN = lib.LLAMA_TOKEN_ATTR_UNKNOWN
    UNUSED = lib.LLAMA_TOKEN_ATTR_UNUSED
    NORMAL = lib.LLAMA_TOKEN_ATTR_NORMAL
    CONTROL = lib.LLAMA_TOKEN_ATTR_CONTROL
    USER_DEFINED = lib.LLAMA_TOKEN_ATTR_USER_DEFINED
    BYTE = lib.LLAMA_TOKEN_ATTR_BYTE
    NORMALIZED = lib.LLAMA_TOKEN_ATTR_NORMALIZED
    LSTRIP = lib.LLAMA_TOKEN_ATTR_LSTRIP
    RSTRIP = lib.LLAMA_TOKEN_ATTR_RSTRIP
    SINGLE_WORD = lib.LLAMA_TOKEN_ATTR_SINGLE_WORD


_TYPE_NAMES: dict[int, str] = {
    getattr(lib, f"LLAMA_VOCAB_TYPE_{name.upper()}"): name
    for name in ("none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "plamo3", "test")
}

_PIECE_BYTES = 64
_EOG_IDS = 64
_SPECIAL_IDS = 1024


class Vocab(Owner):
    """The vocabulary of a :class:`pyggml.Model`, which creates it. Thread-safe.

    Special tokens are ids, or None if the vocabulary has no such token. They stay readable after the model is closed;
    the methods then raise ClosedError.

    Attributes:
        type: its algorithm: "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "plamo3"; "none" for a model without a
            vocabulary, which takes ids only.
        n_tokens: number of tokens; ids run from 0 to n_tokens - 1.
        bos: the token that begins a text.
        eos: the token that ends a text.
        eot: the token that ends a turn.
        sep: the token that separates sentences.
        nl: the token for a line end.
        pad: the padding token.
        mask: the token that masks a position to predict.
        fim_pre: fill-in-the-middle: the token before the prefix.
        fim_suf: the token before the suffix.
        fim_mid: the token before the middle.
        fim_pad: the padding token for fill-in-the-middle.
        fim_rep: the token before a repository's name.
        fim_sep: the token before a file's name.
        add_bos: True if tokenizing with ``add_special`` begins with ``bos``.
        add_eos: True if it ends with ``eos``.
        add_sep: True if it separates with ``sep``.
    """

    _instead_of_a_copy = "share this one between threads; another process takes that of the model it loads"

    def __init__(self, model: CData) -> None:
        """Read the vocabulary of a native model; for Model's use.

        Args:
            model: the native ``pyg_model *``, borrowed.
        """
        self._handle = model
        info = ffi.new("pyg_vocab_info *")
        c_calls.call(lib.pyg_vocab_get_info, model, info)
        self.type: str = _TYPE_NAMES[info.type]
        self.n_tokens: int = info.n_tokens
        self.bos = _id_or_none(info.bos)
        self.eos = _id_or_none(info.eos)
        self.eot = _id_or_none(info.eot)
        self.sep = _id_or_none(info.sep)
        self.nl = _id_or_none(info.nl)
        self.pad = _id_or_none(info.pad)
        self.mask = _id_or_none(info.mask)
        self.fim_pre = _id_or_none(info.fim_pre)
        self.fim_suf = _id_or_none(info.fim_suf)
        self.fim_mid = _id_or_none(info.fim_mid)
        self.fim_pad = _id_or_none(info.fim_pad)
        self.fim_rep = _id_or_none(info.fim_rep)
        self.fim_sep = _id_or_none(info.fim_sep)
        self.add_bos: bool = info.add_bos
        self.add_eos: bool = info.add_eos
        self.add_sep: bool = info.add_sep

    @property
    def handle(self) -> CData:
        """The ``const struct llama_vocab *`` for the raw API, borrowed until the model is closed."""
        vocab: CData = c_calls.call_for_value("const struct llama_vocab *", lib.pyg_model_get_vocab, self._handle)
        return vocab

    def tokenize(self, text: str | bytes, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Convert text to token ids.

        Args:
            text: text, or its UTF-8; NULs are allowed.
            add_special: add the tokens that the model expects around a text (``add_bos`` ...).
            parse_special: read the texts of special tokens, such as ``<|im_end|>``, as those tokens. False, for
                untrusted text: they are plain text.

        Raises:
            InvalidParameterError: not text, an unpaired surrogate, or more than 2 GiB.
            TokenizerError: the model has no vocabulary, or lacks a special token it needs.
        """
        if not isinstance(text, (str, bytes)):
            raise errors.InvalidParameterError(f"the text must be str or bytes, not {type(text).__name__}")
        data = utf8("the text", text)
        flags = flag("add_special", add_special), flag("parse_special", parse_special)
        # Rarely more tokens than bytes: special tokens around the text, and a space that some vocabularies prepend.
        guess = min(len(data) + 8, INT32_MAX)
        return _ids(guess, lib.pyg_vocab_tokenize, self._handle, data, len(data), *flags)

    def tokenize_batch(self, texts: Sequence[str], add_special: bool = True, parse_special: bool = True) -> TokenBatch:
        """Convert many texts to token ids, on several threads without the GIL.

        Args:
            texts: the texts; NULs are allowed.
            add_special: as for :meth:`tokenize`; a text that has these tokens already gets no second ones.
            parse_special: as for :meth:`tokenize`.

        Raises:
            InferError: as :meth:`tokenize`.
        """
        encoded = [utf8(f"texts[{index}]", text) for index, text in enumerate(items("texts", texts, "a list of texts"))]
        data, ends = b"".join(encoded), np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        lengths = np.empty(len(encoded), np.int32)
        around = self.around if flag("add_special", add_special) else ([], [])
        before, after = (np.array(ids, np.int32) for ids in around)
        source = ffi.new("pyg_texts *")
        arrays = pointer("int64_t[]", ends), pointer("int32_t[]", before), pointer("int32_t[]", after)
        borrowed = ffi.from_buffer(data), *arrays
        source.bytes, source.ends, source.before, source.after = borrowed
        source.n_texts, source.n_before, source.n_after = len(encoded), len(before), len(after)
        source.parse_special = flag("parse_special", parse_special)
        n_ids = ffi.new("int64_t *")

        def tokenize(out: CData, err: CData) -> int:
            sizes = pointer("int32_t[]", lengths)
            return int(lib.pyg_vocab_tokenize_batch(self._handle, source, sizes, out, n_ids, err))

        ids = c_calls.create("char", lib.pyg_string_free, tokenize)
        return TokenBatch(np.frombuffer(memoryview(ffi.buffer(ids, n_ids[0] * 4)), np.int32).copy(), lengths)

    def detokenize(self, token_ids: npt.ArrayLike, *, remove_special: bool = True, unparse_special: bool = True) -> str:
        """Convert token ids to text as the engine does. Invalid UTF-8 becomes U+FFFD.

        It is the inverse of :meth:`tokenize`, except that it keeps the spaces that some vocabularies put behind special
        tokens, which :meth:`Tokenizer.decode <pyggml.Tokenizer.decode>` leaves out.

        Args:
            token_ids: integers, shape (n,); int32 arrays are not copied.
            remove_special: leave out the tokens at either end that ``tokenize`` adds with ``add_special``.
            unparse_special: write special tokens as their texts; otherwise they are left out.

        Raises:
            InvalidParameterError: an id is outside the vocabulary; the message names index and value.
            TokenizerError: the model has no vocabulary; with ``remove_special``, as :meth:`tokenize`.
        """
        ids, unparse_special = int32_array("token_ids", token_ids), flag("unparse_special", unparse_special)
        if flag("remove_special", remove_special):
            ids = ids[self.inside(ids)]
        # The engine keeps the space that some vocabularies put before a text if it is told to remove special tokens.
        flags = False, unparse_special
        array, guess = pointer("int32_t[]", ids), _PIECE_BYTES + 8 * len(ids)
        text = _text(guess, lib.pyg_vocab_detokenize, self._handle, array, len(ids), *flags)
        return text.decode(errors="replace")

    def inside(self, token_ids: Sequence[int] | npt.NDArray[np.int32]) -> slice:
        """Return the slice of a text's tokens between those that ``add_special`` puts around it, if present.

        Args:
            token_ids: the tokens of a text, integers, (n,).

        Raises:
            InvalidParameterError: they are not token ids.
            TokenizerError, ClosedError: as :meth:`tokenize`.
        """
        ids: list[int] = int32_array("token_ids", token_ids).tolist()
        before, after = self.around
        end = len(ids)
        start = len(before) if ids[: len(before)] == before else 0
        last = max(start, end - len(after))
        return slice(start, last if ids[last:] == after else end)

    @cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """The tokens that ``add_special`` puts before a text, and those after it.

        Raises:
            TokenizerError, ClosedError: as :meth:`tokenize`.
        """
        # Of an empty text: with a tokenizer from a file, the engine may be unable to tokenize any other text.
        around = self.tokenize("", add_special=True)
        n_before = 1 if len(around) > 1 else int(self.add_bos)
        return around[:n_before], around[n_before:]

    def piece(self, token_id: SupportsIndex, special: bool = False) -> bytes:
        """Return the bytes that a token adds to a text, possibly part of a character.

        Args:
            token_id: the token.
            special: also return special tokens' texts; otherwise they have no bytes.

        Raises:
            InvalidParameterError: the id is outside the vocabulary.
            TokenizerError: the model has no vocabulary.
        """
        token, special = self._checked(token_id), flag("special", special)
        return _text(_PIECE_BYTES, lib.pyg_vocab_piece, self._handle, token, special)

    def text(self, token_id: SupportsIndex) -> str:
        """Return the token's text as stored, in the tokenizer's own spelling (``Ġthe``, ``▁the``).

        Args:
            token_id: the token, 0 to n_tokens - 1.
        """
        text = _text(_PIECE_BYTES, lib.pyg_vocab_text, self._handle, self._checked(token_id))
        return text.decode(errors="replace")

    def texts(self) -> list[str]:
        """Return the texts of all tokens, by id; faster than :meth:`text` for each."""
        buffer, length = ffi.new("char[]", _PIECE_BYTES), ffi.new("size_t *")
        failure = ffi.new("pyg_error *")
        found: list[str] = []
        for token_id in range(self.n_tokens):
            status = lib.pyg_vocab_text(self._handle, token_id, buffer, _PIECE_BYTES, length, failure)
            if status:
                c_calls.check(status, failure)
            if length[0] <= _PIECE_BYTES:
                found.append(ffi.unpack(buffer, length[0]).decode(errors="replace"))
            else:
                found.append(self.text(token_id))
        return found

    def find(self, text: str) -> int | None:
        """Return the token stored as ``text``, in the spelling of :meth:`text`; None if there is none.

        Args:
            text: the token's text, in the spelling of :meth:`text`.

        Raises:
            InvalidParameterError: not text, or an unpaired surrogate.
        """
        if not isinstance(text, str):
            raise errors.InvalidParameterError(f"the text must be a string, not {type(text).__name__}")
        if self.type == "none":
            return None
        data = utf8("the text", text)
        return _id_or_none(c_calls.call_for_value("int32_t", lib.pyg_vocab_find, self._handle, data, len(data)))

    def score(self, token_id: SupportsIndex) -> float:
        """Return the token's score, which orders merges in some vocabularies.

        Args:
            token_id: the token, 0 to n_tokens - 1.
        """
        return float(self._token(token_id).score)

    def attr(self, token_id: SupportsIndex) -> TokenAttr:
        """Return the token's attributes.

        Args:
            token_id: the token, 0 to n_tokens - 1.
        """
        return TokenAttr(self._token(token_id).attr)

    def is_eog(self, token_id: SupportsIndex) -> bool:
        """Return True if the token ends a generation in the engine's view (EOS, EOT ...).

        Args:
            token_id: the token, 0 to n_tokens - 1.
        """
        return bool(self._token(token_id).is_eog)

    def is_control(self, token_id: SupportsIndex) -> bool:
        """Return True if the token is a control token rather than text.

        Args:
            token_id: the token, 0 to n_tokens - 1.
        """
        return bool(self._token(token_id).is_control)

    @cached_property
    def eog_ids(self) -> tuple[int, ...]:
        """All tokens that end a generation in the engine's view, ascending.

        The engine detects them by their texts, and sometimes includes one that is plain text in this model
        (docs/reference/model-families.md).
        """
        return tuple(_ids(_EOG_IDS, lib.pyg_vocab_eog_ids, self._handle))

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """All tokens whose texts are read as tokens only with ``parse_special``, ascending."""
        return tuple(_ids(_SPECIAL_IDS, lib.pyg_vocab_special_ids, self._handle))

    def _token(self, token_id: SupportsIndex) -> CData:
        out = ffi.new("pyg_token_info *")
        c_calls.call(lib.pyg_vocab_token, self._handle, self._checked(token_id), out)
        return out

    def _checked(self, token_id: SupportsIndex) -> int:
        return integer("token_id", token_id, 0, self.n_tokens - 1)

    def __len__(self) -> int:
        return self.n_tokens

    def __repr__(self) -> str:
        return f"Vocab({self.type}, {self.n_tokens} tokens)"


def is_markup(text: str, typed_normal: bool) -> bool:
    """Return True if a token with the text of a special one is plain text, such as HTML.

    Conversions often give real end tokens such as `<|im_end|>` and `<end_of_turn>` the type normal. No tokenizer learns
    such texts from ordinary text, so they are special whatever the file says. But `</s>` ends a strike-through in HTML.
    """
    return typed_normal and text.startswith("</")


def _id_or_none(token_id: int) -> int | None:
    return None if token_id < 0 else token_id


def _ids(guess: int, function: Callable[..., int], *args: object) -> list[int]:
    """Return token ids from a function that writes them if there are at most ``guess``, and reports their number."""
    n_out = ffi.new("int32_t *", guess)
    while True:
        capacity = n_out[0]
        ids = np.empty(capacity, np.int32)
        c_calls.call(function, *args, pointer("int32_t[]", ids), capacity, n_out)
        if n_out[0] <= capacity:
            found: list[int] = ids[: n_out[0]].tolist()
            return found


def _text(guess: int, function: Callable[..., int], *args: object) -> bytes:
    """Return bytes from a function that writes them if there are at most ``guess``, and reports their number."""
    length = ffi.new("size_t *", guess)
    while True:
        capacity = length[0]
        buffer = ffi.new("char[]", capacity)
        c_calls.call(function, *args, buffer, capacity, length)
        if length[0] <= capacity:
            return bytes(ffi.buffer(buffer, length[0]))

"""Hugging Face tokenizers, from files or from the model's own file, in place of the engine's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import shown
from pyggml._native.model import TOKENIZER_JSON, Model
from pyggml._native.token_batch import TokenBatch
from pyggml._native.vocab import TokenAttr, Vocab
from pyggml.errors import InferError, InvalidParameterError, TokenizerError
from pyggml.tokenizer import Tokenizer, files
from pyggml.tokenizer.token_bytes import bytes_of_tokens
from pyggml.tokenizer.tokenizer_json import assembles_special_tokens, without_special_tokens

if TYPE_CHECKING:
    import tokenizers

T = TypeVar("T")

_SPECIAL = TokenAttr.CONTROL | TokenAttr.UNKNOWN
# Properties of added tokens -> the model's attributes.
_PROPERTIES = {"special": _SPECIAL, "lstrip": TokenAttr.LSTRIP, "rstrip": TokenAttr.RSTRIP}
_FILLER = TokenAttr.UNUSED | TokenAttr.USER_DEFINED

_WAY_OUT = "use this model's own tokenizer, or none for the one in the model's file"
_WAY_AROUND = (
    "pass another tokenizer as tokenizer=, or Tokenizer(model.vocab) of an open Model for the engine's own, or convert "
    "the model again"
)


def open_tokenizer(path: str | os.PathLike[str] | None, model: Model) -> Tokenizer:
    """Open a tokenizer and check that it belongs to a model.

    Args:
        path: a ``tokenizer.json``, a SentencePiece ``tokenizer.model``, or a directory with one of them; the former is
            preferred. None: the model's own, as :func:`pyggml.load` takes it: the ``tokenizer.json`` that the model's
            file carries, or else the engine's with the file's vocabulary.
        model: the model that will read the ids.

    Raises:
        TokenizerNotFoundError: there is no tokenizer. It is also a FileNotFoundError.
        TokenizerError: it cannot be read, or belongs to another model; the message names the first token that differs.
        InvalidParameterError: ``path`` is not a path.
        ClosedError: the model was closed.
    """
    if not isinstance(model, Model):
        raise InvalidParameterError(f"a Model was expected, not {shown(model)}")
    if path is None:
        return _own_tokenizer(model)
    file, content = files.read(path)
    return HuggingFaceTokenizer(content, model.vocab, str(file))


def _own_tokenizer(model: Model) -> Tokenizer:
    """Return the tokenizer in the model's file: its ``tokenizer.json``, which GGUF prefers, or its vocabulary."""
    data = model.tokenizer_json
    if data is None:
        return Tokenizer(model.vocab)
    try:
        return carried_tokenizer(data, model, f"{model.path}: {TOKENIZER_JSON}")
    except TokenizerError as error:
        raise TokenizerError(f"{error}; {_WAY_AROUND}") from error


def carried_tokenizer(data: bytes, model: Model, name: str) -> Tokenizer:
    """Open the tokenizer that a model's file carries or will carry, a ``tokenizer.json`` with a name for messages."""
    return HuggingFaceTokenizer(files.parse_json(data, name), model.vocab, name, is_models_own=True)


def tokenizer_for(model: Model, tokenizer: object) -> Tokenizer:
    """Return the tokenizer for an argument: None, a path, a pyggml tokenizer of this model, or a Hugging Face one.

    Raises:
        InvalidParameterError: it is none of these, or a tokenizer for another model.
        TokenizerError: as :func:`open_tokenizer`.
    """
    if tokenizer is None:
        return _own_tokenizer(model)
    if isinstance(tokenizer, Tokenizer):
        if tokenizer.vocab is not model.vocab:
            raise InvalidParameterError("this tokenizer was opened for another model: open it again for this one")
        return tokenizer
    if isinstance(tokenizer, (str, os.PathLike)):
        return open_tokenizer(tokenizer, model)
    to_json = getattr(tokenizer, "to_str", None)  # recognises a tokenizers.Tokenizer without importing the package
    if to_json is None:
        raise InvalidParameterError(f"tokenizer must be a path or a tokenizer, not {type(tokenizer).__name__}")
    return HuggingFaceTokenizer(json.loads(to_json()), model.vocab, "the tokenizer")


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of Hugging Face's ``tokenizers`` for a model with the same vocabulary. Safe to share.

    It encodes and decodes; the model determines the special tokens around a text, and those that are never shown.
    """

    def __init__(self, content: Mapping[str, Any], vocab: Vocab, name: str, *, is_models_own: bool = False) -> None:
        """Create it from the content of a ``tokenizer.json``, with a name for messages.

        Args:
            content: the file's content.
            vocab: the model's vocabulary, which the caller keeps open.
            name: its name in messages.
            is_models_own: the model's file contains it. Then it determines the tokens that strip blanks, which the
                engine only guesses from the model's name.

        Raises:
            TokenizerError: ``tokenizers`` cannot read it, or it belongs to another model.
        """
        super().__init__(vocab)
        self._name = name
        self._as_tokens, self._as_text = self._guarded(lambda: _build(_adapted(content, vocab, is_models_own)))
        self._spelled = self._guarded(lambda: bytes_of_tokens(content.get("decoder")))
        self._separates_words = content.get("decoder") is None
        self._require_same_vocabulary()

    @cached_property
    def special_texts(self) -> Mapping[str, tuple[bool, bool]]:
        """See :class:`Tokenizer`."""
        added = self._as_tokens.get_added_tokens_decoder().values()
        return {token.content: (token.lstrip, token.rstrip) for token in added if token.special}

    def _encode(self, text: str, parse_special: bool) -> list[int]:
        engine = self._as_tokens if parse_special else self._as_text
        return self._guarded(lambda: engine.encode(text, add_special_tokens=False).ids)

    def _encode_batch(self, texts: list[str], add_special: bool, parse_special: bool) -> TokenBatch:
        engine = self._as_tokens if parse_special else self._as_text
        found = self._guarded(lambda: engine.encode_batch(texts, add_special_tokens=False))
        return self._joined((each.ids for each in found), add_special)

    def _piece(self, token_id: int) -> bytes:
        own = super()._piece(token_id)
        spelling = self._as_tokens.id_to_token(token_id)
        if spelling is None or self.vocab.attr(token_id) & _SPECIAL:
            return own
        return self._spelled(spelling)

    @cached_property
    def _puts_space_first(self) -> bool:
        return self._separates_words or super()._puts_space_first

    def _guarded(self, work: Callable[[], T]) -> T:
        """Run code that may fail inside ``tokenizers``, whose panics are not Exceptions."""
        try:
            return work()
        except TokenizerError as error:
            raise TokenizerError(f"{self._name}: {error}") from None
        except InferError:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            message = str(error) or type(error).__name__  # may quote the whole input
            raise TokenizerError(f"{self._name}: {message:.500}") from error

    def _require_same_vocabulary(self) -> None:
        """Check that every id means the same to the tokenizer and the model."""
        vocab, tokens = self.vocab, self._as_tokens
        ids = tokens.get_vocab(with_added_tokens=True)
        largest = max(ids.values(), default=-1)
        if largest >= vocab.n_tokens:
            raise self._mismatch(
                f"has ids up to {largest} ({shown(tokens.id_to_token(largest))}), but the model has {vocab.n_tokens} "
                "tokens"
            )
        for token_id, text in enumerate(vocab.texts()):
            if ids.get(text) == token_id:
                continue
            spelling = tokens.id_to_token(token_id)
            if spelling is None:
                self._require_filler(token_id, largest + 1)
            elif spelling != text:
                self._require_same_bytes(token_id, spelling)

    def _require_filler(self, token_id: int, n_tokens: int) -> None:
        """Check that a token unknown to the tokenizer only pads the model's vocabulary to a round size."""
        vocab = self.vocab
        if vocab.attr(token_id) & _FILLER and not vocab.is_eog(token_id):
            return
        if vocab.is_control(token_id) and not vocab.is_eog(token_id) and token_id not in (vocab.bos, vocab.eos):
            return
        raise self._mismatch(
            f"has {n_tokens} tokens but not id {token_id}, which is {shown(vocab.text(token_id))} in the model"
            + (" and ends a generation" if vocab.is_eog(token_id) else "")
        )

    def _require_same_bytes(self, token_id: int, spelling: str) -> None:
        vocab = self.vocab
        if vocab.attr(token_id) & TokenAttr.UNUSED:
            return
        if self._spelled(spelling) != vocab.piece(token_id, special=True):
            raise self._mismatch(
                f"reads id {token_id} as {shown(spelling)}, the model as {shown(vocab.text(token_id))}"
            )

    def _mismatch(self, difference: str) -> TokenizerError:
        return TokenizerError(f"{self._name} is not this model's tokenizer: it {difference}; {_WAY_OUT}")


def _adapted(content: Mapping[str, Any], vocab: Vocab, is_models_own: bool) -> dict[str, Any]:
    """Adapt a tokenizer's content to pyggml's needs.

    pyggml adds the special tokens around a text, and nothing is truncated or padded. Tokens that are special in the
    model, or strip blanks there unless this is the model's own tokenizer, do so here too, so that both agree.
    """
    properties = {"special": _SPECIAL} if is_models_own else _PROPERTIES
    added = [dict(token) for token in content.get("added_tokens") or ()]
    for token in added:
        attr = vocab.attr(token["id"]) if 0 <= token["id"] < vocab.n_tokens else 0
        for property, bits in properties.items():
            token[property] = bool(token.get(property) or attr & bits)
    return {**content, "added_tokens": added, "post_processor": None, "truncation": None, "padding": None}


def _build(content: Mapping[str, Any]) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """Return a tokenizer that reads special tokens in a text as tokens, and one that reads them as text.

    Threads share both; neither is ever modified.
    """
    from tokenizers import Tokenizer as Engine  # imported late: it takes longer than all of pyggml

    as_tokens = Engine.from_str(_serialized(content))
    if assembles_special_tokens(content):
        return as_tokens, Engine.from_str(_serialized(without_special_tokens(content)))
    as_text = Engine(as_tokens.model)  # shares the model, which is what takes time and memory
    if as_tokens.normalizer is not None:
        as_text.normalizer = as_tokens.normalizer
    if as_tokens.pre_tokenizer is not None:
        as_text.pre_tokenizer = as_tokens.pre_tokenizer
    added = sorted(as_tokens.get_added_tokens_decoder().items())
    as_text.add_tokens([token for _, token in added])
    as_text.encode_special_tokens = True
    return as_tokens, as_text


def _serialized(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, check_circular=False, separators=(",", ":"))

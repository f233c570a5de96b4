"""Unigram models, as in T5 and XLM-R: a text is split so that the product of its tokens' probabilities is maximal."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np

from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.pre_tokenizers import flattened
from pyggml.importer.vocabulary.token_table import MAX_TOKENS, Token, Tokenization, TokenTable
from pyggml.tokenizer.sentencepiece import SentencePieceModel

# Engine and tokenizer both find the most probable split, but break ties and normalise text differently.
_DIFFERENCE = "the engine normalises text for Unigram models in its own way"


def read_json(tokenizer: Mapping[str, Any], where: str) -> Tokenization:
    """Read such a tokenizer from a ``tokenizer.json``."""
    model, place = tokenizer["model"], f'{where}: "model"["vocab"]'
    listed = model.get("vocab")
    if not isinstance(listed, list) or len(listed) > MAX_TOKENS:
        raise TokenizerError(f"{place}: a list of at most {MAX_TOKENS} tokens was expected, not {listed!r:.100}")
    tokens = TokenTable()
    for i, entry in enumerate(listed):
        text, score = _entry(entry, f"{place}[{i}]")
        type = TokenType.UNKNOWN if i == model.get("unk_id") else TokenType.NORMAL
        tokens.add(i, Token(text, type, score), f"{place}[{i}]")
    return _tokenization(tokens, _charsmap(tokenizer, where))


def read_model(model: SentencePieceModel, where: str) -> Tokenization:
    """Read such a tokenizer from a ``tokenizer.model``."""
    tokens = TokenTable()
    for i, piece in enumerate(model.pieces):
        tokens.add(i, Token(piece.text, piece.type, piece.score), where)
    return _tokenization(tokens, model.precompiled_charsmap)


def _tokenization(tokens: TokenTable, charsmap: bytes) -> Tokenization:
    metadata: dict[str, object] = {"tokenizer.ggml.add_space_prefix": True}
    if charsmap:
        metadata["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(charsmap, np.uint8)
    return Tokenization("t5", tokens, metadata, has_scores=True, differences=[_DIFFERENCE])


def _entry(entry: object, place: str) -> tuple[str, float]:
    if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], (int, float)):
        return entry[0], float(entry[1])
    raise TokenizerError(f"{place}: a token and its score were expected, not {entry!r:.100}")


def _charsmap(tokenizer: Mapping[str, Any], where: str) -> bytes:
    for step in flattened(tokenizer.get("normalizer"), "normalizers"):
        if step.get("type") == "Precompiled":
            try:
                return base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (TypeError, ValueError, binascii.Error) as error:
                raise TokenizerError(f'{where}: "precompiled_charsmap" is not valid base64: {error}') from None
    return b""

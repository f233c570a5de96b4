"""Tokenizer models that the engine lacks: whole words, and BPE over characters.

Only the checkpoint's own tokenizer can encode for them. The engine gets their tokens spelled as SentencePiece's, so
that it decodes them and finds the special ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyggml._native.vocab import TokenType
from pyggml.importer.vocabulary.bpe import require_no_dropout
from pyggml.importer.vocabulary.sentencepiece_bpe import BYTES, SPACE
from pyggml.importer.vocabulary.token_table import Token, Tokenization, TokenTable, texts_by_id
from pyggml.tokenizer.token_bytes import bytes_of_tokens

KINDS = frozenset({"BPE", "WordLevel"})


def read_json(tokenizer: Mapping[str, Any], literal: Collection[str], where: str) -> Tokenization:
    """Read such a tokenizer; tokens in ``literal`` keep their spelling, since other files name them."""
    model, place = tokenizer["model"], f'{where}: "model"["vocab"]'
    require_no_dropout(model, f'{where}: "model"')
    unknown = model.get("unk_token")
    bytes_of = bytes_of_tokens(tokenizer.get("decoder"))
    tokens = TokenTable()
    for text, token_id in texts_by_id(model.get("vocab"), place):
        type = TokenType.UNKNOWN if text == unknown else TokenType.BYTE if text in BYTES else TokenType.NORMAL
        is_text = type is TokenType.NORMAL and text not in literal
        token = _spelled(bytes_of(text).decode(errors="replace")) if is_text else Token(text, type)
        tokens.add(token_id, token, place)
    metadata: dict[str, object] = {"tokenizer.ggml.add_space_prefix": False}
    if isinstance(unknown, str) and unknown in tokens.ids:
        metadata["tokenizer.ggml.unknown_token_id"] = tokens.ids[unknown]
    kind = "BPE that is neither byte-level nor SentencePiece's" if "merges" in model else model.get("type")
    return Tokenization("llama", tokens, metadata, differences=[f"the engine has no tokenizer of this kind: {kind}"])


def _spelled(piece: str) -> Token:
    """A token that the engine decodes to this text: it writes a space for ``▁``, except in user-defined tokens."""
    return Token(piece, TokenType.USER_DEFINED) if SPACE in piece else Token(piece.replace(" ", SPACE))

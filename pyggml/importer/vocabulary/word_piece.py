"""WordPiece, as in BERT: each word is split greedily into the longest tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyggml.importer.vocabulary.added_tokens import AddedToken
from pyggml.importer.vocabulary.pre_tokenizers import flattened
from pyggml.importer.vocabulary.token_table import Token, Tokenization, TokenTable, texts_by_id

_WORD_BEGINS = "▁"
_DIFFERENCE = "the engine normalises text for WordPiece in its own way"


def read_json(tokenizer: Mapping[str, Any], added: Sequence[AddedToken], where: str) -> Tokenization:
    """Read such a tokenizer from a ``tokenizer.json``."""
    model, place = tokenizer["model"], f'{where}: "model"["vocab"]'
    continues = str(model.get("continuing_subword_prefix", "##"))
    special = {token.text for token in added}
    tokens = TokenTable()
    for text, token_id in texts_by_id(model.get("vocab"), place):
        tokens.add(token_id, Token(text if text in special else _spelled(text, continues)), place)
    return Tokenization("bert", tokens, _normalizer(tokenizer), differences=[_DIFFERENCE])


def _spelled(text: str, continues: str) -> str:
    """The engine's spelling: it marks tokens that begin a word, WordPiece those that continue one."""
    return text.removeprefix(continues) if text.startswith(continues) and text != continues else _WORD_BEGINS + text


def _normalizer(tokenizer: Mapping[str, Any]) -> dict[str, object]:
    metadata: dict[str, object] = {"tokenizer.ggml.add_space_prefix": False}
    for step in flattened(tokenizer.get("normalizer"), "normalizers"):
        if step.get("type") == "BertNormalizer":
            lowercase, accents = bool(step.get("lowercase", True)), step.get("strip_accents")
            metadata["tokenizer.ggml.normalizer.lowercase"] = lowercase
            metadata["tokenizer.ggml.normalizer.strip_accents"] = lowercase if accents is None else bool(accents)
    return metadata

"""The checkpoint's own tokenizer for the GGUF file: a self-contained ``tokenizer.json``.

It is written if the engine would tokenise some texts differently. It includes what transformers reads from the other
tokenizer files: added tokens with their rules, and tokens with special roles. Tokens beyond the model's embedding are
left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.added_tokens import WHITESPACE_RULES, AddedToken
from pyggml.importer.vocabulary.token_table import Token, TokenTable
from pyggml.tokenizer.files import TokenizerDirectory
from pyggml.tokenizer.sentencepiece import Piece, SentencePieceModel
from pyggml.tokenizer.tokenizer_json import from_sentencepiece

_SPECIAL = frozenset({TokenType.CONTROL, TokenType.UNKNOWN})


def tokenizer_json(files: TokenizerDirectory, tokens: TokenTable, added: Sequence[AddedToken]) -> str:
    """Return the whole tokenizer as JSON, without white space; ``added`` are the added tokens in the finished table."""
    if files.sentencepiece is None:
        content = dict(files.tokenizer_json)
        listed = [dict(token) for token in content.get("added_tokens") or () if token["content"] in tokens.ids]
    else:
        content = from_sentencepiece(_with_all_pieces(files.sentencepiece, tokens))
        listed = list(_with_rules(content["added_tokens"], added))
    known = {token["content"] for token in listed}
    others = {token.text: _entry(token) for token in added if token.text not in known}
    for token_id, token in tokens.by_id.items():
        if token.type in _SPECIAL and token.text not in known:
            role = AddedToken(token_id, token.text, is_special=True, is_normalized=False, rules=(), where="")
            others.setdefault(token.text, _entry(role))  # as transformers adds it
    content["added_tokens"] = [*listed, *sorted(others.values(), key=lambda token: int(token["id"]))]
    try:
        whole = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        whole.encode()
    except (RecursionError, UnicodeEncodeError) as error:  # a lone surrogate
        raise TokenizerError(f"{files.tokenizer_file} cannot be written into the GGUF file: {error}") from None
    return whole


def _with_all_pieces(model: SentencePieceModel, tokens: TokenTable) -> SentencePieceModel:
    """The model with the tokens of the other files, and with unmatchable pieces in the gaps between ids."""
    ids = range(max(tokens.by_id) + 1)
    present = [tokens.by_id.get(i) or Token(f"\0{i}", TokenType.UNUSED) for i in ids]
    return replace(model, pieces=tuple(Piece(token.text, token.score, token.type) for token in present))


def _with_rules(listed: Sequence[Mapping[str, Any]], added: Sequence[AddedToken]) -> Iterator[dict[str, Any]]:
    """The entries of added tokens, with rules from the settings files of a ``tokenizer.model``."""
    rules = {token.text: token.rules for token in added}
    for token in listed:
        yield {**token, **dict.fromkeys(rules.get(token["content"], ()), True)}


def _entry(token: AddedToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "content": token.text,
        **{rule: rule in token.rules for rule in WHITESPACE_RULES},
        "normalized": token.is_normalized,
        "special": token.is_special,
    }

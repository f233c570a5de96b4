"""Byte-pair encoding in a ``tokenizer.json``: the parts that byte-level and SentencePiece vocabularies share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.token_table import MAX_TOKENS, Token, TokenTable, texts_by_id

Merge = tuple[str, str]

_MAX_MERGES = 4 * MAX_TOKENS
_UNSUPPORTED = ("continuing_subword_prefix", "end_of_word_suffix")


def tokens_of(model: Mapping[str, Any], where: str) -> TokenTable:
    """Read the vocabulary."""
    require_no_dropout(model, where)
    for option in _UNSUPPORTED:
        if model.get(option):
            raise TokenizerError(f'{where}["{option}"] is {model[option]!r:.80}, which the engine does not support')
    table = TokenTable()
    place = f'{where}["vocab"]'
    for text, token_id in texts_by_id(model.get("vocab"), place):
        table.add(token_id, Token(text), place)
    return table


def require_no_dropout(model: Mapping[str, Any], where: str) -> None:
    """Reject a tokenizer that drops merges at random."""
    if model.get("dropout"):
        raise TokenizerError(
            f'{where}["dropout"] is {model["dropout"]!r:.80}, so that the same text has other ids each time: set it to '
            "null"
        )


def merges_of(model: Mapping[str, Any], tokens: TokenTable, where: str) -> list[Merge]:
    """Read the merges, best first; older files write them as text, newer ones as pairs."""
    place = f'{where}["merges"]'
    listed = model.get("merges")
    if not isinstance(listed, list) or len(listed) > _MAX_MERGES:
        raise TokenizerError(f"{place}: a list of at most {_MAX_MERGES} merges was expected, not {listed!r:.100}")
    ids = tokens.ids
    merges = [_halves(merge, place, i) for i, merge in enumerate(listed)]
    for i, (left, right) in enumerate(merges):
        if left not in ids or right not in ids or left + right not in ids:
            raise TokenizerError(
                f"{place}[{i}]: {left!r:.80}, {right!r:.80} or their concatenation is not in the vocabulary"
            )
    return merges


def _halves(merge: object, place: str, index: int) -> Merge:
    halves = merge.split(" ") if isinstance(merge, str) else merge if isinstance(merge, list) else []
    if len(halves) != 2 or not all(isinstance(half, str) and half for half in halves):
        raise TokenizerError(f"{place}[{index}]: two tokens were expected, not {merge!r:.100}")
    return str(halves[0]), str(halves[1])

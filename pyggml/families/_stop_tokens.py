"""Tokens that end a generation.

The engine treats every token as an end whose text is an end in some model; if the file names none, also the token
that has the id of another model's end. Such a token may be plain text in this model: `</s>` is an HTML tag in the
vocabularies of Qwen and Gemma. So the token types in the file, and the family's declaration, take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyggml._native.model import Model
from pyggml._native.vocab import TokenAttr, Vocab, is_markup
from pyggml.errors import TokenizerError
from pyggml.families._family import Family

_NAMED_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
#: All ends that a Hugging Face directory names, as comma-separated ids: GGUF's own keys hold only three.
STOP_TOKEN_IDS = "pyggml.stop_token_ids"
_SPECIAL = TokenAttr.CONTROL | TokenAttr.USER_DEFINED


def named_ends(metadata: Mapping[str, object]) -> set[int]:
    """Return the ids that a file's metadata names as ends, as text or as numbers."""
    values = [str(metadata.get(key)) for key in _NAMED_ENDS] + str(metadata.get(STOP_TOKEN_IDS)).split(",")
    return {int(value) for value in values if value.isdecimal()}


def stop_tokens(model: Model, family: Family) -> dict[int, str]:
    """Return id -> text of the tokens that end a generation: the family's in its order, then the others.

    Args:
        model: the model.
        family: its family.

    Raises:
        TokenizerError: there are none.
        ClosedError: the model was closed.
    """
    vocab = model.vocab
    found = {i for text in family.stop_tokens if (i := vocab.find(text)) is not None}
    named = {i for i in named_ends(model.metadata) if i < vocab.n_tokens}
    ids = sorted({*vocab.eog_ids, *named, *found})
    ends = {i: vocab.text(i) for i in ids if i in named or _ends(vocab, i, family)}
    if not ends:
        raise TokenizerError(_message(model, family))
    order = {text: rank for rank, text in enumerate(family.stop_tokens)}
    return dict(sorted(ends.items(), key=lambda end: order.get(end[1], len(order))))


def _ends(vocab: Vocab, token_id: int, family: Family) -> bool:
    text, attr = vocab.text(token_id), vocab.attr(token_id)
    return (
        bool(attr & _SPECIAL) and not is_markup(text, bool(attr & TokenAttr.NORMAL)) and text not in family.text_tokens
    )


def _message(model: Model, family: Family) -> str:
    tokens = ", ".join(map(repr, family.stop_tokens)) or "any end that the engine knows"
    return (
        f"{Path(model.path).name} has no token to stop at, so generation would never end: its vocabulary was searched "
        f"for {tokens} as a special token, and its metadata for {', '.join(_NAMED_ENDS)}. Set one of these to the id "
        "of the token that ends a text"
    )

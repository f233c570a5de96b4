"""Which tokens end a generation.

The engine marks every token as an end whose text is that of an end in some model, and, where a file names none, the
token that happens to have the number of another model's. Either may be a piece of plain text in this one: `</s>` is a
tag of HTML in the vocabularies of Qwen and Gemma. So the file's own types have the last word, and the family's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyggml.errors import TokenizerError
from pyggml.families._family import Family
from pyggml.model import Model
from pyggml.vocab import TokenAttr, Vocab

_NAMED_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
#: All the ends that a Hugging Face directory named, as text with commas between: GGUF itself has room for three.
STOP_TOKEN_IDS = "pyggml.stop_token_ids"
_SPECIAL = TokenAttr.CONTROL | TokenAttr.USER_DEFINED


def is_markup(text: str, typed_normal: bool) -> bool:
    """Whether a token with the text of a special one is plain text that models write.

    Conversions often typed real ends as normal: `<|im_end|>`, `<end_of_turn>`. No tokenizer learns such a text from
    what people write, so these are special whatever the file says. But `</s>` closes a strike-through.
    """
    return typed_normal and text.startswith("</")


def named_ends(metadata: Mapping[str, object]) -> set[int]:
    """The ids that a file names as ends, by its metadata, as text or as numbers."""
    values = [str(metadata.get(key)) for key in _NAMED_ENDS] + str(metadata.get(STOP_TOKEN_IDS)).split(",")
    return {int(value) for value in values if value.isdecimal()}


def stop_tokens(model: Model, family: Family) -> dict[int, str]:
    """Token id -> text of each token that ends a generation of ``model``: the family's in its order, then the others.

    Raises:
        TokenizerError: there is none.
        ClosedError: the model was closed.
    """
    vocab = model.vocab
    found = (vocab.find(text) for text in family.stop_tokens)
    named = {token_id for token_id in named_ends(model.metadata) if token_id < vocab.n_tokens}
    ids = {*vocab.eog_ids, *named, *(token_id for token_id in found if token_id is not None)}
    ends = {
        token_id: vocab.text(token_id)
        for token_id in sorted(ids)
        if token_id in named or _ends(vocab, token_id, family)
    }
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
    tokens = ", ".join(map(repr, family.stop_tokens)) or "any text that the engine knows as an end"
    return (
        f"{Path(model.path).name} has no token to stop at, so generation would never end: its vocabulary was searched "
        f"for {tokens} as a special token, and its metadata for {', '.join(_NAMED_ENDS)}. Set one of these to the id "
        "of the token that ends a text"
    )

"""SentencePiece's BPE, as in Llama 2, Mistral, Gemma 1 to 3 and Phi-3: spaces are ``▁``, unknown characters are bytes.

The engine joins the neighbours that make the token with the highest score. A ``tokenizer.model`` has these scores. A
``tokenizer.json`` has merges instead; a token's score is then minus the rank of the first merge that makes it. This
gives the same ids if the merges are those that SentencePiece's scores imply, which is checked here token by token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pyggml._native.vocab import TokenType
from pyggml.importer.vocabulary import merge_order
from pyggml.importer.vocabulary.added_tokens import AddedToken
from pyggml.importer.vocabulary.bpe import Merge, merges_of, tokens_of
from pyggml.importer.vocabulary.pre_tokenizers import flattened
from pyggml.importer.vocabulary.token_table import Token, Tokenization, TokenTable
from pyggml.tokenizer.sentencepiece import SentencePieceModel

SPACE = "▁"
_AT_START_ONLY = "a space is prepended to the beginning of a text only, not after special tokens"
#: The tokens for bytes.
BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


def uses_sentencepiece_spaces(tokenizer: Mapping[str, Any]) -> bool:
    """Check whether spaces become ``▁`` before a text is tokenised."""
    steps = [*_normalizers(tokenizer), *_pre_tokenizers(tokenizer)]
    return any(_replaces_spaces(step) or step.get("type") == "Metaspace" for step in steps)


def read_json(tokenizer: Mapping[str, Any], added: Sequence[AddedToken], where: str) -> Tokenization:
    """Read such a tokenizer from a ``tokenizer.json``."""
    model, place = tokenizer["model"], f'{where}: "model"'
    listed = tokens_of(model, place)
    merges = merges_of(model, listed, place)
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    tokens = _scored(listed, merges, model.get("unk_token"))
    return Tokenization(
        model="llama",
        tokens=tokens,
        metadata={"tokenizer.ggml.add_space_prefix": _has_prefix(tokenizer)},
        has_scores=True,
        differences=[
            *_text_differences(tokenizer, tokens, added),
            *_fallback_differences(tokens.ids.keys() if model.get("byte_fallback") else ()),
            *merge_order.differences(*_texts(tokens, added), ranks),
            *(["words that are tokens are taken whole"] if model.get("ignore_merges") else []),
        ],
    )


def read_model(model: SentencePieceModel, added: Sequence[AddedToken], where: str) -> Tokenization:
    """Read such a tokenizer from a ``tokenizer.model``."""
    tokens = TokenTable()
    for i, piece in enumerate(model.pieces):
        # User-defined pieces are matched in the original text, which has spaces.
        text = piece.text.replace(SPACE, " ") if piece.type is TokenType.USER_DEFINED else piece.text
        tokens.add(i, Token(text, piece.type, piece.score), where)
    return Tokenization(
        model="llama",
        tokens=tokens,
        metadata={"tokenizer.ggml.add_space_prefix": model.add_dummy_prefix},
        has_scores=True,
        differences=[
            *_fallback_differences(tokens.ids.keys() if model.byte_fallback else ()),
            *merge_order.differences(*_texts(tokens, added)),
            *(["extra spaces are removed"] if model.remove_extra_whitespaces else []),
            *([_AT_START_ONLY] if model.add_dummy_prefix and model.prefixes_start_only else []),
            *(["characters are normalised"] if model.precompiled_charsmap else []),
            *([] if model.escape_whitespaces else ["spaces stay spaces"]),
        ],
    )


def _scored(listed: TokenTable, merges: Sequence[Merge], unknown: object) -> TokenTable:
    """The tokens with the scores that the merges imply."""
    scores: dict[str, float] = {}
    for rank, (left, right) in enumerate(merges):
        scores.setdefault(left + right, -float(rank))
    tokens = TokenTable(ids=listed.ids)
    for token_id, token in listed.by_id.items():
        type = TokenType.BYTE if token.text in BYTES else TokenType.NORMAL
        type = TokenType.UNKNOWN if token.text == unknown else type
        tokens.by_id[token_id] = Token(token.text, type, scores.get(token.text, -float(len(merges))))
    return tokens


# --- how text is prepared -------------------------------------------------------------------------------------


def _normalizers(tokenizer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(flattened(tokenizer.get("normalizer"), "normalizers"))


def _pre_tokenizers(tokenizer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(flattened(tokenizer.get("pre_tokenizer"), "pretokenizers"))


def _replaces_spaces(step: Mapping[str, Any]) -> bool:
    return step.get("type") == "Replace" and step.get("pattern") == {"String": " "} and step.get("content") == SPACE


def _prepends_space(step: Mapping[str, Any]) -> bool:
    return step.get("type") == "Prepend" and step.get("prepend") == SPACE


def _prepend_scheme(step: Mapping[str, Any]) -> str:
    """The prepend scheme of a Metaspace; older files have a flag for it."""
    return str(step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never"))


def _has_prefix(tokenizer: Mapping[str, Any]) -> bool:
    """Check whether a space is prepended to each text."""
    if any(map(_prepends_space, _normalizers(tokenizer))):
        return True
    metaspaces = [step for step in _pre_tokenizers(tokenizer) if step.get("type") == "Metaspace"]
    return any(_prepend_scheme(step) != "never" for step in metaspaces)


def _text_differences(tokenizer: Mapping[str, Any], tokens: TokenTable, added: Sequence[AddedToken]) -> Iterator[str]:
    """Steps of the tokenizer before tokenisation that the engine lacks."""
    normalizers = _normalizers(tokenizer)
    others = [step for step in normalizers if not _replaces_spaces(step) and not _prepends_space(step)]
    if others:
        yield f"the engine does not normalise text ({', '.join(str(step.get('type')) for step in others)})"
    is_replaced = any(map(_replaces_spaces, normalizers))
    for step in _pre_tokenizers(tokenizer):
        if step.get("type") == "Metaspace":
            yield from _metaspace_differences(step, tokens)
        elif not (is_replaced and step.get("type") == "Split" and step.get("pattern") == {"String": " "}):
            yield f"the engine does not support its pre-tokenizer: {step.get('type')}"
    if normalizers and any(token.is_normalized and _is_changed(token.text, normalizers) for token in added):
        yield "added tokens are looked for in the normalised text"


def _is_changed(text: str, normalizers: Sequence[Mapping[str, Any]]) -> bool:
    return " " in text or SPACE in text or any(map(_prepends_space, normalizers))


def _metaspace_differences(step: Mapping[str, Any], tokens: TokenTable) -> Iterator[str]:
    if step.get("replacement", SPACE) != SPACE:
        yield f"spaces become {step.get('replacement')!r:.20}"
    scheme = _prepend_scheme(step)
    if scheme == "first":
        yield _AT_START_ONLY
    elif scheme != "never":
        yield "no space is prepended to a text that begins with one"
    if step.get("split", True) and any(SPACE in token.text[1:] for token in tokens.by_id.values()):
        yield "text is split at each space"


def _fallback_differences(bytes_known: Collection[str]) -> Iterator[str]:
    if any(byte not in bytes_known for byte in BYTES):
        yield "unknown characters do not become bytes"


def _texts(tokens: TokenTable, added: Sequence[AddedToken]) -> tuple[set[str], set[str]]:
    """The texts of all tokens, and of the normal ones among them."""
    special = {token.text for token in added}
    normal = {token.text for token in tokens.by_id.values() if token.type is TokenType.NORMAL}
    return special | tokens.ids.keys(), normal - special

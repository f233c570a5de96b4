"""Creation and modification of the content of a ``tokenizer.json``, for Hugging Face ``tokenizers``."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyggml._core.checks import shown
from pyggml._native.vocab import TokenType
from pyggml.errors import TokenizerError
from pyggml.tokenizer.sentencepiece import Algorithm, Piece, SentencePieceModel

_SPACE = "▁"
_METASPACE = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "first", "split": False}

# Pieces that merges can make; the others only match their own spelling, or come from bytes.
_MERGED = frozenset({TokenType.NORMAL, TokenType.UNUSED})
# Options of BPE with which it gives tokens that are not the results of merges.
_WORDS_AS_TOKENS = ("ignore_merges", "continuing_subword_prefix", "end_of_word_suffix")
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
_ADDED = frozenset({TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED})


def from_sentencepiece(model: SentencePieceModel) -> dict[str, Any]:
    """Convert a SentencePiece model to the content of a ``tokenizer.json`` with the same ids.

    Raises:
        TokenizerError: it cuts text into words or characters, keeps spaces after words, or has the same piece twice.
    """
    if model.space_is_suffix:
        raise TokenizerError(
            "this SentencePiece model keeps spaces after words, which is not supported: use a tokenizer.json"
        )
    return {
        "version": "1.0",
        "added_tokens": [_added_token(i, piece) for i, piece in enumerate(model.pieces) if piece.type in _ADDED],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(model)},
        "pre_tokenizer": _METASPACE if _has_metaspace(model) else None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": _decoders(model)},
        "model": _model(model),
    }


def assembles_special_tokens(content: Mapping[str, Any]) -> bool:
    """Return True if the algorithm may produce a special token from plain text.

    A unigram model encodes ``</s>`` in a text as that token if it is in the vocabulary. BPE does so only where merges
    make the token, or where it may be a word or a character.
    """
    model = content["model"]
    listed = model["vocab"]
    vocab = listed if isinstance(listed, Mapping) else {text for text, _ in listed}
    present = {token["content"] for token in content["added_tokens"] if token["special"] and token["content"] in vocab}
    if not present:
        return False
    if "merges" not in model or any(map(model.get, _WORDS_AS_TOKENS)):
        return True
    if any(len(text) == 1 or _BYTE.fullmatch(text) for text in present):
        return True
    merged = (merge.replace(" ", "") if isinstance(merge, str) else "".join(merge) for merge in model["merges"])
    return not present.isdisjoint(merged)


def without_special_tokens(content: Mapping[str, Any]) -> dict[str, Any]:
    """Respell special tokens so that no text can produce them, not even where the algorithm assembles them.

    The new spellings contain a NUL, which no text that gets here does.
    """
    names = {token["content"]: f"\0{token['id']}" for token in content["added_tokens"] if token["special"]}

    def name(text: str) -> str:
        return names.get(text, text)

    added = [
        {**token, "content": names[token["content"]], "normalized": False} if token["content"] in names else token
        for token in content["added_tokens"]
    ]
    model = dict(content["model"])
    if isinstance(model["vocab"], Mapping):
        model["vocab"] = {name(text): token_id for text, token_id in model["vocab"].items()}
    else:
        model["vocab"] = [[name(text), score] for text, score in model["vocab"]]
    if model.get("unk_token") is not None:
        model["unk_token"] = name(model["unk_token"])
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if names.keys().isdisjoint(_makes(merge))]
    return {**content, "added_tokens": added, "model": model}


def _makes(merge: str | Sequence[str]) -> tuple[str, str, str]:
    """Return the halves of a merge (one text in older files) and its result."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right


def _added_token(token_id: int, piece: Piece) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": _key(piece),
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": piece.type is not TokenType.USER_DEFINED,
    }


def _key(piece: Piece) -> str:
    """Return the vocabulary's spelling of a piece. User-defined pieces match the original text, which has spaces."""
    return piece.text.replace(_SPACE, " ") if piece.type is TokenType.USER_DEFINED else piece.text


def _normalizers(model: SentencePieceModel) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    if model.precompiled_charsmap:
        charsmap = base64.b64encode(model.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if model.remove_extra_whitespaces:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if _has_metaspace(model):
        return steps
    space = _SPACE if model.escape_whitespaces else " "
    if model.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": space})
    if model.escape_whitespaces:
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    return steps


def _has_metaspace(model: SentencePieceModel) -> bool:
    """Return True if a pre-tokenizer does what else normalizers do to spaces: only it knows where a text begins."""
    return model.add_dummy_prefix and model.prefixes_start_only and model.escape_whitespaces


def _decoders(model: SentencePieceModel) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if model.add_dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return steps


def _model(model: SentencePieceModel) -> dict[str, Any]:
    if model.algorithm is Algorithm.UNIGRAM:
        return {
            "type": "Unigram",
            "unk_id": model.unk_id if model.unk_id >= 0 else None,
            "vocab": [[_key(piece), piece.score] for piece in model.pieces],
            "byte_fallback": model.byte_fallback,
        }
    if model.algorithm is Algorithm.BPE:
        vocab = _ids(model.pieces)
        return {
            "type": "BPE",
            "unk_token": model.pieces[model.unk_id].text if 0 <= model.unk_id < len(model.pieces) else None,
            "fuse_unk": True,
            "byte_fallback": model.byte_fallback,
            "vocab": vocab,
            "merges": _merges(model.pieces, vocab),
        }
    raise TokenizerError(
        f"this SentencePiece model cuts text into {model.algorithm.name.lower()}s; only BPE and unigram are supported"
    )


def _ids(pieces: Sequence[Piece]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for i, piece in enumerate(pieces):
        first = ids.setdefault(_key(piece), i)
        if first != i:
            raise TokenizerError(f"a damaged SentencePiece model: pieces {first} and {i} are both {shown(piece.text)}")
    return ids


def _merges(pieces: Iterable[Piece], vocab: dict[str, int]) -> list[list[str]]:
    """Return every way to make a piece from two others, best first.

    SentencePiece joins whichever neighbours make the piece with the highest score, so all cuts of a piece into two
    others are merges of that piece's rank.
    """
    merges: list[tuple[float, int, int, list[str]]] = []
    for piece in pieces:
        text = piece.text
        if piece.type not in _MERGED:
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in vocab and right in vocab:
                merges.append((-piece.score, vocab[left], vocab[right], [left, right]))
    merges.sort(key=lambda merge: merge[:3])
    return [merge[3] for merge in merges]

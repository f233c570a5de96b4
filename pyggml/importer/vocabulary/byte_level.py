"""Byte-level BPE, as in GPT-2, Llama 3, Qwen and most others: text is split into words, words into bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyggml._core.checks import shown
from pyggml.errors import TokenizerError
from pyggml.importer.vocabulary.added_tokens import AddedToken
from pyggml.importer.vocabulary.bpe import Merge, merges_of, tokens_of
from pyggml.importer.vocabulary.pre_tokenizers import find_pre_tokenizer, flattened
from pyggml.importer.vocabulary.token_table import Tokenization, TokenTable
from pyggml.tokenizer.token_bytes import byte_level_alphabet

_BYTE = {byte: character for character, byte in byte_level_alphabet().items()}
# Bytes that never occur in UTF-8.
_NEVER = {0xC0, 0xC1, *range(0xF5, 0x100)}
_ALPHABET = {character for character, byte in byte_level_alphabet().items() if byte not in _NEVER}


# Tokens that continue after a long s: a case-insensitive "'s" in a regular expression matches it, the engine does not.
_AFTER_LONG_S = re.compile(f"(^|Å)¿[A-Za-z{re.escape(''.join(_BYTE[byte] for byte in range(0xC2, 0xF5)))}]")


def is_byte_level(tokenizer: Mapping[str, Any]) -> bool:
    """Check whether a BPE tokenizer is byte-level."""
    pre_tokenizers = flattened(tokenizer.get("pre_tokenizer"), "pretokenizers")
    decoders = flattened(tokenizer.get("decoder"), "decoders")
    return any(step.get("type") == "ByteLevel" for step in (*pre_tokenizers, *decoders))


def read_json(tokenizer: Mapping[str, Any], added: Sequence[AddedToken], where: str) -> Tokenization:
    """Read a byte-level tokenizer."""
    model, place = tokenizer["model"], f'{where}: "model"'
    tokens = tokens_of(model, place)
    merges = merges_of(model, tokens, place)
    pre_tokenizer, difference = find_pre_tokenizer(tokenizer)
    return Tokenization(
        model="gpt2",
        tokens=tokens,
        metadata={
            "tokenizer.ggml.pre": pre_tokenizer,
            "tokenizer.ggml.merges": [_merge_line(merge, i, place) for i, merge in enumerate(merges)],
            "tokenizer.ggml.add_space_prefix": False,
        },
        differences=[
            *_normalizers(tokenizer),
            *filter(None, [difference]),
            *_differences(model, tokens, merges, added),
        ],
    )


def _merge_line(merge: Merge, index: int, place: str) -> str:
    if any(" " in half or "\n" in half for half in merge):
        raise TokenizerError(f'{place}["merges"][{index}] holds white space, which byte-level tokens cannot: {merge}')
    return " ".join(merge)


def _normalizers(tokenizer: Mapping[str, Any]) -> Iterator[str]:
    names = [str(step.get("type")) for step in flattened(tokenizer.get("normalizer"), "normalizers")]
    if names:
        yield f"the engine does not normalise text ({', '.join(names)})"


def _differences(
    model: Mapping[str, Any], tokens: TokenTable, merges: Sequence[Merge], added: Sequence[AddedToken]
) -> Iterator[str]:
    missing = _ALPHABET - tokens.ids.keys()
    if missing:
        yield f"{len(missing)} bytes have no token, and the engine drops them"
    if any(map(_AFTER_LONG_S.search, tokens.ids)):
        yield "tokens with a long s (ſ), which the engine does not treat as an s after an apostrophe"
    if len(set(merges)) < len(merges):
        yield "some merges are listed twice"
    if model.get("ignore_merges"):
        words = [token.text for token in added if token.is_special and _may_be_a_word(token.text)]
        if words:
            yield f"special tokens that are words, which the engine finds in plain text ({shown(words[0])})"


def _may_be_a_word(text: str) -> bool:
    """Check whether a text may be one word after splitting: letters with an optional leading sign, or only signs."""
    return text[1:].isalpha() or text.isalpha() or not any(map(str.isalnum, text))

"""Small tokenizers, trained in a moment, of the kinds that models have; and texts on which tokenizers differ."""

from __future__ import annotations

import functools
import json
import random
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers, trainers

from support.checkpoints import models

SPACE = "▁"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")

# Things that tokenizers are known to trip over.
_PARTS = [
    *(
        "'s",
        "'S",
        "'ll",
        "'Re",
        "  ",
        "    ",
        "\n",
        "\r\n",
        "\t",
        " ",
        " ",
        " ",
        "\u00a0",
        "123456",
        "1",
        "12",
        "a",
        "bc",
    ),
    *(
        "DEF",
        "Gh",
        "!?",
        "...",
        "/",
        "//",
        "\n\n",
        "é",
        "e\u0301",
        "\u0e01\u0e34",
        "中文",
        "한국",
        "かな",
        "İ",
        "\u200d",
    ),
    *(
        "\u2028",
        "\x85",
        "\x0b",
        "😀",
        "👨‍👩‍👧",
        "١٢٣",
        "Ⅷ",
        "²",
        "_",
        "$",
        "`",
        "<",
        "ｆ",
        "１",
        "。",
        "the",
        "Hello",
        " world",
    ),
    *("def f(x):\n    return x", "aaaa", "aaaaa", "=====", SPACE, SPACE * 2, "<|", "|>"),
]


def texts(n: int, specials: Sequence[str] = (), seed: int = 0) -> list[str]:
    """The engine's own test inputs, and random mixtures."""
    return [*_inputs(), *_mixtures(n, specials, seed)]


def _inputs() -> list[str]:
    text = (models.VOCABULARIES / "ggml-vocab-llama-bpe.gguf.inp").read_text("utf-8")
    return [part for part in text.split("\n__ggml_vocab_test__\n") if part]


def _mixtures(n: int, specials: Sequence[str], seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    for _ in range(n):
        parts = []
        for _ in range(draw.randint(1, 10)):
            kind = draw.random()
            if specials and kind < 0.1:
                parts.append(draw.choice(specials))
            elif kind < 0.65:
                parts.append(draw.choice(_PARTS))
            elif kind < 0.8:
                parts.append(draw.choice(_PARTS) * draw.randint(1, 20))
            else:
                parts.append(draw.choice(_characters()[draw.choice(list(_characters()))]))
        yield "".join(parts)


@functools.cache
def _characters() -> Mapping[str, list[str]]:
    """Characters by category, so that rare ones come often."""
    found: dict[str, list[str]] = {}
    for code in range(1, 0x20000):
        category = unicodedata.category(chr(code))
        if category not in ("Cn", "Co", "Cs"):
            found.setdefault(category, []).append(chr(code))
    return found


@functools.cache
def _corpus() -> list[str]:
    return [
        *_inputs(),
        *_mixtures(500, (), seed=1),
        *_mixtures(100, ("the quick brown fox ", "jumps over "), seed=2),
    ] * 2


def byte_level(
    pre_tokenizer: Mapping[str, Any], specials: Sequence[str] = ("<|endoftext|>",), **changes: object
) -> dict[str, Any]:
    """The content of a byte-level ``tokenizer.json`` that was trained with this pre-tokenizer.

    Args:
        pre_tokenizer: which cuts text into words.
        specials: added tokens.
        changes: other parts of the file.
    """
    content = _base({"pre_tokenizer": pre_tokenizer, "decoder": bytes_only()})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(content, specials, initial_alphabet=alphabet) | changes


def sequence(*parts: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def split(expression: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": invert}


def bytes_only(**options: object) -> dict[str, Any]:
    """The step that spells text in bytes."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False, **options}


def words(expression: str) -> dict[str, Any]:
    return sequence(split(expression), bytes_only())


def metaspace(specials: Sequence[str] = ("<unk>", "<s>", "</s>"), **changes: object) -> dict[str, Any]:
    """The content of a ``tokenizer.json`` with SentencePiece's spaces whose merges are not SentencePiece's."""
    content = _base({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}})
    content["model"] |= {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    return _trained(content, [*specials, *BYTES]) | changes


def _base(changes: Mapping[str, Any]) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {}, "merges": []}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "model": model, **changes}


def _trained(content: Mapping[str, Any], specials: Sequence[str], **options: Any) -> dict[str, Any]:
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    specials = list(specials)
    tokenizer.train_from_iterator(
        _corpus(), trainers.BpeTrainer(vocab_size=900, special_tokens=specials, show_progress=False, **options)
    )
    trained: dict[str, Any] = json.loads(tokenizer.to_str())
    return trained

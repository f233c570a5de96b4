"""Tokenizer files made of the vendored engine's vocabularies, as Hugging Face and SentencePiece would store them.

How a byte-level vocabulary cuts text into words is written in the engine's source, by the name that the GGUF gives
(``tokenizer.ggml.pre``); it is read from there, so that an update of the engine is tested for what it says.
"""

from __future__ import annotations

import functools
import json
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyggml._native.vocab import TokenType
from pyggml.tokenizer.sentencepiece import Algorithm, Piece, SentencePieceModel
from pyggml.tokenizer.tokenizer_json import from_sentencepiece
from support.checkpoints import models

_SOURCE = models.VOCABULARIES.parent / "src" / "llama-vocab.cpp"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


def tokenizer_json(vocabulary: models.Metadata) -> dict[str, Any]:
    """The content of a ``tokenizer.json`` that does what the engine does with this ``tokenizer.*`` metadata."""
    kind = vocabulary["tokenizer.ggml.model"]
    makers = {
        "gpt2": _byte_level,
        "gemma4": _gemma4,
        "bert": _word_piece,
        "llama": _sentencepiece,
        "t5": _sentencepiece,
    }
    content = makers[str(kind)](vocabulary)
    return {"version": "1.0", "truncation": None, "padding": None, "post_processor": _template(vocabulary)} | content


def write_json(directory: Path, vocabulary: models.Metadata) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_json(vocabulary)), "utf-8")
    return path


# --- the kinds ------------------------------------------------------------------------------------------------


def _byte_level(vocabulary: models.Metadata) -> dict[str, Any]:
    pre = str(vocabulary.get("tokenizer.ggml.pre", ""))
    steps = [_split(expression) for expression in word_expressions(pre)]
    return {
        "added_tokens": _added_tokens(vocabulary),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, _BYTE_LEVEL]},
        "decoder": _BYTE_LEVEL,
        "model": _bpe(vocabulary, ignore_merges=ignores_merges(pre)),
    }


def _gemma4(vocabulary: models.Metadata) -> dict[str, Any]:
    return {
        "added_tokens": _added_tokens(vocabulary),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": _split(r"[^\n]+|[\n]+"),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": _bpe(vocabulary, byte_fallback=True, unk_token="<unk>", fuse_unk=True),
    }


def _word_piece(vocabulary: models.Metadata) -> dict[str, Any]:
    # The GGUF marks what begins a word, WordPiece what goes on with one; special tokens are not marked.
    special = {token["id"] for token in _added_tokens(vocabulary)}
    spelled = {
        i: text if i in special else text[1:] if text.startswith("▁") else f"##{text}"
        for i, text in enumerate(_texts(vocabulary))
    }
    return {
        "added_tokens": _added_tokens(vocabulary),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {text: i for i, text in spelled.items()},
        },
    }


def _sentencepiece(vocabulary: models.Metadata) -> dict[str, Any]:
    return from_sentencepiece(sentencepiece_model(vocabulary))


def sentencepiece_model(vocabulary: models.Metadata) -> SentencePieceModel:
    """The vocabulary as SentencePiece has it: GGUF's types are SentencePiece's."""
    is_unigram = vocabulary["tokenizer.ggml.model"] == "t5"
    types, scores = _list(vocabulary, "token_type"), _list(vocabulary, "scores")
    texts = _texts(vocabulary)
    return SentencePieceModel(
        pieces=tuple(
            Piece(text, float(score), TokenType(int(kind)))
            for text, score, kind in zip(texts, scores, types, strict=True)
        ),
        algorithm=Algorithm.UNIGRAM if is_unigram else Algorithm.BPE,
        byte_fallback="<0x00>" in texts,
        add_dummy_prefix=bool(vocabulary.get("tokenizer.ggml.add_space_prefix", True)),
        remove_extra_whitespaces=bool(vocabulary.get("tokenizer.ggml.remove_extra_whitespaces", False)),
        precompiled_charsmap=bytes(byte & 0xFF for byte in map(int, _list(vocabulary, "precompiled_charsmap"))),
        unk_id=int(str(vocabulary.get("tokenizer.ggml.unknown_token_id", 0))),
        bos_id=int(str(vocabulary.get("tokenizer.ggml.bos_token_id", 1))),
        eos_id=int(str(vocabulary.get("tokenizer.ggml.eos_token_id", 2))),
    )


# --- their parts ----------------------------------------------------------------------------------------------

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def _split(expression: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def _bpe(vocabulary: models.Metadata, **options: object) -> dict[str, Any]:
    merges = [_halves(merge) for merge in map(str, _list(vocabulary, "merges"))]
    return {
        "type": "BPE",
        "vocab": {text: i for i, text in enumerate(_texts(vocabulary))},
        "merges": merges,
        **options,
    }


def _halves(merge: str) -> list[str]:
    left, right = merge.split(" ")
    return [left, right]


def _added_tokens(vocabulary: models.Metadata) -> list[dict[str, Any]]:
    types, texts = _list(vocabulary, "token_type"), _texts(vocabulary)
    return [
        {
            "id": i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": int(kind) != USER_DEFINED,
        }
        for i, (text, kind) in enumerate(zip(texts, types, strict=True))
        if int(kind) in (UNKNOWN, CONTROL, USER_DEFINED)
    ]


def _template(vocabulary: models.Metadata) -> dict[str, Any] | None:
    """Return a post-processor that adds BOS, as Llama's and others' files have it."""
    if not vocabulary.get("tokenizer.ggml.add_bos_token"):
        return None
    bos = int(str(vocabulary["tokenizer.ggml.bos_token_id"]))
    name = _texts(vocabulary)[bos]
    special = {"SpecialToken": {"id": name, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [special, text],
        "pair": [special, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [bos], "tokens": [name]}},
    }


def _list(vocabulary: models.Metadata, name: str) -> list[Any]:
    value: Any = vocabulary.get(f"tokenizer.ggml.{name}", ())
    return list(value)


def _texts(vocabulary: models.Metadata) -> list[str]:
    return [str(text) for text in _list(vocabulary, "tokens")]


# --- the engine's source --------------------------------------------------------------------------------------


def word_expressions(pre: str) -> list[str]:
    """The regular expressions with which the engine cuts text into words."""
    return _expressions().get(_branch(pre)[0], _expressions()["default"])


def ignores_merges(pre: str) -> bool:
    """Return True if a word that is itself a token is not merged from parts."""
    return "ignore_merges = true" in _branch(pre)[1]


def _branch(pre: str) -> tuple[str, str]:
    """The enumerator that stands for a pre-tokenizer, and what is set along with it."""
    for condition, body in re.findall(r"if \(\s*(tokenizer_pre ==.*?)\) \{(.*?)\n {12}\}", _source(), re.DOTALL):
        if f'"{pre}"' in condition:
            kind = re.search(r"LLAMA_VOCAB_PRE_TYPE_\w+", body)
            assert kind
            return kind[0], body
    assert pre == "", f"the engine's source knows no {pre}"
    return "LLAMA_VOCAB_PRE_TYPE_DEFAULT", ""


@functools.cache
def _source() -> str:
    return _SOURCE.read_text("utf-8")


@functools.cache
def _expressions() -> Mapping[str, list[str]]:
    """By enumerator; "default" for all others."""
    begin = _source().index("llm_tokenizer_bpe(const llama_vocab & vocab)")
    switch = _source()[begin : _source().index("std::vector<std::string> regex_exprs;", begin)]
    found: dict[str, list[str]] = {}
    for group in re.finditer(r"((?:(?:case LLAMA_VOCAB_PRE_TYPE_\w+|default):\s*)+)(.*?)break;", switch, re.DOTALL):
        code = re.sub(r"^\s*//.*", "", group[2], flags=re.MULTILINE)
        literals = re.findall(r'"((?:[^"\\]|\\.)*)"', code)
        for name in re.findall(r"LLAMA_VOCAB_PRE_TYPE_\w+|default", group[1]):
            found[name] = [_c_literal(literal) for literal in literals]
    return found


def _c_literal(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "r": "\r", "t": "\t"}.get(match[1], match[1]), text)


# --- tokenizer.model ------------------------------------------------------------------------------------------


def sentencepiece_bytes(model: SentencePieceModel) -> bytes:
    """The model in the format of ``tokenizer.model``; written here only to be read."""
    pieces = b"".join(
        _bytes_field(
            1,
            _bytes_field(1, piece.text.encode())
            + _key(2, 5)
            + struct.pack("<f", piece.score)
            + (b"" if piece.type is TokenType.NORMAL else _int_field(3, piece.type)),
        )
        for piece in model.pieces
    )
    trainer = {
        3: model.algorithm,
        24: model.space_is_suffix,
        35: model.byte_fallback,
        40: model.unk_id,
        41: model.bos_id,
        42: model.eos_id,
        43: model.pad_id,
    }
    flags = {3: model.add_dummy_prefix, 4: model.remove_extra_whitespaces, 5: model.escape_whitespaces}
    normalizer = _bytes_field(1, b"identity") + _bytes_field(2, model.precompiled_charsmap) + _int_fields(flags.items())
    return pieces + _bytes_field(2, _int_fields(trainer.items())) + _bytes_field(3, normalizer)


def _int_fields(fields: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(_int_field(number, value) for number, value in fields)


def _int_field(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value % 2**64)


def _bytes_field(number: int, value: bytes) -> bytes:
    return _key(number, 2) + _varint(len(value)) + value


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

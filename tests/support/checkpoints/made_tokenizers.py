"""Hugging Face tokenizers of the kinds that the engine cannot follow and its own vocabularies do not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from pyggml.tokenizer.sentencepiece import Algorithm
from support.checkpoints import models, tokenizer_files
from support.checkpoints import small_tokenizers as small

Json = dict[str, Any]

_LOOSE = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}


@dataclass(frozen=True)
class Made:
    """A tokenizer's files, and the same tokenizer as ``tokenizers`` has it.

    Attributes:
        files: the directory's files; those that are no bytes are JSON.
        reference: the content of a ``tokenizer.json``.
        added: tokens that the reference gets on top, as transformers adds what only other files name.
    """

    files: Mapping[str, object]
    reference: Json
    added: list[AddedToken] = field(default_factory=list)

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        for file in directory.glob("tokenizer*"):
            file.unlink()
        for name, content in self.files.items():
            (directory / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return directory

    def opened(self) -> Tokenizer:
        tokenizer = Tokenizer.from_str(json.dumps(self.reference))
        tokenizer.add_tokens(self.added)
        return tokenizer

    @property
    def n_tokens(self) -> int:
        return max(self.opened().get_vocab(with_added_tokens=True).values()) + 1


def made(name: str) -> Made:
    return _MAKERS[name]()


def _of_json(content: Json, eos: str, **files: object) -> Made:
    named = {name.replace("__", "."): value for name, value in files.items()}
    return Made({"tokenizer.json": content, "tokenizer_config.json": {"eos_token": eos}, **named}, content)


def _nfc() -> Made:
    tokenizer = small.byte_level(small.words(small.QWEN2), ("<|endoftext|>", "<|im_end|>"), normalizer={"type": "NFC"})
    return _of_json(tokenizer, "<|im_end|>")


def _expression() -> Made:
    return _of_json(small.byte_level(small.words(r"\p{Lu}+|\p{Ll}{1,4}|\d(?=\d)|\s+|[^\p{L}\s]")), "<|endoftext|>")


def _stripping_byte_level() -> Made:
    tokenizer = small.byte_level(small.words(small.LLAMA3), ("<|endoftext|>", "<|left|>", "<|right|>", "<|word|>"))
    for token, rule in zip(tokenizer["added_tokens"][1:], ("lstrip", "rstrip", "single_word"), strict=True):
        token[rule] = True
    return _of_json(tokenizer, "<|endoftext|>")


def _phi3_vocabulary() -> Json:
    """Phi-3's, short of most of its tokens: a thousand pieces, what all of them are made of, and the chat tokens."""
    vocabulary = models.real_vocabulary("phi-3")
    texts: Any = vocabulary["tokenizer.ggml.tokens"]
    basic = [i for i, text in enumerate(texts[:32_000]) if i < 1300 or len(text) == 1 or set(text) == {small.SPACE}]
    return _short(vocabulary, [*basic, *(i for i, text in enumerate(texts) if i >= 32_000 and text.startswith("<|"))])


def _short(vocabulary: Mapping[str, Any], kept: Sequence[int]) -> Json:
    columns = [f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type")]
    return {**vocabulary, **{column: [vocabulary[column][i] for i in kept] for column in columns}}


def _phi3() -> Made:
    content = tokenizer_files.tokenizer_json(_phi3_vocabulary())
    for token in content["added_tokens"]:
        token["rstrip"] = token["content"].startswith("<|")
    return _of_json(content, "<|end|>")


def _phi3_of_sentencepiece() -> Made:
    """Only ``tokenizer_config.json`` knows the chat tokens and their rules."""
    model = tokenizer_files.sentencepiece_model(_phi3_vocabulary())
    whole = _phi3().reference
    chat = [token for token in whole["added_tokens"] if token["rstrip"]]
    first = min(token["id"] for token in chat)
    pieces = replace(model, pieces=model.pieces[:first])
    decoder = {str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in chat}
    config = {"eos_token": "<|end|>", "added_tokens_decoder": decoder}
    return Made(
        {"tokenizer.model": tokenizer_files.sentencepiece_bytes(pieces), "tokenizer_config.json": config}, whole
    )


def _phi3_without_legacy() -> Made:
    """The setting that transformers has for a space at the beginning of a text only."""
    older = _phi3_of_sentencepiece()
    config: Any = older.files["tokenizer_config.json"]
    files = {**older.files, "tokenizer_config.json": {**config, "legacy": False}}
    return Made(files, _metaspace().reference)


def _unigram_vocabulary() -> Json:
    return _short(models.real_vocabulary("nomic-bert-moe"), range(6000))


def _unigram() -> Made:
    content = tokenizer_files.tokenizer_json(_unigram_vocabulary())
    assert any(step["type"] == "Precompiled" for step in content["normalizer"]["normalizers"])
    return _of_json(content, "</s>")


def _unigram_of_sentencepiece() -> Made:
    model = tokenizer_files.sentencepiece_model(_unigram_vocabulary())
    assert model.algorithm is Algorithm.UNIGRAM
    files = {
        "tokenizer.model": tokenizer_files.sentencepiece_bytes(model),
        "tokenizer_config.json": {"eos_token": "</s>"},
    }
    return Made(files, _unigram().reference)


def _metaspace() -> Made:
    content = _phi3().reference
    step = {"type": "Metaspace", "replacement": small.SPACE, "prepend_scheme": "first", "split": False}
    return _of_json({**content, "normalizer": None, "pre_tokenizer": step}, "<|end|>")


def _words() -> Made:
    words = ("[UNK]", "[END]", "the", "Hello", "world", "don", "'", "t", "中文分词", "123", "a", "...", "123456")
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "[UNK]"}
    special = [{"id": i, "content": words[i], **_LOOSE} for i in range(2)]
    content = {
        **dict.fromkeys(("truncation", "padding", "post_processor", "decoder")),
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": model,
    }
    return _of_json(content, "[END]", tokenizer_config__json={"eos_token": "[END]", "unk_token": "[UNK]"})


def _bpe_over_characters() -> Made:
    content = small.metaspace(("<unk>", "</s>"))
    return _of_json({**content, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None}, "</s>")


def _named_elsewhere() -> Made:
    """Tokens that ``tokenizer.json`` does not have: one that strips, one without rules, and a role for plain text."""
    content = small.byte_level(small.words(r"[a-z]+|."), ("<|endoftext|>",))
    n = len(content["model"]["vocab"])
    stripping = {"content": "<|tool|>", **_LOOSE, "lstrip": True}
    plain = {"content": "<|note|>", **_LOOSE, "special": False}
    decoder = {str(n): stripping, str(n + 1): plain}
    config = {"eos_token": "<|endoftext|>", "bos_token": "the", "added_tokens_decoder": decoder}
    added = [
        AddedToken("<|tool|>", lstrip=True, normalized=False, special=True),
        AddedToken("<|note|>", normalized=False),
        AddedToken("the", normalized=False, special=True),
    ]
    assert "the" in content["model"]["vocab"]
    # Where tokenizer_config.json lists added tokens, transformers does not read this older file.
    files = {"tokenizer.json": content, "tokenizer_config.json": config, "added_tokens.json": {"<|old|>": n + 2}}
    return Made(files, content, added)


def _named_in_an_old_file() -> Made:
    """Tokens of ``added_tokens.json`` are found in normalised text, unless they are special."""
    content = small.byte_level(small.words(r"\p{L}+|."), ("<|endoftext|>",), normalizer={"type": "Lowercase"})
    n = len(content["model"]["vocab"])
    config = {"eos_token": "<|endoftext|>", "additional_special_tokens": ["<|Tool|>"]}
    added = [AddedToken("<|Old|>", normalized=True), AddedToken("<|Tool|>", normalized=False, special=True)]
    older = {"<|Old|>": n, "<|Tool|>": n + 1}
    return Made(
        {"tokenizer.json": content, "tokenizer_config.json": config, "added_tokens.json": older}, content, added
    )


_MAKERS: dict[str, Callable[[], Made]] = {
    "NFC": _nfc,
    "a made-up expression": _expression,
    "stripping tokens": _stripping_byte_level,
    "Phi-3": _phi3,
    "Phi-3's tokenizer.model": _phi3_of_sentencepiece,
    "Phi-3's tokenizer.model, not legacy": _phi3_without_legacy,
    "Unigram": _unigram,
    "Unigram's tokenizer.model": _unigram_of_sentencepiece,
    "Metaspace": _metaspace,
    "whole words": _words,
    "BPE over characters": _bpe_over_characters,
    "tokens named elsewhere": _named_elsewhere,
    "tokens named in an old file": _named_in_an_old_file,
}
NAMES = tuple(_MAKERS)

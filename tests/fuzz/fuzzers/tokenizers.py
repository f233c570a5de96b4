"""Damaged tokenizer files, of every kind of tokenizer: imported and used, or refused by an InferError."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import made_tokenizers, models, tokenizer_files

import pyggml
from fuzz import damage
from fuzz.refusal import refused
from pyggml.errors import InferError
from pyggml.importer.vocabulary import Vocabulary, read_vocabulary

MAX_SECONDS = 60.0
N_IDS = 1000  # of which there is text
TEXTS = ("the bath", "", " Ä\n\t😀 <|im_end|></s>", "a" * 500, "\0")

Files = dict[str, bytes]  # name -> content


def prepare(folder: Path) -> list[Files]:
    del folder
    found = [_files(made_tokenizers.made(name).files) for name in made_tokenizers.NAMES]
    return [*found, _files({"tokenizer.json": tokenizer_files.tokenizer_json(models.byte_vocabulary())})]


def _files(made: Any) -> Files:
    return {name: each if isinstance(each, bytes) else json.dumps(each).encode() for name, each in made.items()}


def make(random: np.random.Generator) -> list[Any]:
    """Choose a tokenizer, and the seeds of the damage to its files."""
    kinds = [
        str(random.choice(["value", "key", "bytes", "span"], p=[0.6, 0.1, 0.15, 0.15]))
        for _ in range(random.integers(1, 4))
    ]
    return [["tokenizer", int(random.integers(1 << 20))], *([kind, int(random.integers(1 << 30))] for kind in kinds)]


def run(prepared: list[Files], parts: list[Any], folder: Path) -> str:
    which = next((number for kind, number in parts if kind == "tokenizer"), 0)
    files = dict(prepared[which % len(prepared)])
    for kind, seed in parts:
        if kind != "tokenizer":
            _damage(files, kind, np.random.default_rng(seed))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        vocabulary = read_vocabulary(folder, {})
    except InferError as error:
        return refused(error)
    return _used(vocabulary, folder)


def _used(vocabulary: Vocabulary, folder: Path) -> str:
    try:
        model = pyggml.Model(models.write_llama(folder / "of it.gguf", vocabulary.metadata), device="cpu")
    except InferError as error:
        return f"imported, and then {refused(error)}"
    with model:
        try:
            tokenizer = pyggml.open_tokenizer(folder, model)
            for text in TEXTS:
                tokenizer.decode(tokenizer.encode(text))
            tokenizer.decode(range(min(model.vocab.n_tokens, N_IDS)))
        except InferError as error:
            return f"loaded, and then {refused(error)}"
    return "used"


def _damage(files: Files, kind: str, random: np.random.Generator) -> None:
    name = sorted(files)[int(random.integers(len(files)))]
    content = files[name]
    if kind == "bytes":
        content = damage.with_changed_bytes(content, random)
    elif kind == "span" or not name.endswith(".json"):
        content = damage.with_changed_span(content, random)
    else:
        try:
            content = json.dumps(damage.with_changed_value(json.loads(content), random, kind == "key")).encode()
        except (ValueError, TypeError, RecursionError):  # another change has made it no JSON, or a value alone
            content = damage.with_changed_bytes(content, random)
    files[name] = content

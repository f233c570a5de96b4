"""Tokenizers of Hugging Face directories become vocabularies that cut text as those do."""

from __future__ import annotations

import json
from pathlib import Path

import models
import pytest
import tokenizer_files

from pyggml.importer.vocabulary import read_vocabulary


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "gpt-2"])
def test_byte_level_vocabularies_come_back(tmp_path: Path, name: str) -> None:
    original = models.real_vocabulary(name)
    tokenizer_files.write_json(tmp_path, original)
    eos = int(str(original["tokenizer.ggml.eos_token_id"]))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": eos}))
    found = read_vocabulary(tmp_path, {"eos_token_id": eos})
    assert found.needs_hf_tokenizer is None
    for key in ("model", "pre", "tokens", "merges", "eos_token_id"):
        assert list(str(found.metadata[f"tokenizer.ggml.{key}"])) == list(
            str(_plain(original[f"tokenizer.ggml.{key}"]))
        ), key


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value

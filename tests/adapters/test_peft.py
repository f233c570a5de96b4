"""PEFT directories, loaded as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import adapters
from support.checkpoints.hf_llama import HFLlama

import pyggml

IDS = [5, 9, 12, 7, 30, 8]


def test_a_directory_changes_its_checkpoint(tmp_path: Path) -> None:
    llama = HFLlama()
    tensors = adapters.matrices(adapters.modules_of(llama))
    directory = adapters.write_peft(tmp_path / "law", tensors)
    options: dict[str, Any] = {"n_ctx": 256, "device": "cpu", "cache_type": "f32"}
    with pyggml.load(adapters.with_adapter(llama, tensors, 8 / 4).write(tmp_path / "changed"), **options) as llm:
        expected = llm.logits(IDS)
    with pyggml.load(llama.write(tmp_path / "base"), **options) as llm:
        adapter = llm.load_adapter(directory)
        assert (adapter.name, adapter.path, adapter.rank) == ("law", str(directory), 4)
        found, plain = llm.logits(IDS, adapter="law"), llm.logits(IDS)
    assert np.sqrt(((found - expected) ** 2).mean()) < 1e-3 * expected.std()
    assert np.sqrt(((plain - expected) ** 2).mean()) > 0.05 * expected.std()

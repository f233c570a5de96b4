"""Adapters that upstream applies to the whole context, because our kernels do not compute all that they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml
from pyggml._native.activation_collector import Collector


def test_context_with_a_collector(shelf: Shelf, tmp_path: Path) -> None:
    """Its callback divides the graph, so no part of it has all that the kernels need."""
    path, ids = shelf("llama"), prompt(1, 40)
    file = lora_files.write_adapter(tmp_path / "law.gguf", path)
    with pyggml.load(path, n_ctx=256, n_threads=1, device="cpu") as llm:
        llm.load_adapter(file)
        by_row, plain = llm.logits(ids, adapter="law"), llm.logits(ids)
    with pyggml.Model(path) as model:
        context = pyggml.Context(model, n_ctx=256, n_threads=1, collector=Collector(process_output=True))
        with pyggml.Engine(context) as engine:
            engine.load_adapter(file)
            whole = engine.logits(ids, adapter="law")
    error = np.abs(whole - by_row).max()
    assert error < 0.02 * np.abs(by_row - plain).max()


def test_sums_of_several_are_not_read_from_disk(shelf: Shelf, tmp_path: Path) -> None:
    """Upstream adds them in an order that depends on their addresses, so after a restart they would have other bits."""
    path, ids = shelf("llama"), prompt(2, 100)
    files = [lora_files.write_embedding_adapter(tmp_path / f"e{seed}.gguf", path, seed=seed) for seed in (0, 1)]
    choices: list[Any] = [{"e0": 1, "e1": 0.5}, "e0"]

    def cached() -> list[int]:
        options: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_parallel": 1, "device": "cpu"}
        with pyggml.load(path, prefix_cache_dir=tmp_path / "prefixes", **options) as llm:
            for file in files:
                llm.load_adapter(file)
            return [llm.generate(ids, adapter=choice, max_tokens=1).cached_tokens for choice in choices * 2]

    assert cached() == [0, 0, 99, 99]
    assert cached() == [0, 99, 99, 99]

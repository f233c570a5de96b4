"""Cells of requests with adapters in main memory and on disk: the key has the adapters' content and scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml

LOAD: dict[str, Any] = {"n_ctx": 256, "n_threads": 1, "n_parallel": 1, "device": "cpu"}
PROMPT = prompt(1, 120)


def ask(llm: pyggml.LLM, adapter: Any, ids: list[int] = PROMPT) -> tuple[int, bytes]:
    """Cached tokens, and the bits of what follows."""
    done = llm.generate(ids, adapter=adapter, max_tokens=6, ignore_eos=True, logprobs=1)
    return done.cached_tokens, np.array([each.logprob for each in done.logprobs or ()]).tobytes()


def test_main_memory(shelf: Shelf, tmp_path: Path) -> None:
    model, other = shelf("llama"), prompt(2, 200)
    file = lora_files.write_adapter(tmp_path / "law.gguf", model)
    with pyggml.load(model, prefix_cache_bytes=1 << 26, **LOAD) as llm:
        llm.load_adapter(file)
        computed = {str(choice): ask(llm, choice) for choice in ("law", {}, {"law": 0.5})}
        for choice in ("law", {}, {"law": 0.5}):
            ask(llm, choice, other)  # evicts the others' cells
            before = llm.stats().n_snapshot_hits
            cached, bits = ask(llm, choice)
            assert (cached, bits) == (len(PROMPT) - 1, computed[str(choice)][1])
            assert llm.stats().n_snapshot_hits == before + 1
    assert [cached for cached, _ in computed.values()] == [0, 0, 0]
    assert len({bits for _, bits in computed.values()}) == 3


def test_disk(shelf: Shelf, tmp_path: Path) -> None:
    model, folder = shelf("llama"), tmp_path / "prefixes"
    file = lora_files.write_adapter(tmp_path / "law.gguf", model)
    changed = lora_files.write_adapter(tmp_path / "changed.gguf", model, seed=2)

    def run(adapter: Path, name: str, choice: Any) -> tuple[int, bytes]:
        with pyggml.load(model, prefix_cache_dir=folder, **LOAD) as llm:
            llm.load_adapter(adapter, name)
            return ask(llm, choice)

    first = run(file, "law", "law")
    cached = len(PROMPT) - 1
    assert run(file, "law", "law") == (cached, first[1])
    assert run(file, "other name", "other name") == (cached, first[1])
    assert run(file, "law", {"law": 0.5})[0] == 0
    assert run(file, "law", {})[0] == 0
    assert run(changed, "law", "law")[0] == 0
    assert run(file, "law", {"law": 0.5})[0] == cached

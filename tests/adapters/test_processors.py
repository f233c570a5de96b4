"""Adapters that a logits processor closes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml


@pytest.mark.timeout(60)
def test_an_adapter_in_use_is_not_closed_by_a_processor(shelf: Shelf, tmp_path: Path) -> None:
    """The engine waits for the processor, which would wait for its request."""
    model = shelf("llama")
    with pyggml.load(model, n_ctx=512, n_threads=1, device="cpu") as llm:
        law = llm.load_adapter(lora_files.write_adapter(tmp_path / "law.gguf", model))
        idle = llm.load_adapter(lora_files.write_adapter(tmp_path / "idle.gguf", model, seed=2))
        refused: list[str] = []

        def close(_tokens: Any, logits: Any) -> Any:
            idle.close()
            try:
                law.close()
            except pyggml.InvalidParameterError as error:
                refused.append(str(error))
            return logits

        expected = llm.generate(prompt(1, 9), adapter="law", max_tokens=3, ignore_eos=True).token_ids
        options: dict[str, Any] = {"max_tokens": 3, "ignore_eos": True, "logits_processor": close}
        assert llm.generate(prompt(1, 9), adapter="law", **options).token_ids == expected
        assert len(refused) == 3
        assert "cannot close an adapter that requests use: close it outside the processor" in refused[0]
        assert law.is_open
        assert not idle.is_open
        with pytest.raises(pyggml.InferError, match="cannot close an adapter"):
            llm.generate(prompt(1, 9), adapter="law", logits_processor=lambda _, __: law.close())
        law.close()
        assert llm.adapters == {}

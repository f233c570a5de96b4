"""Adapters that a logits processor closes."""

from __future__ import annotations

import threading
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


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_processor_that_waits_for_who_closes(shelf: Shelf, tmp_path: Path) -> None:
    """Neither would end: the processor waits for the thread, and that for the processor's request."""
    model = shelf("llama")
    with pyggml.load(model, n_ctx=512, n_threads=1, device="cpu") as llm:
        law = llm.load_adapter(lora_files.write_adapter(tmp_path / "law.gguf", model))
        refused: list[str] = []

        def close() -> None:
            try:
                law.close()
            except pyggml.InvalidParameterError as error:
                refused.append(str(error))

        def process(_tokens: Any, logits: Any) -> Any:
            if not refused:
                thread = threading.Thread(target=close)
                thread.start()
                thread.join()
            return logits

        done = llm.generate(prompt(1, 9), adapter="law", max_tokens=3, ignore_eos=True, logits_processor=process)
        assert len(done.token_ids) == 3
        assert len(refused) == 1
        assert "a logits processor has been running for more than 5 seconds" in refused[0]
        assert not law.is_open
        law.close()
        assert llm.adapters == {}

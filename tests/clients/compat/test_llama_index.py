"""LlamaIndex's LLM for llama-cpp-python."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.llms.llama_cpp import LlamaCPP


@pytest.fixture(scope="module")
def llm(smollm2_path: str) -> Any:
    options = {"model_kwargs": {"n_gpu_layers": 0}, "generate_kwargs": {}, "verbose": False}
    return LlamaCPP(model_path=smollm2_path, temperature=0.0, max_new_tokens=12, context_window=512, **options)


def test_metadata(llm: Any, smollm2_path: str) -> None:
    assert llm.metadata.context_window == 512
    assert llm.metadata.model_name == smollm2_path


def test_completion(llm: Any) -> None:
    response = llm.complete("The capital of France is", formatted=True)
    assert "Paris" in response.text
    assert response.raw["usage"]["completion_tokens"] <= 12


def test_stream_is_the_completion(llm: Any) -> None:
    chunks = list(llm.stream_complete("Once upon a time", formatted=True))
    assert len(chunks) > 5
    assert chunks[-1].text == llm.complete("Once upon a time", formatted=True).text
    assert "".join(chunk.delta for chunk in chunks) == chunks[-1].text


def test_chat(llm: Any) -> None:
    messages = [ChatMessage(role="user", content="What is the capital of France?")]
    assert llm.chat(messages).message.content.strip()
    assert "".join(chunk.delta for chunk in llm.stream_chat(messages)).strip()

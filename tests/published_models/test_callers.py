"""A real chat model behind every way to call it: chats, many callers, batch files, embeddings, quantisation."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.measured_model import N_CTX, TEXT

import pyggml
from pyggml import batch

GREEDY: dict[str, Any] = {"temperature": 0}
WORDS = ("hot", "big", "fast", "light", "hard", "old", "rich", "wet", "early", "open", "full", "high", "long", "thick")
QUESTIONS = [f"What is the opposite of {word}?" for word in (*WORDS, "loud", "sweet")]

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "continent": {"enum": ["Africa", "Asia", "Europe"]},
        "population": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
    },
    "required": ["name", "continent", "population"],
    "additionalProperties": False,
}


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def ask(llm: pyggml.LLM, question: str) -> str:
    return llm.chat([user(question)], max_tokens=24, **GREEDY).message.content or ""


def same_alone(llm: pyggml.LLM, together: list[str]) -> None:
    """With our kernels each answer is what it is alone; with others, near-ties may differ."""
    alone = [ask(llm, question) for question in QUESTIONS[:4]]
    if llm.stats().not_batch_invariant:
        assert all(together)
    else:
        assert together[:4] == alone


def test_a_chat_ends_by_itself(smollm2: pyggml.LLM) -> None:
    answer = smollm2.chat([user(QUESTIONS[0])], max_tokens=100, **GREEDY)
    assert "cold" in (answer.message.content or "")
    assert answer.finish_reason == "stop"
    assert answer.stop_reason in smollm2.stop_tokens


def test_each_of_three_turns_ends_by_itself(smollm2: pyggml.LLM) -> None:
    messages: list[dict[str, Any]] = []
    answer: Any = None
    for question in ("What is the opposite of hot?", "And of big?", "And of fast?"):
        messages.append(user(question))
        answer = smollm2.chat(messages, max_tokens=100, **GREEDY)
        assert (answer.finish_reason, answer.stop_reason in smollm2.stop_tokens) == ("stop", True), answer
        assert "<|im_" not in (answer.message.content or "")
        messages.append({"role": "assistant", "content": answer.message.content or ""})
        assert len(messages) == 2 or answer.cached_tokens > 20  # the earlier turns


def test_sixteen_threads(smollm2: pyggml.LLM) -> None:
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda question: ask(smollm2, question), QUESTIONS))
    same_alone(smollm2, together)


def test_asyncio(smollm2: pyggml.LLM) -> None:
    async def answer(question: str) -> str:
        stream = smollm2.astream_chat([user(question)], max_tokens=24, **GREEDY)
        return "".join([chunk.text async for chunk in stream])

    async def main() -> list[str]:
        return await asyncio.gather(*map(answer, QUESTIONS[:4]))

    same_alone(smollm2, asyncio.run(main()))


def test_a_batch_file(smollm2: pyggml.LLM, tmp_path: Path) -> None:
    rows = [{"messages": [user(question)], "params": GREEDY | {"max_tokens": 24}} for question in QUESTIONS[:4]]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = batch.run(tmp_path / "in.jsonl", tmp_path / "out.jsonl", smollm2)
    assert (report.n_done, report.n_failed) == (4, 0)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    same_alone(smollm2, [json.loads(line)["answer"] for line in lines])


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_structured_output(smollm2: pyggml.LLM, temperature: float) -> None:
    question = [user("Describe the city of Paris as JSON.")]
    answer = smollm2.chat(question, json_schema=CITY, max_tokens=100, temperature=temperature, seed=1)
    found = json.loads(answer.message.content or "")
    assert list(found) == ["name", "continent", "population"]
    assert found["continent"] in ("Africa", "Asia", "Europe")
    assert 1 <= found["population"] <= 99_999_999
    assert answer.finish_reason == "stop"


def test_stop_strings(smollm2: pyggml.LLM) -> None:
    whole = smollm2.generate("1, 2, 3, 4,", max_tokens=24, **GREEDY)
    assert " 7," in whole.text
    cut = smollm2.generate("1, 2, 3, 4,", max_tokens=24, stop=["7", "never"], **GREEDY)
    assert (cut.text, cut.finish_reason, cut.stop_reason) == (whole.text.partition("7")[0], "stop", "7")
    streamed = smollm2.stream("1, 2, 3, 4,", max_tokens=24, stop=["7"], **GREEDY)
    assert "".join(chunk.text for chunk in streamed) == cut.text


def test_similar_texts_have_similar_embeddings(smollm2: pyggml.LLM) -> None:
    texts = ["The cat sleeps on the sofa.", "A cat is sleeping on the couch.", "Interest rates rose by two percent."]
    found = smollm2.embed(texts, normalize=True, pooling="mean")
    assert found.shape == (3, 576)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert found[0] @ found[1] > found[0] @ found[2]


def test_quantized_again_it_is_smaller_and_a_little_worse(smollm2_path: Path, tmp_path: Path) -> None:
    small = tmp_path / "q4_0.gguf"
    pyggml.quantize(smollm2_path, small, "q4_0", requantize=True)
    assert small.stat().st_size < smollm2_path.stat().st_size
    text = TEXT.read_text()
    before, after = (pyggml.perplexity(path, text, n_ctx=N_CTX).value for path in (smollm2_path, small))
    assert before < after < 1.3 * before

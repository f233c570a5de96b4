"""Chats of ten turns with models whose memory cannot be rewound: each turn computes its new tokens only.

Tiny models of six families; benchmarks/internal/growing_chats.py measures the same with the layers of real ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import chat_models

import pyggml

LOAD: dict[str, Any] = {"n_ctx": 8192, "n_threads": 1}
GREEDY: dict[str, Any] = {"max_tokens": 30, "temperature": 0}
SYSTEM = {"role": "system", "content": "You answer questions. " * 90}
N_TURNS = 10


def question(turn: int) -> dict[str, str]:
    return {"role": "user", "content": f"Question {turn} is not a long one."}


def next_answer(done: pyggml.ChatCompletion, template: str, turn: int) -> Any:
    if template == "plain":
        return done.message
    return {"role": "assistant", "content": f"<think>\n{done.text}\n</think>\n\nAnswer {turn} in a few words."}


@pytest.mark.parametrize("template", chat_models.TEMPLATES)
@pytest.mark.parametrize("family", chat_models.TINY)
@pytest.mark.slow_except("gemma3-plain", "mamba-thinking", "qwen35-thinking")
def test_each_turn_computes_its_new_tokens_only(family: str, template: str, model_dir: Path) -> None:
    path = chat_models.write(
        model_dir / f"chat-{family}-{template}.gguf", chat_models.TINY[family], chat_models.TEMPLATES[template]
    )
    messages: list[Any] = [SYSTEM]
    before: list[int] = []
    with (
        pyggml.load(path, **LOAD) as llm,
        pyggml.load(path, n_parallel=1, prefix_cache=False, speculative="off", **LOAD) as alone,
    ):
        assert not llm.stats().not_batch_invariant
        for turn in range(N_TURNS):
            messages.append(question(turn))
            done = llm.chat(messages, **GREEDY)
            if turn in (0, 1, 5, N_TURNS - 1):  # the reference computes everything
                assert done.token_ids == alone.chat(messages, **GREEDY).token_ids
            prompt = llm.tokenize(llm.apply_chat_template(messages), add_special=False)
            assert len(prompt) == done.prompt_tokens
            n_same = next((i for i, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), len(before))
            assert done.cached_tokens >= 0.95 * n_same  # where reasoning is left out, the prompt differs from there on
            if turn > 0:
                assert done.cached_tokens >= 0.95 * done.prompt_tokens
            before = [*prompt, *done.token_ids]
            messages.append(next_answer(done, template, turn))

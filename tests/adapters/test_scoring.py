"""Scores of continuations with adapters."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml

PROMPT = prompt(1, 12)
CONTINUATIONS = [prompt(number, 3 + number) for number in range(2, 6)]


@pytest.fixture
def llm(shelf: Shelf, tmp_path: Path) -> Iterator[pyggml.LLM]:
    model = shelf("llama")
    with pyggml.load(model, n_ctx=512, n_threads=1, device="cpu", cache_type="f32") as llm:
        for number, name in enumerate(("law", "tax")):
            llm.load_adapter(lora_files.write_adapter(tmp_path / f"{name}.gguf", model, seed=number))
        yield llm


def logprobs(llm: pyggml.LLM, **options: Any) -> list[list[float]]:
    return [score.token_logprobs for score in llm.score(PROMPT, CONTINUATIONS, **options)]


def by_request(llm: pyggml.LLM, adapter: Any) -> list[list[float]]:
    done = [llm.generate([*PROMPT, *each], max_tokens=0, prompt_logprobs=1, adapter=adapter) for each in CONTINUATIONS]
    return [
        [token.logprob for token in (one.prompt_logprobs or [])[-len(each) :] if token]
        for one, each in zip(done, CONTINUATIONS, strict=True)
    ]


def require_close(found: list[list[float]], expected: list[list[float]]) -> None:
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), atol=1e-3)


def test_scores_are_those_of_requests(llm: pyggml.LLM) -> None:
    """One after the other, with a prompt that stays in the KV cache only for the same adapters."""
    choices: tuple[Any, ...] = ({}, "law", {"law": 0.5, "tax": 1}, "tax", "law", None)
    expected = [by_request(llm, choice) for choice in choices]
    assert np.abs(np.concatenate(expected[0]) - np.concatenate(expected[1])).max() > 0.1
    for choice, each in zip(choices, expected, strict=True):
        require_close(logprobs(llm, adapter=choice), each)


def test_defaults_and_coroutines(llm: pyggml.LLM) -> None:
    llm.default_adapters = "law"
    require_close(logprobs(llm), by_request(llm, "law"))
    require_close(logprobs(llm, adapter={}), by_request(llm, {}))
    scores = asyncio.run(llm.ascore(PROMPT, CONTINUATIONS, adapter="tax"))
    require_close([score.token_logprobs for score in scores], by_request(llm, "tax"))


def test_adapters_are_free_afterwards(llm: pyggml.LLM) -> None:
    logprobs(llm, adapter="law")
    closer = threading.Thread(target=llm.adapters["law"].close, daemon=True)
    closer.start()
    closer.join(10)
    assert not closer.is_alive()
    with pytest.raises(pyggml.InvalidParameterError, match="there is no adapter 'law'"):
        logprobs(llm, adapter="law")


def test_a_scorer_between_two_scores(llm: pyggml.LLM) -> None:
    """Its adapters are in use only while it computes."""
    law, tax = llm.adapters["law"], llm.adapters["tax"]
    items = [([*PROMPT, *each], len(each)) for each in CONTINUATIONS]
    with pyggml.Scorer(llm.model, 512, cache_type="f32") as scorer:
        first, second = scorer.scores(items, {law: 1.0}), scorer.scores(items, {tax: 1.0})
        found = dict(next(first) for _ in items), dict(next(second) for _ in items)
        law.close()
        with pytest.raises(pyggml.ClosedError):
            list(scorer.scores(items, {law: 1.0}))
    require_close([found[1][number].token_logprobs for number in range(len(items))], by_request(llm, "tax"))


def test_a_model_is_closed_by_a_handler_that_interrupts_a_score(llm: pyggml.LLM) -> None:
    many = [prompt(number, 40) for number in range(200)]
    llm.default_adapters = "law"
    logprobs(llm)  # its context is made on first use
    previous = signal.signal(signal.SIGALRM, lambda *_: llm.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(pyggml.ClosedError):
            [llm.score(PROMPT, many) for _ in range(1000)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)

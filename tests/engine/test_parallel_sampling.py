"""Parallel sampling: several threads sample tokens of several requests, with the same results as alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models

import pyggml

#: Long enough a vocabulary for a choice to be worth another thread's time.
VOCABULARY = "gpt-2"

JSON = 'root ::= "{" [a-z ]+ "}"'

ASKED: list[dict[str, Any]] = [
    {"temperature": 0.9, "seed": 1},
    {"temperature": 0.9, "seed": 2},
    {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "seed": 3},
    {"temperature": 0.8, "repeat_penalty": 1.3, "presence_penalty": 0.5, "seed": 4},
    {"temperature": 1.0, "seed": 5, "grammar": JSON},
    {"temperature": 1.0, "seed": 6, "grammar": JSON},
    {"temperature": 0.7, "seed": 7, "logprobs": 5},
    {"temperature": 0.0, "logprobs": 3, "logit_bias": {100: 5.0, 200: float("-inf")}},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choosing")
    return models.write_llama(folder / "llama.gguf", models.real_vocabulary(VOCABULARY))


@pytest.fixture
def llm(path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(path, n_ctx=4096, n_parallel=len(ASKED) + 1, n_threads=2) as llm:
        yield llm


def prompt(n: int) -> list[int]:
    return [1000 + 7 * n, 50 + n, 3000 - n]


@pytest.mark.slow
def test_each_request_gets_what_it_gets_alone(path: Path, llm: pyggml.LLM) -> None:
    with pyggml.load(path, n_ctx=512, n_parallel=1, n_threads=1) as one:
        alone = [one.generate(prompt(n), max_tokens=40, **asked) for n, asked in enumerate(ASKED)]
    for _ in range(3):
        streams = [llm.stream(prompt(n), max_tokens=40, **asked) for n, asked in enumerate(ASKED)]
        together = [stream.finish() for stream in streams]
        assert [each.token_ids for each in together] == [each.token_ids for each in alone]
        assert [each.logprobs for each in together] == [each.logprobs for each in alone]
        assert [each.finish_reason for each in together] == [each.finish_reason for each in alone]
    assert llm.stats().tokens_per_step > 2


@pytest.mark.slow
def test_a_choice_that_fails_ends_its_request_alone(path: Path, llm: pyggml.LLM) -> None:
    """The first token that this grammar allows is forbidden."""
    vocab = llm.model.vocab
    starts = {i: float("-inf") for i in range(vocab.n_tokens) if vocab.piece(i).startswith(b"y")}
    with pyggml.load(path, n_ctx=512, n_parallel=1, n_threads=1) as one:
        alone = [one.generate(prompt(n), max_tokens=20, **ASKED[n]).token_ids for n in range(3)]
    streams = [llm.stream(prompt(n), max_tokens=20, **ASKED[n]) for n in range(3)]
    impossible = llm.stream(prompt(9), max_tokens=20, temperature=1, grammar='root ::= "yes"', logit_bias=starts)
    with pytest.raises(pyggml.GrammarError, match="no token to choose"):
        impossible.finish()
    assert [stream.finish().token_ids for stream in streams] == alone

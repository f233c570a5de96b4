"""Several completions of one prompt, which is computed once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import demo_questions

import pyggml
from pyggml import Completion

PROMPT = "There was a little dog who lived in a red house with a big garden. " * 4


@pytest.fixture
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=4096, n_parallel=4, n_threads=1) as llm:
        yield llm


@pytest.fixture
def exact() -> Iterator[pyggml.LLM]:
    """The mode in which a seed gives the same tokens every time."""
    with pyggml.load(n_ctx=4096, n_parallel=1, prefix_cache=False, n_threads=1) as llm:
        yield llm


def ids(completions: list[Completion]) -> list[list[int]]:
    return [completion.token_ids for completion in completions]


@pytest.mark.slow_except("1-1", "1-2", "1-4", "1-11")
@pytest.mark.parametrize("n", [1, 2, 4, 11])
@pytest.mark.parametrize("n_parallel", [1, 4])
def test_the_prompt_is_computed_once(n: int, n_parallel: int) -> None:
    with pyggml.load(n_ctx=4096, n_parallel=n_parallel, n_threads=1) as llm:
        done = llm.generate_n(PROMPT, n, max_tokens=20, temperature=1.0, seed=1)
        n_prompt = len(llm.tokenize(PROMPT))
        assert [completion.prompt_tokens for completion in done] == [n_prompt] * n
        # Each but the first computes only the last token again, for its output.
        assert [completion.cached_tokens for completion in done] == [0] + [n_prompt - 1] * (n - 1)
        assert llm.stats().n_prompt_tokens == n_prompt + n - 1


def test_seeds_count_up(exact: pyggml.LLM) -> None:
    done = exact.generate_n(PROMPT, 4, temperature=1.0, seed=100, max_tokens=30)
    assert len({tuple(each) for each in ids(done)}) == 4
    again = [exact.generate(PROMPT, temperature=1.0, seed=100 + index, max_tokens=30) for index in range(4)]
    assert ids(done) == ids(again)


def test_seeds_begin_again_after_the_last(exact: pyggml.LLM) -> None:
    done = exact.generate_n(PROMPT, 2, temperature=1.0, seed=2**32 - 2, max_tokens=30)
    assert ids(done)[1] == exact.generate(PROMPT, temperature=1.0, seed=0, max_tokens=30).token_ids


def test_without_a_seed_each_has_its_own(llm: pyggml.LLM) -> None:
    assert len({tuple(each) for each in ids(llm.generate_n(PROMPT, 4, temperature=1.5, max_tokens=40))}) == 4


def test_greedy_ones_are_alike(llm: pyggml.LLM) -> None:
    done = llm.generate_n(demo_questions.prompts(llm, 1)[0], 6)
    assert [completion.text for completion in done] == demo_questions.answers(1) * 6


def test_without_prefix_cache_each_computes_the_prompt() -> None:
    with pyggml.load(n_ctx=4096, n_parallel=2, prefix_cache=False, n_threads=1) as llm:
        done = llm.generate_n(PROMPT, 3, max_tokens=5)
        assert [completion.cached_tokens for completion in done] == [0, 0, 0]
        assert llm.stats().n_prompt_tokens == 3 * done[0].prompt_tokens


def test_a_recurrent_model(mamba_path: Path) -> None:
    with pyggml.load(mamba_path, n_parallel=2, n_threads=1) as llm:
        done = llm.generate_n([65, 66, 67] * 20, 3, max_tokens=5, ignore_eos=True)
        assert ids(done)[1:] == ids(done)[:1] * 2


def test_in_coroutines(llm: pyggml.LLM) -> None:
    async def main() -> list[Completion]:
        return await llm.agenerate_n(PROMPT, 5, temperature=1.0, seed=7, max_tokens=20)

    done = asyncio.run(main())
    assert len({tuple(each) for each in ids(done)}) == 5
    n_prompt = done[0].prompt_tokens
    assert [completion.cached_tokens for completion in done] == [0] + [n_prompt - 1] * 4


def test_logprobs_of_the_prompt_are_computed_once(llm: pyggml.LLM) -> None:
    done = llm.generate_n(PROMPT, 3, max_tokens=4, prompt_logprobs=2, logprobs=1)
    assert done[0].prompt_logprobs is not None
    assert len(done[0].prompt_logprobs) == done[0].prompt_tokens
    assert all(completion.prompt_logprobs == done[0].prompt_logprobs for completion in done)
    assert [len(completion.logprobs or []) for completion in done] == [4, 4, 4]
    assert llm.stats().n_prompt_tokens < 2 * done[0].prompt_tokens


def test_a_schema_is_worked_out_once(llm: pyggml.LLM) -> None:
    done = llm.generate_n("A number", 3, json_schema={"type": "boolean"}, temperature=1.0)
    assert {completion.text for completion in done} <= {"true", "false"}


@pytest.mark.parametrize("n", [0, -1, 1.5, "two"])
def test_what_cannot_be(llm: pyggml.LLM, n: int) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="n must be"):
        llm.generate_n("A dog", n)


@pytest.mark.slow
def test_errors_are_those_of_generate(llm: pyggml.LLM) -> None:
    with pytest.raises(pyggml.EmptyPromptError):
        llm.generate_n("", 2)
    with pytest.raises(pyggml.ContextOverflowError):
        llm.generate_n([5] * 5000, 2)
    with pytest.raises(pyggml.GrammarError):
        llm.generate_n("A dog", 2, grammar="root ::= (")

"""Scores of continuations, against the log probabilities that one request for each has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.event_loops import until_async

import pyggml
from pyggml import Score

PROMPT = "Once upon a time there was a little"
CONTINUATIONS = [" dog", " dog.", " dog that wanted to see the sea", " cat", " cat.", " girl who", " dog"]
EXACT = 1e-3


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=1024, cache_type="f32", n_threads=1) as llm:
        llm.score("Once", [" upon"])  # its context is made on first use, and stays
        yield llm


def by_request(llm: pyggml.LLM, token_ids: Sequence[int], n_scored: int) -> Score:
    done = llm.generate(token_ids, max_tokens=0, prompt_logprobs=1)
    tokens: list[Any] = (done.prompt_logprobs or [])[-n_scored:]
    logprobs = [each.logprob for each in tokens]
    is_greedy = all(each.top[0].token_id == each.token_id for each in tokens)
    return Score(sum(logprobs), list(token_ids[-n_scored:]), logprobs, is_greedy)


def require_equal(found: Score, expected: Score) -> None:
    assert (found.token_ids, found.is_greedy) == (expected.token_ids, expected.is_greedy)
    np.testing.assert_allclose(found.token_logprobs, expected.token_logprobs, atol=EXACT)
    assert found.logprob == pytest.approx(sum(found.token_logprobs))


def test_texts(llm: pyggml.LLM) -> None:
    scores = llm.score(PROMPT, CONTINUATIONS)
    assert len(scores) == len(CONTINUATIONS)
    n_prompt = len(llm.tokenize(PROMPT))
    for text, score in zip(CONTINUATIONS, scores, strict=True):
        whole = llm.tokenize(PROMPT + text)
        require_equal(score, by_request(llm, whole, len(whole) - n_prompt))
    assert scores[0] == scores[-1]


def test_greedy_text_is_greedy(llm: pyggml.LLM) -> None:
    done = llm.generate(PROMPT, max_tokens=12, logprobs=1)
    [score, other] = llm.score(llm.tokenize(PROMPT), [done.token_ids, [*done.token_ids[:-1], 5]])
    assert (score.is_greedy, other.is_greedy) == (True, False)
    np.testing.assert_allclose(score.token_logprobs, [each.logprob for each in done.logprobs or ()], atol=EXACT)


def test_blanks_belong_to_the_continuation(llm: pyggml.LLM) -> None:
    assert llm.score(PROMPT + " ", ["dog"]) == llm.score(PROMPT, [" dog"])


def test_token_ids_and_texts(llm: pyggml.LLM) -> None:
    ids, dog = llm.tokenize(PROMPT), llm.tokenize(" dog", add_special=False)
    [expected] = llm.score(ids, [dog])
    assert llm.score(PROMPT, [dog]) == llm.score(ids, [" dog"]) == [expected]
    assert llm.score(np.array(ids), [np.array(dog)]) == [expected]


def test_more_than_fits_a_batch(llm: pyggml.LLM) -> None:
    """Random continuations, of which many share prefixes, and more than the KV cache has cells or sequences for."""
    random = np.random.default_rng(0)
    words = [[int(each) for each in random.integers(10, 2000, size=random.integers(1, 60))] for _ in range(5)]
    many = [[each for index in random.integers(0, 5, size=3) for each in words[index]] for _ in range(100)]
    prompt = llm.tokenize(PROMPT)
    scores = llm.score(prompt, many)
    for index in range(0, len(many), 7):
        require_equal(scores[index], by_request(llm, [*prompt, *many[index]], len(many[index])))


def test_coroutines_and_threads(llm: pyggml.LLM, run: Callable[[Any], Any]) -> None:
    expected = llm.score(PROMPT, CONTINUATIONS)

    async def main() -> list[list[Score]]:
        return await asyncio.gather(*(llm.ascore(PROMPT, CONTINUATIONS) for _ in range(3)))

    assert run(main()) == [expected] * 3
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: llm.score(PROMPT, CONTINUATIONS), range(6))) == [expected] * 6


def test_coroutines_that_wait_leave_threads_to_others(llm: pyggml.LLM, run: Callable[[Any], Any]) -> None:
    async def main() -> tuple[int, list[list[Score]]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        waiting = [asyncio.create_task(llm.ascore(PROMPT, CONTINUATIONS)) for _ in range(12)]
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        return sum(task.done() for task in waiting), await asyncio.gather(*waiting)

    n_done_before, scores = run(main())
    assert n_done_before < 6
    assert scores == [llm.score(PROMPT, CONTINUATIONS)] * 12


def test_cancelled_coroutines_compute_nothing(
    llm: pyggml.LLM, run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = llm.score(PROMPT, CONTINUATIONS)
    scorer: Any = llm._shared_scorer
    of_size, n_computed, tokenized = scorer._of_size, 0, threading.Event()
    items = llm._items

    def observed_size(n: int) -> Any:
        nonlocal n_computed
        n_computed += 1
        return of_size(n)

    def observed_items(*arguments: Any) -> Any:
        found = items(*arguments)
        tokenized.set()
        return found

    monkeypatch.setattr(scorer, "_of_size", observed_size)
    monkeypatch.setattr(llm, "_items", observed_items)

    async def main() -> list[Score]:
        with scorer._lock:
            tasks = [asyncio.create_task(llm.ascore(PROMPT, CONTINUATIONS)) for _ in range(4)]
            await until_async(tokenized.is_set)  # the first of them waits for the lock next
            for task in tasks:
                task.cancel()
            assert all(
                isinstance(each, asyncio.CancelledError)
                for each in await asyncio.gather(*tasks, return_exceptions=True)
            )
        return await llm.ascore(PROMPT, CONTINUATIONS)

    assert run(main()) == expected
    assert n_computed == 1


def test_models_without_a_kv_cache_that_can_be_cut(mamba_path: Path) -> None:
    with pyggml.load(mamba_path, n_ctx=512, n_threads=1) as llm:
        prompt, many = [5, 6, 7], [[8, 9], [8, 10, 11], [12]]
        for score, ids in zip(llm.score(prompt, many), many, strict=True):
            require_equal(score, by_request(llm, [*prompt, *ids], len(ids)))


@pytest.mark.slow
def test_a_model_in_another_process(llm: pyggml.LLM) -> None:
    expected = llm.score(PROMPT, CONTINUATIONS)
    with pyggml.load(n_ctx=1024, cache_type="f32", n_threads=1, isolate=True) as isolated:
        for score, other in zip(isolated.score(PROMPT, CONTINUATIONS), expected, strict=True):
            require_equal(score, other)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("Once", "upon"), pyggml.InvalidParameterError, "put a single one in a list"),
        (("Once", None), pyggml.InvalidParameterError, "continuations must be"),
        (("", ["a"]), pyggml.EmptyPromptError, "empty"),
        (([], ["a"]), pyggml.EmptyPromptError, "no tokens"),
        (("Once", ["a", ""]), pyggml.EmptyPromptError, "continuation 1 has no tokens"),
        (("Once", ["a", []]), pyggml.EmptyPromptError, "continuation 1 has no tokens"),
        (("Once", [[5] * 2000]), pyggml.ContextOverflowError, "continuation 0 and the prompt have 200"),
        (("Once", [[10**6]]), pyggml.InvalidParameterError, "1000000"),
        (("Once", [[-1]]), pyggml.InvalidParameterError, "-1"),
        (("Once", [3.5]), pyggml.InvalidParameterError, "continuation 0"),
    ],
)
def test_what_is_refused(llm: pyggml.LLM, arguments: tuple[Any, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        llm.score(*arguments)
    assert llm.score(PROMPT, [" dog"])  # it still works


def test_no_continuations(llm: pyggml.LLM) -> None:
    assert llm.score(PROMPT, []) == []


def test_a_closed_model(own_llm: pyggml.LLM) -> None:
    own_llm.score(PROMPT, [" dog"])
    own_llm.close()
    with pytest.raises(pyggml.ClosedError):
        own_llm.score([5, 6], [[7]])


def test_models_that_do_not_generate(bert_path: Path) -> None:
    with pyggml.load(bert_path) as llm, pytest.raises(pyggml.UnsupportedArchitectureError, match="token by token"):
        llm.score("a", ["b"])


def test_a_scorer_refuses_what_it_cannot_score(llm: pyggml.LLM) -> None:
    with pyggml.Scorer(llm.model, 256) as scorer:
        for pair, said in (([5], 1), "has 1 tokens"), (([5, 6], 0), "0 cannot be scored"), (([5, 6], 2), "2 cannot"):
            with pytest.raises(pyggml.InvalidParameterError, match=said):
                list(scorer.scores([pair]))
        with pytest.raises(pyggml.ContextOverflowError, match="sequence 1 has 300 tokens"):
            list(scorer.scores([([5, 6], 1), ([5] * 300, 1)]))
        [(index, score)] = scorer.scores([([5, 6, 7], 2)])
        assert (index, score.token_ids) == (0, [6, 7])
    with pytest.raises(pyggml.ClosedError):
        list(scorer.scores([([5, 6, 7], 2)]))


def test_scores_of_rows(llm: pyggml.LLM) -> None:
    with pyggml.Context(llm.model, n_ctx=256) as context:
        context.decode([5, 6, 7], output="all")
        rows = context.logits()
        logprobs, is_likeliest = context.scores([2, 0, 2], [int(rows[2].argmax()), 9, 9])
        np.testing.assert_allclose(logprobs[1:], [context.logprobs([9], 0)[0], context.logprobs([9], 2)[0]])
        assert is_likeliest.tolist() == [True, False, False]
        with pytest.raises(pyggml.InvalidParameterError, match="2 rows for 1 token_ids"):
            context.scores([0, 1], [5])
        with pytest.raises(pyggml.InvalidParameterError):
            context.scores([3], [5])
        with pytest.raises(pyggml.InvalidParameterError):
            context.scores([-1], [5])

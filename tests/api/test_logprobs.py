"""Logprobs of generated tokens and of prompts, against log-softmax of the logits in numpy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support import demo_questions
from support.checkpoints import models

import pyggml
from pyggml import Completion, Context, TokenLogprobs

PROMPT = "Once upon a time there was a little dog. " * 3  # longer than one piece of rows
ENDLESS: dict[str, Any] = {"ignore_eos": True}


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=2048, n_threads=1) as llm:
        yield llm


@pytest.fixture
def tiny_llm(tiny_path: Path) -> Iterator[pyggml.LLM]:
    """A random model of 261 tokens, one request at a time: the logits that are compared are those it sampled from."""
    with pyggml.load(tiny_path, n_parallel=1, prefix_cache=False, n_threads=1) as llm:
        yield llm


def log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), np.float64)


def check(
    told: Sequence[TokenLogprobs | None], token_ids: Sequence[int], rows: npt.NDArray[np.float64], k: int
) -> None:
    """``rows``: (n, n_vocab), the distribution that each of ``n`` tokens was one of."""
    assert len(told) == len(token_ids) == len(rows)
    for one, token_id, row in zip(told, token_ids, rows, strict=True):
        assert one is not None
        assert one.token_id == token_id
        assert one.logprob == pytest.approx(row[token_id], abs=1e-5)
        ids, values = [each.token_id for each in one.top], [each.logprob for each in one.top]
        assert len(set(ids)) == min(k, len(row))
        assert values == sorted(values, reverse=True)
        np.testing.assert_allclose(values, row[ids], rtol=0, atol=1e-5)
        np.testing.assert_allclose(values, -np.sort(-row)[: len(ids)], rtol=0, atol=1e-5)


def check_generated(llm: pyggml.LLM, prompt_ids: Sequence[int], done: Completion, k: int) -> None:
    """Against a context that is fed as the engine feeds its own: other batches would round in another way."""
    with Context(llm.model, n_ctx=llm.n_ctx, n_threads=1) as context:
        rows = []
        for batch in [prompt_ids, *([token_id] for token_id in done.token_ids[:-1])]:
            context.decode(batch)
            rows.append(context.logits()[0])
    assert done.logprobs is not None
    check(done.logprobs, done.token_ids, log_softmax(np.stack(rows)), k)


class TestOfGeneratedTokens:
    @pytest.mark.parametrize("k", [1, 5, 1000])
    def test_are_the_log_softmax(self, tiny_llm: pyggml.LLM, k: int) -> None:
        prompt = [72, 101, 108, 108, 111]
        done = tiny_llm.generate(prompt, max_tokens=20, logprobs=k, **ENDLESS)
        assert len(done.token_ids) == 20
        check_generated(tiny_llm, prompt, done, k)

    @pytest.mark.parametrize(
        "params",
        [
            {"temperature": 1.5, "seed": 3},
            {"temperature": 1.0, "seed": 4, "top_k": 3},
            {"repeat_penalty": 1.5, "presence_penalty": 1.0},
            {"logit_bias": {65: 100.0}},
            {"logit_bias": {65: 100.0}, "temperature": 1.0, "seed": 5},
            {"logit_bias": {97: 100.0}, "grammar": "root ::= [a-z]{5}"},
            {"grammar": 'root ::= "abc" root'},
        ],
    )
    def test_what_changes_the_choice_does_not_change_them(self, tiny_llm: pyggml.LLM, params: dict[str, Any]) -> None:
        prompt = [72, 101, 108, 108, 111]
        done = tiny_llm.generate(prompt, max_tokens=12, logprobs=4, **params)
        assert len(done.token_ids) > 3
        check_generated(tiny_llm, prompt, done, 4)

    def test_greedy_takes_the_likeliest(self, llm: pyggml.LLM) -> None:
        done = llm.generate(PROMPT, max_tokens=40, logprobs=2)
        assert done.logprobs is not None
        assert [one.top[0].token_id for one in done.logprobs] == done.token_ids
        assert [one.top[0].logprob for one in done.logprobs] == [one.logprob for one in done.logprobs]

    def test_off_by_default(self, llm: pyggml.LLM) -> None:
        done = llm.generate(PROMPT, max_tokens=3)
        assert (done.logprobs, done.prompt_logprobs) == (None, None)
        assert {chunk.logprobs is None for chunk in llm.stream(PROMPT, max_tokens=3)} == {True}

    def test_do_not_change_the_tokens(self, tiny_llm: pyggml.LLM) -> None:
        params: dict[str, Any] = {"max_tokens": 60, "temperature": 5.0, "seed": 11, **ENDLESS}
        with_them, without = tiny_llm.generate(PROMPT, logprobs=7, **params), tiny_llm.generate(PROMPT, **params)
        assert with_them.token_ids == without.token_ids
        assert len(set(without.token_ids)) > 5

    def test_come_with_the_chunks(self, llm: pyggml.LLM) -> None:
        stream = llm.stream(PROMPT, max_tokens=50, logprobs=3)
        chunks = list(stream)
        assert all([one.token_id for one in chunk.logprobs or []] == chunk.token_ids for chunk in chunks)
        assert [one for chunk in chunks for one in chunk.logprobs or []] == stream.completion.logprobs
        assert len(stream.completion.token_ids) == 50

    def test_end_with_the_tokens_at_a_stop_string(self, llm: pyggml.LLM) -> None:
        for stop in ("dog", ".", " and"):
            done = llm.generate(PROMPT, max_tokens=200, stop=stop, logprobs=2)
            assert [one.token_id for one in done.logprobs or []] == done.token_ids

    def test_there_is_none_of_the_stop_token(self, llm: pyggml.LLM) -> None:
        done = llm.generate(demo_questions.prompts(llm, 1)[0], logprobs=1)
        assert done.finish_reason == "stop"
        assert [one.token_id for one in done.logprobs or []] == done.token_ids

    def test_until_the_context_is_full(self, tiny_llm: pyggml.LLM) -> None:
        done = tiny_llm.generate([65] * (tiny_llm.n_ctx - 5), logprobs=2, **ENDLESS)
        assert done.finish_reason == "length"
        assert [one.token_id for one in done.logprobs or []] == done.token_ids
        assert len(done.token_ids) == 6

    def test_in_coroutines(self, llm: pyggml.LLM) -> None:
        async def main() -> tuple[Completion, list[TokenLogprobs]]:
            whole = await llm.agenerate(PROMPT, max_tokens=30, logprobs=2, prompt_logprobs=1)
            streamed = [one async for c in llm.astream(PROMPT, max_tokens=30, logprobs=2) for one in c.logprobs or []]
            return whole, streamed

        whole, streamed = asyncio.run(main())
        assert [one.token_id for one in whole.logprobs or []] == whole.token_ids
        assert [one.token_id for one in streamed] == whole.token_ids
        assert len(whole.prompt_logprobs or []) == whole.prompt_tokens

    def test_in_batches(self, llm: pyggml.LLM) -> None:
        for done in llm.generate_batch([PROMPT, "A cat", "The dog"] * 4, max_tokens=9, logprobs=2):
            assert [one.token_id for one in done.logprobs or []] == done.token_ids

    @pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
    @pytest.mark.parametrize("value", [-1, 1001, "many", 1.5])
    def test_what_cannot_be(self, name: str, value: object) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match=name):
            pyggml.SamplingParams(**{name: value})  # type: ignore[arg-type]


class TestOfPrompts:
    @pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 34, 100])
    def test_are_the_log_softmax(self, tiny_llm: pyggml.LLM, n: int) -> None:
        prompt = np.random.default_rng(n).integers(0, models.N_BYTE_VOCAB, n).tolist()
        done = tiny_llm.generate(prompt, max_tokens=3, prompt_logprobs=6, **ENDLESS)
        assert done.prompt_logprobs is not None
        assert done.prompt_logprobs[0] is None
        check(done.prompt_logprobs[1:], prompt[1:], log_softmax(tiny_llm.logits(prompt))[:-1], 6)
        assert len(done.token_ids) == 3

    def test_the_generation_goes_on_from_them(self, llm: pyggml.LLM) -> None:
        llm.reset()
        with_them = llm.generate(PROMPT, max_tokens=30, prompt_logprobs=1)
        assert (with_them.cached_tokens, with_them.timings.computed_tokens) == (0, with_them.prompt_tokens)
        without = llm.generate(PROMPT, max_tokens=30)
        assert without.cached_tokens == without.prompt_tokens - 1
        prompt = demo_questions.prompts(llm, 1)[0]
        assert llm.generate(prompt, prompt_logprobs=1).text == demo_questions.answers(1)[0]

    def test_also_of_a_prompt_that_is_cached(self, llm: pyggml.LLM) -> None:
        first = llm.generate(PROMPT, max_tokens=1, prompt_logprobs=2)
        again = llm.generate(PROMPT, max_tokens=1, prompt_logprobs=2)
        assert again.cached_tokens == 0
        assert again.prompt_logprobs == first.prompt_logprobs

    def test_alone_score_a_text(self, llm: pyggml.LLM) -> None:
        done = llm.generate(PROMPT, max_tokens=0, prompt_logprobs=1)
        assert (done.token_ids, done.finish_reason, done.logprobs) == ([], "length", None)
        likely = sum(one.logprob for one in done.prompt_logprobs or [] if one)
        shuffled = np.random.default_rng(0).permutation(llm.tokenize(PROMPT)[1:]).tolist()
        other = llm.generate([llm.tokenize(PROMPT)[0], *shuffled], max_tokens=0, prompt_logprobs=1)
        assert likely > sum(one.logprob for one in other.prompt_logprobs or [] if one) + 100

    def test_as_far_as_it_came(self, llm: pyggml.LLM) -> None:
        stream = llm.stream(PROMPT * 20, max_tokens=1, prompt_logprobs=1)
        stream.cancel()
        done = stream.finish()
        assert done.finish_reason == "cancelled"
        assert done.prompt_logprobs is not None
        assert len(done.prompt_logprobs) <= done.prompt_tokens
        assert done.prompt_logprobs[0] is None


class TestInCompany:
    def test_those_beside_it_are_not_disturbed(self, llm: pyggml.LLM) -> None:
        prompts, expected = demo_questions.prompts(llm, 24), demo_questions.answers(24)
        params = [{}, {"logprobs": 5}, {"prompt_logprobs": 2}, {"logprobs": 1, "prompt_logprobs": 1}]
        done: dict[int, Completion] = {}

        def ask(index: int) -> None:
            asked: dict[str, Any] = params[index % 4]
            done[index] = llm.generate(prompts[index], max_tokens=60, **asked)

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [done[index].text for index in range(24)] == expected
        for index, completion in done.items():
            asked = params[index % 4]
            assert (completion.logprobs is not None) == ("logprobs" in asked)
            assert len(completion.logprobs or completion.token_ids) == len(completion.token_ids)
            told = completion.prompt_logprobs
            assert [one.token_id for one in (told or [])[1:] if one] == (prompts[index][1:] if told else [])

    def test_none_is_lost_or_doubled_by_preemption(self) -> None:
        with pyggml.load(n_ctx=256, n_parallel=4, n_threads=1) as llm:
            params: dict[str, Any] = {"max_tokens": 120, "ignore_eos": True, "logprobs": 2, "prompt_logprobs": 2}
            streams = [llm.stream(PROMPT, **params) for _ in range(6)]
            everything = [stream.finish() for stream in streams]
            assert sum(done.timings.n_preemptions for done in everything) > 0
            assert all(done.finish_reason == "length" for done in everything)
            prompt = llm.tokenize(PROMPT)
            for done in everything:
                assert [one.token_id for one in done.logprobs or []] == done.token_ids
                assert [one.token_id for one in done.prompt_logprobs or [] if one] == prompt[1:]
                rows = log_softmax(llm.logits([*prompt, *done.token_ids]))[len(prompt) - 1 : -1]
                told = [one.logprob for one in done.logprobs or []]
                # What was computed in company, or again, was rounded in another way.
                np.testing.assert_allclose(told, rows[range(len(told)), done.token_ids], rtol=0, atol=0.25)

    @pytest.mark.slow
    def test_a_recurrent_model(self, mamba_path: Path) -> None:
        with pyggml.load(mamba_path, n_parallel=1, n_threads=1) as llm:
            prompt = list(range(60, 110))
            done = llm.generate(prompt, max_tokens=8, logprobs=3, prompt_logprobs=3, **ENDLESS)
            rows = log_softmax(llm.logits([*prompt, *done.token_ids]))
            told = [*(done.prompt_logprobs or [])[1:], *(done.logprobs or [])]
            expected = [*prompt[1:], *done.token_ids]
            assert [one.token_id for one in told if one] == expected
            np.testing.assert_allclose(
                [one.logprob for one in told if one], rows[range(len(expected)), expected], rtol=0, atol=1e-3
            )

"""Prefix reuse, sharing and preemption on every kind of memory: attention, sliding window, recurrent state, both.

The models are tiny and their weights random, in F32, where a batch computes each token as it would be alone: what a
crowded engine says is compared with what each prompt says by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models

import pyggml

WRITERS: dict[str, Callable[[Path], Path]] = {
    "attention": models.write_llama,
    "window": models.write_gemma2,
    "recurrent": models.write_mamba,
    "hybrid": models.write_jamba,
}
OPTIONS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 20}


@pytest.fixture(scope="module", params=WRITERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(kind: str, model_dir: Path) -> Path:
    return WRITERS[kind](model_dir / f"memory-{kind}.gguf")


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[pyggml.LLM]:
    """One request at a time, nothing reused: the reference."""
    with pyggml.load(path, n_ctx=512, n_threads=1, n_parallel=1, prefix_cache=False) as llm:
        yield llm


def tokens(n: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 250) for _ in range(n)]


@pytest.mark.slow_except("attention", "window")
def test_a_crowd_says_what_each_says_alone(path: Path, alone: pyggml.LLM) -> None:
    prompts = [tokens(1 + 7 * i % 40, seed=i) for i in range(12)]
    options: dict[str, Any] = {"ignore_eos": True, "max_tokens": 60}
    with pyggml.load(path, n_ctx=200, n_threads=1, n_parallel=4, speculative="off") as llm:
        crowd = llm.generate_batch(prompts, **options)
        assert llm.stats().n_preemptions > 0  # 200 cells are not enough for four of them
    assert [done.token_ids for done in crowd] == [alone.generate(prompt, **options).token_ids for prompt in prompts]


def test_a_conversation_that_grows_is_computed_once(path: Path, alone: pyggml.LLM) -> None:
    with pyggml.load(path, n_ctx=512, n_threads=1) as llm:
        turn = tokens(100, seed=1)
        for _ in range(3):
            reply = llm.generate(turn, **OPTIONS)
            assert reply.token_ids == alone.generate(turn, **OPTIONS).token_ids
            # All but the last generated token, which has not been computed yet.
            n_computed = len(turn) + len(reply.token_ids) - 1
            turn = [*turn, *reply.token_ids, *tokens(5, seed=len(turn))]
            assert llm.generate(turn, max_tokens=0).cached_tokens == n_computed
            # That call has computed all of the turn; where the memory cannot go back the next begins anew.
            llm.reset()


def test_a_prompt_that_goes_another_way_is_right(kind: str, path: Path, alone: pyggml.LLM) -> None:
    whole = tokens(150, seed=2)
    fork = [*whole[:60], *tokens(10, seed=3)]
    with pyggml.load(path, n_ctx=512, n_threads=1) as llm:
        llm.generate(whole, **OPTIONS)
        done = llm.generate(fork, **OPTIONS)
        assert done.token_ids == alone.generate(fork, **OPTIONS).token_ids
        # A state cannot go back. The window's cache is still large enough to hold what lies behind the window.
        assert done.cached_tokens == (60 if kind in ("attention", "window") else 0)


def test_the_same_prompt_again(kind: str, path: Path, alone: pyggml.LLM) -> None:
    prompt = tokens(40, seed=4)
    with pyggml.load(path, n_ctx=512, n_threads=1) as llm:
        first, second = (llm.generate(prompt, **OPTIONS) for _ in range(2))
    assert first.token_ids == second.token_ids == alone.generate(prompt, **OPTIONS).token_ids
    assert first.cached_tokens == 0
    assert second.cached_tokens == (39 if kind in ("attention", "window") else 0)


@pytest.mark.slow_except("attention", "window", "recurrent")
def test_cancelled_in_the_middle_of_a_prompt(path: Path, alone: pyggml.LLM) -> None:
    """An interrupted step does not change the results of concurrent or later requests."""
    prompt, company = tokens(450, seed=5), tokens(20, seed=6)
    with pyggml.load(path, n_ctx=1024, n_threads=1) as llm:
        for _ in range(5):
            adjacent = llm.stream(company, ignore_eos=True, max_tokens=40)
            next(adjacent)
            llm.stream(prompt, **OPTIONS).cancel()
            assert adjacent.finish().token_ids == alone.generate(company, ignore_eos=True, max_tokens=40).token_ids
        assert llm.generate(prompt, **OPTIONS).token_ids == alone.generate(prompt, **OPTIONS).token_ids


def test_a_window_that_has_moved_on_is_computed_anew(model_dir: Path) -> None:
    """The cache of a sliding window is small: far behind it nothing is left to start from."""
    path = models.write_gemma2(model_dir / "window-far.gguf", sliding_window=8)
    whole = tokens(450, seed=7)
    with (
        pyggml.load(path, n_ctx=512, n_ubatch=16, n_batch=16, n_threads=1, n_parallel=1) as llm,
        pyggml.load(path, n_ctx=512, n_threads=1, n_parallel=1, prefix_cache=False) as alone,
    ):
        llm.generate(whole, **OPTIONS)
        fork = [*whole[:50], 7]
        done = llm.generate(fork, **OPTIONS)
        assert done.cached_tokens == 0
        assert done.token_ids == alone.generate(fork, **OPTIONS).token_ids


@pytest.fixture
def long_path(kind: str, model_dir: Path) -> Path:
    """A model whose window, if it has one, is much shorter than the prompts."""
    if kind == "window":
        return models.write_gemma2(model_dir / "window-short.gguf", sliding_window=8)
    return WRITERS[kind](model_dir / f"memory-{kind}.gguf")


@pytest.mark.parametrize("n_bytes", [None, 0])
def test_a_prompt_with_another_end_continues_from_a_checkpoint(kind: str, long_path: Path, n_bytes: int | None) -> None:
    whole = tokens(450, seed=8)
    options: dict[str, Any] = {"n_ctx": 1024, "n_batch": 16, "n_ubatch": 16, "n_threads": 1, "n_parallel": 1}
    with (
        pyggml.load(long_path, prefix_cache_bytes=n_bytes, **options) as llm,
        pyggml.load(long_path, prefix_cache=False, **options) as alone,
    ):
        cached = []
        # The first answer is long, so that the window moves on.
        for end, n_answer in (([], 300), (tokens(30, seed=9), 20), (tokens(90, seed=10), 20)):
            prompt = [*whole[: 450 - len(end)], *end]
            params = OPTIONS | {"max_tokens": n_answer}
            done = llm.generate(prompt, **params)
            assert done.token_ids == alone.generate(prompt, **params).token_ids
            cached.append(done.cached_tokens)
        stats = llm.stats()
    if kind == "attention":
        assert cached == [0, 420, 360]
        assert stats.n_checkpoints == 0
    else:
        # The checkpoint is 64 tokens before the end, and the last prompt differs before that. Where a checkpoint was
        # restored, the cells before the window are gone; where the prompt was computed anew, they are still there.
        from_checkpoint = [0, 386, 0]
        assert cached == (from_checkpoint if n_bytes is None else [0, 0, 360 if kind == "window" else 0])
        assert (stats.n_checkpoints > 0) == (stats.checkpoint_bytes > 0) == (n_bytes is None)


def test_a_chat_whose_template_drops_reasoning(long_path: Path) -> None:
    """Each turn computes its message and the answer before it, which it has without its reasoning."""
    begin = models.BOS  # a control token, as templates put between messages
    chat = [begin, *tokens(300, seed=11)]
    options: dict[str, Any] = {"n_ctx": 2048, "n_threads": 1, "n_parallel": 1}
    n_before = 0
    with (
        pyggml.load(long_path, **options) as llm,
        pyggml.load(long_path, prefix_cache=False, **options) as alone,
    ):
        for turn in range(1, 5):
            prompt = [*chat, begin, *tokens(3, seed=12)]
            done = llm.generate(prompt, **OPTIONS)
            assert done.token_ids == alone.generate(prompt, **OPTIONS).token_ids
            assert done.cached_tokens >= n_before
            n_before = len(chat)
            chat = [*chat, begin, *done.token_ids[15:], begin, *tokens(290, seed=12 + turn)]


def test_a_size_of_checkpoints_without_a_prefix_cache_is_refused(model_dir: Path) -> None:
    path = models.write_llama(model_dir / "salts.gguf")
    with pytest.raises(pyggml.InvalidParameterError, match="no effect with prefix_cache=False"):
        pyggml.load(path, prefix_cache=False, prefix_cache_bytes=1)
    with (
        pyggml.Model(path) as model,
        pyggml.Context(model, n_ctx=256) as context,
        pytest.raises(pyggml.InvalidParameterError, match="no effect with prefix_cache=False"),
    ):
        pyggml.Engine(context, prefix_cache=False, prefix_cache_bytes=1)


def test_prefixes_are_kept_apart_by_salts(model_dir: Path) -> None:
    prompt = tokens(60, seed=20)
    path = models.write_llama(model_dir / "salts.gguf")
    for isolate in (False, True):
        with pyggml.load(path, n_ctx=512, n_threads=1, isolate=isolate) as llm:
            cached = [
                llm.generate(prompt, max_tokens=1, cache_salt=salt).cached_tokens
                for salt in (None, "a", "b", "a", None, "")
            ]
        assert cached == [0, 0, 0, 59, 59, 0]
    with pytest.raises(pyggml.InvalidParameterError, match="cache_salt must be text"):
        pyggml.SamplingParams(cache_salt=3)  # type: ignore[arg-type]

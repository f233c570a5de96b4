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
    with pyggml.load(path, n_ctx=200, n_threads=1, n_parallel=4) as llm:
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

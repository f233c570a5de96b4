"""A KV cache shared by all requests, and one divided among them: the same tokens, the same prefix cache hits.

The models are tiny and their weights random, in F32, where a batch computes each token as it would be alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import models
from support.servers.cpu_host import LentCPU, lent_cpu

import pyggml

N_PARALLEL, N_STREAM = 6, 256
OPTIONS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 20}


@pytest.fixture(scope="module")
def path(model_dir: Path) -> Path:
    return models.write_llama(model_dir / "kv-layout.gguf")


def loaded(path: Path, kv_unified: bool | None, **options: Any) -> pyggml.LLM:
    sizes = {"n_ctx": N_PARALLEL * N_STREAM, "n_parallel": N_PARALLEL, "n_threads": 1}
    return pyggml.load(path, kv_unified=kv_unified, **(sizes | options))


@pytest.fixture
def shared(path: Path) -> Iterator[pyggml.LLM]:
    with loaded(path, True) as llm:
        yield llm


@pytest.fixture
def divided(path: Path) -> Iterator[pyggml.LLM]:
    with loaded(path, False) as llm:
        yield llm


def tokens(n: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 250) for _ in range(n)]


def answers(llm: pyggml.LLM, prompts: list[list[int]], **options: Any) -> list[list[int]]:
    return [done.token_ids for done in llm.generate_batch(prompts, **(OPTIONS | options))]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 7}], ids=["greedy", "sampled"])
def test_both_give_the_same_tokens(shared: pyggml.LLM, divided: pyggml.LLM, sampling: dict[str, Any]) -> None:
    prompts = [tokens(1 + 17 * i % 180, seed=i) for i in range(40)]
    assert answers(divided, prompts, **sampling) == answers(shared, prompts, **sampling)
    assert divided.stats().n_kv_streams == N_PARALLEL
    assert shared.stats().n_kv_streams == 1
    assert divided.stats().n_preemptions == 0


def test_slots_that_become_free_change_nothing(path: Path) -> None:
    """Requests end one by one, which leaves gaps between the sequences of a batch."""
    prompts = [tokens(10 + i % 7, seed=i) for i in range(60)]
    lengths = [5 + 37 * i % 90 for i in range(60)]
    found = []
    for kv_unified in (True, False):
        with loaded(path, kv_unified, n_ctx=20 * N_STREAM, n_parallel=20) as llm:
            streams = [
                llm.stream(each, max_tokens=n, ignore_eos=True) for each, n in zip(prompts, lengths, strict=True)
            ]
            found.append([stream.finish().token_ids for stream in streams])
    assert found[0] == found[1]


def test_prefixes_are_found_in_both(shared: pyggml.LLM, divided: pyggml.LLM) -> None:
    system = tokens(100, seed=1)
    prompts = [system + tokens(5 + i, seed=2 + i) for i in range(8)]
    found = {}
    for llm in (shared, divided):
        first = llm.generate(system, **OPTIONS)
        done = [llm.generate(prompt, **OPTIONS) for prompt in [*prompts, system + first.token_ids[:10], *prompts]]
        found[llm] = [(each.cached_tokens, each.token_ids) for each in done]
    assert found[divided] == found[shared]
    assert all(n_cached >= len(system) for n_cached, _ in found[divided])


def test_running_requests_share_prefixes_too(shared: pyggml.LLM, divided: pyggml.LLM) -> None:
    system = tokens(150, seed=1)
    prompts = [system + tokens(5 + i, seed=2 + i) for i in range(20)]
    assert answers(divided, prompts) == answers(shared, prompts)
    for llm in (shared, divided):
        assert llm.stats().n_prompt_tokens < 2 * len(system) + sum(len(prompt) - len(system) for prompt in prompts)


def test_a_request_that_outgrows_its_part_unifies_the_cache(shared: pyggml.LLM, divided: pyggml.LLM) -> None:
    """And the cache is divided again when only short requests have run for a while."""
    prompts = [tokens(20 + 9 * i, seed=i) for i in range(5)] + [tokens(200, seed=9)]
    lengths = [150, 60, 60, 60, 60, 300]
    streams = [
        divided.stream(prompt, max_tokens=n, ignore_eos=True) for prompt, n in zip(prompts, lengths, strict=True)
    ]
    done = [stream.finish().token_ids for stream in streams]
    assert divided.stats().n_kv_streams == 1
    assert divided.stats().n_preemptions > 0
    assert done == [
        shared.generate(prompt, max_tokens=n, ignore_eos=True).token_ids
        for prompt, n in zip(prompts, lengths, strict=True)
    ]
    answers(divided, prompts[:2], max_tokens=100)
    divided.generate(prompts[0], **OPTIONS)
    assert divided.stats().n_kv_streams == N_PARALLEL


def test_a_lone_request_may_use_all_cells(divided: pyggml.LLM) -> None:
    prompt = tokens(3 * N_STREAM, seed=3)
    assert len(divided.generate(prompt, **OPTIONS).token_ids) == OPTIONS["max_tokens"]
    assert divided.stats().n_kv_streams == 1


def test_on_a_cpu_it_is_shared_unless_asked_for(path: Path) -> None:
    with loaded(path, None) as llm:
        answers(llm, [tokens(20, seed=i) for i in range(N_PARALLEL)])
        assert llm.stats().n_kv_streams == 1


def test_a_part_needs_256_cells(path: Path) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="use n_ctx=1536 or more, or leave kv_unified out"):
        loaded(path, False, n_ctx=1024)


@pytest.mark.parametrize("write", [models.write_gemma2, models.write_mamba])
def test_other_memories_cannot_be_divided(write: Any, model_dir: Path) -> None:
    path = write(model_dir / f"kv-layout-{write.__name__}.gguf")
    with pytest.raises(pyggml.InvalidParameterError, match=r"recurrent states .* cannot be copied between streams"):
        loaded(path, False)
    with loaded(path, None) as llm:
        assert llm.generate([1, 2, 3], **OPTIONS).token_ids


@pytest.fixture(scope="module")
def device() -> Iterator[LentCPU]:
    """The CPU of another process, which has its own memory."""
    with lent_cpu() as device:
        yield device


def until_divided(llm: pyggml.LLM) -> None:
    """Submit requests until enough of them arrive together, which a busy machine may prevent."""
    for _ in range(100):
        answers(llm, [[1, 2, i] for i in range(N_PARALLEL)], max_tokens=4)
        if llm.stats().n_kv_streams == N_PARALLEL:
            return
    raise AssertionError("the KV cache stays unified")


class TestOnADevice:
    """Devices divide the cache for four requests, without being asked."""

    def test_the_tokens_are_the_same(self, device: LentCPU, path: Path) -> None:
        sizes: dict[str, Any] = {"n_ctx": N_PARALLEL * N_STREAM, "n_parallel": N_PARALLEL}
        prompts = [tokens(20 + 25 * i, seed=i) for i in range(8)]
        with device.load(path, **sizes) as chosen, device.load(path, **sizes, kv_unified=True) as unified:
            until_divided(chosen)
            assert answers(chosen, prompts) == answers(unified, prompts)
            assert chosen.stats().n_kv_streams == N_PARALLEL
            assert unified.stats().n_kv_streams == 1

    def test_greedy_tokens_are_sampled_there(self, device: LentCPU, path: Path) -> None:
        sizes: dict[str, Any] = {"n_ctx": N_PARALLEL * N_STREAM, "n_parallel": N_PARALLEL, "backend_sampling": True}
        prompts = [tokens(20 + 25 * i, seed=i) for i in range(8)]
        with device.load(path, **sizes) as chosen, device.load(path, **sizes, kv_unified=True) as unified:
            until_divided(chosen)
            given = {"max_tokens": 60, "ignore_eos": False}
            assert answers(chosen, prompts, **given) == answers(unified, prompts, **given)
            assert chosen.stats().n_sampled_on_device > 0
            assert chosen.stats().n_kv_streams == N_PARALLEL

    def test_not_for_three(self, device: LentCPU, path: Path) -> None:
        with device.load(path, n_ctx=2048, n_parallel=4) as llm:
            answers(llm, [tokens(20, seed=i) for i in range(3)])
            assert llm.stats().n_kv_streams == 1

"""Other devices give the CPU's results: tokens, logits, embeddings, states, with all layers of a model or some.

The same tests for every kind of device (device_kinds.py). The CPU of this build is the reference: test_context.py and
test_references.py hold it against numpy and transformers.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import device_kinds
from support.device_kinds import FOLLOWING, PROMPT, UNDISPUTED, Placed, Shelf, difference, logits_of, worst_choice

import pyggml
from pyggml._native.context import Context
from pyggml.memory.estimate import estimate
from pyggml.memory.planner import memory_used_by

# One request at a time, and nothing reused: the order of sums is the same in every run.
ALONE: dict[str, Any] = {"n_ctx": 512, "n_parallel": 1, "prefix_cache": False}
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 24}

# How far logits may differ, in standard deviations. Kernels round what they multiply: to the type of the weights, to
# tensor cores' formats, or quantised weights' inputs to 8 bits.
TOLERANCE = {"f32": 0.06, "f16": 0.15, "q8_0": 0.2, "q4_k_m": 0.25}

ALL_LAYERS = device_kinds.SIZE.n_layer + 1  # and the output


def on_cpu(path: Path, **options: Any) -> pyggml.LLM:
    return pyggml.load(path, device="cpu", **{**ALONE, **options})


def on(placed: Placed, path: Path, **options: Any) -> pyggml.LLM:
    return pyggml.load(path, **{**placed.options, **ALONE, **options})


def assert_as_on_the_cpu(placed: Placed, path: Path, tolerance: float, **options: Any) -> None:
    """Logits of a prompt and of single tokens are close, and greedy choices are the CPU's, or as good."""
    token_ids = [*PROMPT, *FOLLOWING]
    with on(placed, path, **options) as llm:
        logits = logits_of(llm, token_ids, n_alone=len(FOLLOWING))
        written = llm.generate(PROMPT, **GREEDY).token_ids
    with on_cpu(path) as reference:
        assert difference(logits_of(reference, token_ids, n_alone=len(FOLLOWING)), logits) < tolerance
        assert worst_choice(reference, PROMPT, written) < tolerance


# --- what a model says -----------------------------------------------------------------------------------------------


@pytest.mark.slow_except(every=12)
@pytest.mark.parametrize("ftype", TOLERANCE)
def test_a_llama_in_each_type(placed: Placed, shelf: Shelf, ftype: str) -> None:
    assert_as_on_the_cpu(placed, shelf("llama", ftype), TOLERANCE[ftype])


@pytest.mark.slow
@pytest.mark.parametrize("ftype", ["f16", "q8_0", "q4_k_m"])
@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_other_families_in_each_type(placed: Placed, shelf: Shelf, family: str, ftype: str) -> None:
    assert_as_on_the_cpu(placed, shelf(family, ftype), TOLERANCE[ftype])


@pytest.mark.slow
@pytest.mark.parametrize("name", device_kinds.WRITERS)
def test_every_architecture(placed: Placed, shelf: Shelf, name: str) -> None:
    on_software = placed.kind == "vulkan" and "llvmpipe" in pyggml.find_device("vulkan").description
    if on_software and name in ("llama4", "gpt-oss"):
        pytest.skip("Mesa's software driver crashes on it, or does not come to an end")
    assert_as_on_the_cpu(placed, shelf(name), TOLERANCE["f32"])


@pytest.mark.slow_except(every=5)
@pytest.mark.parametrize("family", UNDISPUTED)
def test_greedy_tokens_are_the_cpus(placed: Placed, shelf: Shelf, family: str) -> None:
    path = shelf(family, "f16")
    with on_cpu(path) as reference, on(placed, path) as llm:
        expected, found = (
            each.generate(UNDISPUTED[family], temperature=0, ignore_eos=True, max_tokens=16).token_ids
            for each in (reference, llm)
        )
    assert found == expected
    assert len(set(found)) > 5


@pytest.mark.slow_except("vulkan", "cuda")
def test_embeddings(placed: Placed, shelf: Shelf, bert_path: Path) -> None:
    texts = ["a short one", "another text, which is longer than the first " * 4, "the third"]
    for path in (bert_path, shelf("llama")):
        with on_cpu(path) as reference, on(placed, path) as llm:
            expected, found = (each.embed(texts, normalize=True) for each in (reference, llm))
        np.testing.assert_allclose((expected * found).sum(axis=1), 1, atol=1e-3)


@pytest.mark.slow_except("vulkan", "cuda")
def test_a_seed_gives_the_same_tokens_again(placed: Placed, shelf: Shelf) -> None:
    with on(placed, shelf("llama")) as llm:
        first, second, other = (
            llm.generate(PROMPT, temperature=1, seed=seed, ignore_eos=True, max_tokens=24).token_ids
            for seed in (1, 1, 2)
        )
    assert first == second != other


@pytest.mark.slow_except("vulkan", "cuda")
def test_several_requests_together(placed: Placed, shelf: Shelf) -> None:
    rng = random.Random(3)
    prompts = [[rng.randrange(1, 250) for _ in range(n)] for n in (5, 40, 17, 90, 2, 33, 61, 8)]
    path = shelf("llama", "f16")
    with on(placed, path, n_parallel=4, n_ctx=1024) as llm:
        answers = [done.token_ids for done in llm.generate_batch(prompts, **GREEDY)]
    with on_cpu(path) as reference:
        for prompt, answer in zip(prompts, answers, strict=True):
            assert len(answer) == GREEDY["max_tokens"]
            assert worst_choice(reference, prompt, answer) < TOLERANCE["f16"]


def test_a_cancelled_prompt_leaves_no_trace(placed: Placed, shelf: Shelf) -> None:
    whole = device_kinds.prompt(9, 200)
    with on(placed, shelf("llama", "f16"), n_ubatch=16, n_batch=16) as llm:
        expected = llm.generate(whole, **GREEDY).token_ids
        for _ in range(2):
            llm.stream(whole, **GREEDY).cancel()
        assert llm.generate(whole, **GREEDY).token_ids == expected


# --- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow_except("vulkan-llama", "vulkan-mamba", "cuda-llama", "cuda-mamba")
@pytest.mark.parametrize("name", ["llama", "mamba"])
def test_states_go_from_the_cpu_to_the_device_and_back(placed: Placed, shelf: Shelf, name: str) -> None:
    path = shelf(name)
    with on_cpu(path) as reference, on(placed, path) as llm:
        expected = logits_of(reference, [*PROMPT, *FOLLOWING])[len(PROMPT) :]
        for first, then in ((reference, llm), (llm, reference), (llm, llm)):
            with Context(first.model, n_ctx=512) as writer, Context(then.model, n_ctx=512) as reader:
                writer.decode(PROMPT, output="none")
                reader.state_restore(writer.state_save())
                reader.decode(FOLLOWING, output="all")
                assert difference(expected, reader.logits()) < TOLERANCE["f32"]


# --- what is where ---------------------------------------------------------------------------------------------------


@pytest.mark.slow_except("vulkan", "cuda")
def test_a_model_is_where_it_was_sent(placed: Placed, shelf: Shelf) -> None:
    """Weights, cache and scratch space; the table of embeddings stays in main memory, where rows are looked up."""
    with on(placed, shelf("llama", "f16")) as llm:
        main, *others = llm.memory
        assert len(others) == len(placed.free_bytes)
        assert all(memory.name.startswith(device_kinds.NAMES[placed.kind]) for memory in others)
        assert all(memory.weights_bytes and memory.cache_bytes and memory.compute_bytes for memory in others)
        assert sum(memory.weights_bytes for memory in others) > 0.9 * llm.model.size_bytes
        assert main.cache_bytes == 0


@pytest.mark.slow_except("vulkan-2", "cuda-2")
@pytest.mark.parametrize("n_gpu_layers", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, ALL_LAYERS))])
def test_some_of_the_layers(placed: Placed, shelf: Shelf, n_gpu_layers: int) -> None:
    path = shelf("llama", "f16")
    assert_as_on_the_cpu(placed, path, TOLERANCE["f16"], n_gpu_layers=n_gpu_layers)
    with on(placed, path, n_gpu_layers=n_gpu_layers) as llm:
        main, *others = llm.memory
    share = sum(memory.weights_bytes for memory in others) / (main.weights_bytes + sum(m.weights_bytes for m in others))
    # All layers are of a size, and the output is small.
    assert share == pytest.approx(max(n_gpu_layers - 1, 0) / device_kinds.SIZE.n_layer, abs=0.06)


@pytest.mark.slow_except("vulkan", "cuda")
def test_the_cache_can_stay_in_main_memory(placed: Placed, shelf: Shelf) -> None:
    with on(placed, shelf("llama", "f16")) as llm:
        there = logits_of(llm, PROMPT)
        here = logits_of(llm, PROMPT, offload_kqv=False)
        with Context(llm.model, n_ctx=512, offload_kqv=False) as context:
            main, *others = memory_used_by(context)
    assert main.cache_bytes > 0
    assert all(memory.cache_bytes == 0 for memory in others)
    assert difference(there, here) < TOLERANCE["f16"]


# --- too large -------------------------------------------------------------------------------------------------------

# Scratch space grows with the tokens computed at once, too; here the cache decides.
SMALL_STEPS = {"n_batch": 32, "n_ubatch": 32}
CELL_BYTES = device_kinds.SIZE.n_layer * 2 * device_kinds.SIZE.head_dim * 2  # keys and values, f16


def too_large(placed: Placed) -> int:
    """A context whose cache is half as large again as what the devices have free."""
    return int(1.5 * sum(placed.free_bytes) / CELL_BYTES)


@pytest.mark.slow_except("vulkan", "cuda")
def test_what_does_not_fit_is_refused(placed: Placed, shelf: Shelf) -> None:
    path = shelf("llama", "f16")
    name = device_kinds.NAMES[placed.kind]
    with pytest.raises(pyggml.OutOfMemoryError, match=rf" on {name}.*n_gpu_layers=\d") as refused:
        on(placed, path, n_ctx=too_large(placed), **SMALL_STEPS)
    assert refused.value.required_bytes > refused.value.available_bytes > 0
    with on(placed, path) as llm:
        assert len(llm.generate(PROMPT, **GREEDY).token_ids) == GREEDY["max_tokens"]


@pytest.mark.slow_except("vulkan")
def test_auto_leaves_on_the_cpu_what_does_not_fit(placed: Placed, shelf: Shelf) -> None:
    """Hosts lend little, so it is loaded there; it is planned for what may have a hundred gigabytes."""
    path = shelf("llama", "f16")
    options = {"n_ctx": too_large(placed), "n_gpu_layers": "auto", **SMALL_STEPS}
    if placed.kind == "rpc":
        with on(placed, path, **options) as llm:
            main, *others = llm.memory
    else:
        main, *others = estimate(path, **{**placed.options, "n_parallel": 1, **options}).devices
    for memory, free_bytes in zip(others, placed.free_bytes, strict=True):
        assert memory.total_bytes < free_bytes
    assert sum(memory.cache_bytes for memory in others) > 0
    assert main.cache_bytes > 0

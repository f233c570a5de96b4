"""Requests with different adapters in one batch: each gets what it gets alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml
from pyggml import Completion
from pyggml.gguf import GGMLType

TYPES = (GGMLType.F16, GGMLType.F32, GGMLType.BF16, GGMLType.F16)
#: Adapters of sixteen requests: four, mixtures of two, and none.
CHOICES: tuple[Any, ...] = ("a0", "a1", {"a2": 0.5, "a0": 1.0}, {}, "a3", {"a1": -0.5}, "a2", {})


def load(model: Path, **options: Any) -> pyggml.LLM:
    return pyggml.load(model, **{"n_ctx": 4096, "n_parallel": 16, "n_threads": 2, "device": "cpu", **options})


def with_adapters(llm: pyggml.LLM, model: Path, folder: Path) -> pyggml.LLM:
    for number, type in enumerate(TYPES):
        file = folder / f"{model.stem}-{number}.gguf"
        if not file.exists():
            lora_files.write_adapter(file, model, seed=number, rank=3 + 5 * number, type=type)
        llm.load_adapter(file, f"a{number}")
    return llm


def bits(completion: Completion) -> tuple[list[int], bytes]:
    logprobs = [token.logprob for token in completion.logprobs or ()]
    return list(completion.token_ids), np.array(logprobs).tobytes()


def ask(llm: pyggml.LLM, number: int) -> Completion:
    choice = CHOICES[number % len(CHOICES)]
    ids = prompt(number, 5 + 7 * number)
    return llm.generate(ids, adapter=choice, max_tokens=24, ignore_eos=True, logprobs=1, temperature=0.7, seed=number)


UNIFIED = [
    ("llama", "q4_k_m"),
    ("mixtral", "q8_0"),
    ("llama", "f32"),
    ("qwen3", "f16"),
    ("phi3", "bf16"),
    ("window", "q4_0"),
    ("gpt-oss", "bf16"),
    ("jamba", "f32"),
]
STREAMS = [("llama", "q4_k_m"), ("mixtral", "q8_0"), ("phi3", "bf16")]
CASES = [(*case, True) for case in UNIFIED] + [(*case, False) for case in STREAMS]


@pytest.mark.slow_except("llama-q4_k_m-unified")
@pytest.mark.parametrize(
    ("family", "ftype", "kv_unified"),
    CASES,
    ids=[f"{family}-{ftype}-{'unified' if kv_unified else 'streams'}" for family, ftype, kv_unified in CASES],
)
def test_sixteen_requests_have_the_bits_they_have_alone(
    family: str, ftype: str, kv_unified: bool, shelf: Shelf, tmp_path: Path
) -> None:
    model = shelf(family, ftype)
    with load(model, n_parallel=1, prefix_cache=False, n_threads=1) as llm:
        with_adapters(llm, shelf(family), tmp_path)
        alone = [bits(ask(llm, number)) for number in range(16)]
    assert len({str(ids) for ids, _ in alone}) > 8
    together: dict[int, tuple[list[int], bytes]] = {}
    with load(model, kv_unified=kv_unified, n_ubatch=64) as llm:
        with_adapters(llm, shelf(family), tmp_path)
        threads = [
            threading.Thread(target=lambda number=number: together.update({number: bits(ask(llm, number))}))
            for number in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        steps = llm.stats().n_decode_steps
    assert [together[number] for number in range(16)] == alone
    assert steps < 16 * 24 / 3  # they shared steps


@pytest.fixture(scope="module")
def adapted(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pyggml.LLM]:
    with load(shelf("llama")) as llm:
        yield with_adapters(llm, shelf("llama"), tmp_path_factory.mktemp("adapters"))


def test_none_is_as_without_adapters(adapted: pyggml.LLM, shelf: Shelf) -> None:
    ids = prompt(3, 40)
    with load(shelf("llama")) as plain:
        expected = plain.logits(ids).tobytes()
    assert adapted.logits(ids, adapter={}).tobytes() == expected
    assert adapted.logits(ids, adapter={"a0": 0.0}).tobytes() == expected
    assert adapted.logits(ids).tobytes() == expected
    assert adapted.logits(ids, adapter="a0").tobytes() != expected


def test_order_of_adapters_does_not_matter(adapted: pyggml.LLM) -> None:
    ids = prompt(4, 20)
    one, other = adapted.logits(ids, adapter={"a0": 1, "a1": 2}), adapted.logits(ids, adapter={"a1": 2, "a0": 1})
    assert one.tobytes() == other.tobytes()


def test_prefix_cache_is_keyed_by_content_and_scale(adapted: pyggml.LLM, shelf: Shelf, tmp_path: Path) -> None:
    ids = prompt(5, 60)

    def cached(choice: Any) -> int:
        return adapted.generate(ids, adapter=choice, max_tokens=1).cached_tokens

    adapted.reset()
    assert [cached("a0"), cached("a1"), cached({"a0": 0.5}), cached({})] == [0, 0, 0, 0]
    assert [cached("a0"), cached("a1"), cached({"a0": 0.5}), cached({})] == [59] * 4
    # another file under a name that was used, and the same file under another name
    file, same = tmp_path / "new.gguf", tmp_path / "same.gguf"
    lora_files.write_adapter(file, shelf("llama"), seed=77)
    lora_files.write_adapter(same, shelf("llama"), seed=77)
    with adapted.load_adapter(file, "swapped"):
        assert [cached("swapped"), cached("swapped")] == [0, 59]
    with adapted.load_adapter(same, "again"):
        assert cached("again") == 59
    lora_files.write_adapter(file, shelf("llama"), seed=78)
    with adapted.load_adapter(file, "swapped"):
        assert cached("swapped") == 0


@pytest.mark.slow
def test_random_schedule(adapted: pyggml.LLM, shelf: Shelf, tmp_path: Path) -> None:
    """Streams that are cancelled, completions and logits at random moments; each alone afterwards, in fewer cells."""
    rng = random.Random(1)
    asked = [
        (rng.choice(CHOICES), prompt(rng.randrange(3), rng.randrange(1, 70)), rng.randrange(1, 30), rng.random() < 0.3)
        for _ in range(30)
    ]
    found: dict[int, tuple[list[int], bool]] = {}

    def run(number: int) -> None:
        choice, ids, n, cancels = asked[number]
        with adapted.stream(ids, adapter=choice, max_tokens=n, ignore_eos=True) as stream:
            for count, _ in enumerate(stream):
                if cancels and count == n // 2:
                    break
        found[number] = list(stream.completion.token_ids), cancels

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with load(shelf("llama"), n_parallel=1, n_ctx=256, prefix_cache=False) as llm:
        with_adapters(llm, shelf("llama"), tmp_path)
        for number, (choice, ids, n, _) in enumerate(asked):
            alone = list(llm.generate(ids, adapter=choice, max_tokens=n, ignore_eos=True).token_ids)
            got, cancels = found[number]
            assert got == (alone[: len(got)] if cancels else alone)


def test_grouped_by_step(shelf: Shelf, tmp_path: Path) -> None:
    """An adapter of the embedding is upstream's: its requests take turns with the others, and all end."""
    model = shelf("llama")
    choices: list[Any] = ["e0", "e1", {"e2": 0.5}, {}, "a0", "e0", "e1", {"e0": 1, "a0": 1}]

    def tokens(llm: pyggml.LLM, number: int) -> list[int]:
        return list(llm.generate(prompt(number, 30), adapter=choices[number], max_tokens=12, ignore_eos=True).token_ids)

    with load(model) as llm:
        with_adapters(llm, model, tmp_path)
        for seed in (0, 1, 2):
            llm.load_adapter(lora_files.write_embedding_adapter(tmp_path / f"e{seed}.gguf", model, seed=seed))
        llm.generate("warm", max_tokens=1)
        alone = [tokens(llm, number) for number in range(len(choices))]
        llm.reset()
        found: dict[int, list[int]] = {}
        threads = [
            threading.Thread(target=lambda number=number: found.update({number: tokens(llm, number)}))
            for number in range(len(choices))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[number] for number in range(len(choices))] == alone
    assert len({str(each) for each in alone}) == len(choices)

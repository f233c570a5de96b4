"""Guessed tokens of requests with adapters: the same tokens and logprobs as without guesses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml

CHOICES: tuple[Any, ...] = ("a0", {}, {"a0": 0.5, "a1": 1.0}, "a1")
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes, indeed", "no, not at all"]}},
    "required": ["answer"],
}


def asked(number: int, speculative: str) -> dict[str, Any]:
    """A prompt that repeats itself, with text that is forced for some."""
    options: dict[str, Any] = {"speculative": speculative, "adapter": CHOICES[number], "logprobs": 2, "max_tokens": 24}
    if speculative != "off":
        options["num_speculative_tokens"] = 2 + number
    return options | ({"json_schema": SCHEMA} if number % 2 else {"ignore_eos": True})


def bits(completion: pyggml.Completion) -> tuple[list[int], str]:
    return list(completion.token_ids), repr(completion.logprobs)


def n_guesses(llm: pyggml.LLM) -> int:
    stats = llm.stats()
    return stats.n_drafted_forced + stats.n_drafted_lookup


@pytest.mark.parametrize("speculative", ["lookup", "forced"])
def test_guesses_change_nothing(speculative: str, shelf: Shelf, tmp_path: Path) -> None:
    model = shelf("llama")
    options: dict[str, Any] = {"n_ctx": 2048, "n_threads": 1, "device": "cpu", "speculative": "lookup"}
    with pyggml.load(model, **options, n_parallel=len(CHOICES)) as llm:
        for number in range(2):
            llm.load_adapter(lora_files.write_adapter(tmp_path / f"a{number}.gguf", model, seed=number))

        def run(number: int, mode: str) -> tuple[list[int], str]:
            return bits(llm.generate(prompt(number // 2, 8) * 4, **asked(number, mode)))

        numbers = range(len(CHOICES))
        expected = [run(number, "off") for number in numbers]
        assert len({str(ids) for ids, _ in expected}) > 2
        assert n_guesses(llm) == 0
        llm.reset()
        assert [run(number, speculative) for number in numbers] == expected
        n_alone = n_guesses(llm)
        assert n_alone > 0
        llm.reset()
        with ThreadPoolExecutor(len(CHOICES)) as pool:
            assert list(pool.map(lambda number: run(number, speculative), numbers)) == expected
        assert n_guesses(llm) > n_alone

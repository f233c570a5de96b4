"""The model that ships does what the README says of it, measured through pyggml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyggml
from pyggml import source

FACTS = [json.loads(line) for line in (Path(__file__).parent / "data" / "demo_facts.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    """The shipped model."""
    with pyggml.load(n_threads=1) as llm:
        yield llm


def ask(llm: pyggml.LLM, question: str) -> pyggml.Completion:
    prompt = llm.apply_chat_template([{"role": "user", "content": question}])
    return llm.generate(prompt, max_tokens=60)


def test_it_is_small() -> None:
    assert source.SHIPPED_MODEL.stat().st_size <= 5_000_000


def test_it_has_separate_ends_of_text_and_turn(llm: pyggml.LLM) -> None:
    vocab = llm.model.vocab
    assert vocab.eos != vocab.eot
    assert {vocab.eos, vocab.eot} <= set(llm.stop_tokens)


def test_it_answers_held_out_questions_and_ends_its_turns(llm: pyggml.LLM) -> None:
    assert len(FACTS) >= 100
    wrong, endless = [], []
    for fact in FACTS:
        completion = ask(llm, fact["question"])
        if completion.text.strip() != fact["answer"]:
            wrong.append((fact["question"], fact["answer"], completion.text))
        if completion.stop_reason != llm.model.vocab.eot:
            endless.append(fact["question"])
    assert len(wrong) <= 0.1 * len(FACTS), wrong
    assert len(endless) <= 0.01 * len(FACTS), endless


@pytest.mark.parametrize("opening", ["Once upon a time", "One day, a little", "There was a"])
def test_its_stories_end(llm: pyggml.LLM, opening: str) -> None:
    completion = llm.generate(opening, max_tokens=400)
    assert completion.stop_reason == llm.model.vocab.eos
    assert len(completion.token_ids) >= 30
    assert completion.text.rstrip().endswith((".", "!", '"'))

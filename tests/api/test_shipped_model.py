"""The shipped model reaches the figures of docs/reference/demonstration-model.md, measured through pyggml."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from support.paths import DATA

import pyggml
from pyggml import source

REFUSALS = (
    "I am only a small demonstration model, and I do not know that.",
    "I can only add and subtract whole numbers up to 20.",
)
# How sums are put in the files of held-out wordings, for numbers that the model has not learnt.
SUM_WORDINGS = ("Can you add {x} and {y}?", "What does {x} plus {y} make?", "Please compute {x} - {y}.")
HEROES = (
    "Tom", "Lily", "Anna the fox", "a girl named Sophie", "a dog called Max", "a bear named Clara", "Oliver", "Mia",
    "a dragon named Leo", "a cat called Ruby", "Jack the rabbit", "a boy called Henry", "Emma", "a robot named Tim",
)  # fmt: skip


class Asked(NamedTuple):
    """A question with the system message above it, and the one right answer."""

    question: str
    answer: str
    system: str | None = None


def held_out(name: str) -> list[Asked]:
    """Questions held out from training; tools/demo_model/held_out.py writes these files."""
    return [Asked(**json.loads(line)) for line in (DATA / f"demo_{name}.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    """The shipped model, with room to answer eight questions at a time."""
    with pyggml.load(n_threads=1, n_parallel=8) as llm:
        yield llm


def ask(
    llm: pyggml.LLM, asked: Sequence[Asked], params: pyggml.SamplingParams | None = None
) -> list[pyggml.Completion]:
    """The answer to each question, asked by itself."""
    prompts = []
    for one in asked:
        system = [] if one.system is None else [{"role": "system", "content": one.system}]
        prompts.append(llm.apply_chat_template([*system, {"role": "user", "content": one.question}]))
    return llm.generate_batch(prompts, params, max_tokens=300)


def wrong(llm: pyggml.LLM, asked: Sequence[Asked]) -> list[tuple[Asked, str]]:
    """The questions whose answer is not the right one, word for word and ended by the end of a turn."""
    return [
        (one, completion.text)
        for one, completion in zip(asked, ask(llm, asked), strict=True)
        if completion.text != one.answer or completion.stop_reason != llm.model.vocab.eot
    ]


def test_it_is_small() -> None:
    assert source.SHIPPED_MODEL.stat().st_size <= 6_000_000


def test_it_has_separate_ends_of_text_and_turn(llm: pyggml.LLM) -> None:
    vocab = llm.model.vocab
    assert vocab.eos != vocab.eot
    assert {vocab.eos, vocab.eot} <= set(llm.stop_tokens)


@pytest.mark.slow_except("facts")
@pytest.mark.parametrize("name", ["facts", "sums", "systems"])
def test_it_answers_what_training_left_out(llm: pyggml.LLM, name: str) -> None:
    """Wordings of facts and sums, and system messages that ask for one word, few words or a full sentence."""
    asked = held_out(name)
    assert len(asked) >= 300
    asked = asked[::4]
    assert len(wrong(llm, asked)) <= 0.05 * len(asked), wrong(llm, asked)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["facts", "sums", "systems"])
def test_it_answers_all_that_training_left_out(llm: pyggml.LLM, name: str) -> None:
    asked = held_out(name)
    failed = wrong(llm, asked)
    print(f"{name}: {len(asked) - len(failed)} of {len(asked)} right")
    assert len(failed) <= 0.05 * len(asked), failed


def answered(llm: pyggml.LLM, questions: Sequence[str]) -> list[tuple[str, str]]:
    """The questions that it does not turn down, with what it says instead."""
    replies = ask(llm, [Asked(question, "") for question in questions])
    failed = [(q, reply.text) for q, reply in zip(questions, replies, strict=True) if reply.text not in REFUSALS]
    print(f"{len(questions) - len(failed)} of {len(questions)} turned down")
    return failed


def test_it_turns_down_what_it_does_not_know(llm: pyggml.LLM) -> None:
    """Questions as people ask them, none of which comes from the script's templates."""
    questions = (DATA / "demo_unknown.txt").read_text("utf-8").splitlines()
    assert len(questions) == 60
    failed = answered(llm, questions)
    assert len(failed) <= 0.1 * len(questions), failed


def test_it_turns_down_sums_that_it_has_not_learnt(llm: pyggml.LLM) -> None:
    rng = random.Random(0)
    pairs = [(rng.randint(21, 99), rng.randint(0, 99)) for _ in range(60)]
    questions = [rng.choice(SUM_WORDINGS).format(x=x, y=y) for x, y in pairs]
    failed = answered(llm, questions)
    assert len(failed) <= 0.05 * len(questions), failed


def strangers(story: str, hero: str) -> set[str]:
    """The names in a story that are neither the hero's nor introduced.

    A name is a capital letter within a sentence, or at the start of one with a verb after it.
    """
    within = re.findall(r"(?<=[a-z,] )([A-Z][a-z]+)", story)
    verbs = "was|had|said|looked|wanted|could|went|never|found|felt|asked|thought|gave|saw|heard|made|learned"
    acting = re.findall(rf"(?:^|[.!?]\"? )([A-Z][a-z]+) (?:{verbs})\b", story)
    introduced = re.findall(r"(?:named|called|friend|friend was|name is) ([A-Z][a-z]+)", story)
    return {*within, *acting} - {hero, *introduced, "It", "He", "She", "They", "There", "Everyone", "Everything"}


@pytest.mark.slow
def test_names_stay_the_same_within_a_story(llm: pyggml.LLM) -> None:
    """With the sampling of chats, the hero is the requested one, and every name is introduced before it is used."""
    asked = [Asked(f"Tell me a story about {described}.", described) for described in HEROES]
    told = [
        (one.answer, completion.text)
        for seed in range(4)
        for one, completion in zip(
            asked, ask(llm, asked, pyggml.SamplingParams(temperature=0.8, top_k=40, min_p=0.05, seed=seed)), strict=True
        )
    ]
    slips = []
    for described, story in told:
        [hero] = re.findall(r"[A-Z][a-z]+", described)
        if story.count(hero) < 3 or strangers(story, hero):
            slips.append((described, story))
    print(f"{len(told) - len(slips)} of {len(told)} stories keep their names")
    assert len(slips) <= 0.1 * len(told), slips


@pytest.mark.slow_except("Once upon a time", "One day, a little", "There was a")
@pytest.mark.parametrize("opening", ["Once upon a time", "One day, a little", "There was a", "The little dog"])
def test_its_stories_end(llm: pyggml.LLM, opening: str) -> None:
    completion = llm.generate(opening, max_tokens=400)
    assert completion.stop_reason == llm.model.vocab.eos
    assert len(completion.token_ids) >= 30
    assert completion.text.rstrip().endswith((".", "!", '"'))

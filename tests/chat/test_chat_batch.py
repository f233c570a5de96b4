"""Several answers to one conversation, and many conversations."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

import pytest
from support import demo_questions

import pyggml
from pyggml import ChatCompletion, InvalidParameterError, SamplingParams

CONVERSATIONS = [[{"role": "user", "content": question}] for question in demo_questions.ANSWERS]
ANSWERS = [*demo_questions.ANSWERS.values()]
LONG = [{"role": "user", "content": f"{'The dog was happy and the cat was sad. ' * 6}What colour is the sky?"}]
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_tokens": 12, "ignore_eos": True}


def told(answers: list[Any]) -> list[tuple[list[int], str]]:
    return [(answer.token_ids, answer.message.content) for answer in answers]


def texts(answers: list[Any]) -> list[str]:
    return [answer.message.content for answer in answers]


def test_several_answers_are_those_of_single_calls(llm: pyggml.LLM) -> None:
    llm.reset()
    answers = llm.chat(LONG, n=3, **SAMPLED)
    assert [answer.cached_tokens for answer in answers] == [0] + [answers[0].prompt_tokens - 1] * 2
    singles = [llm.chat(LONG, **{**SAMPLED, "seed": 5 + index}) for index in range(3)]
    assert told(answers) == told(singles)
    assert len({answer.text for answer in answers}) == 3
    assert told(asyncio.run(llm.achat(LONG, n=3, **SAMPLED))) == told(answers)
    assert len(llm.chat(LONG, n=1, max_tokens=1)) == 1


def test_n_is_a_parameter_of_chat_only(llm: pyggml.LLM) -> None:
    for method in (llm.chat, llm.achat):
        assert inspect.signature(method).parameters["n"].default is None
    with pytest.raises(InvalidParameterError, match="n must be"):
        llm.chat(LONG, n=0)
    stream: Any = llm.stream_chat
    with pytest.raises(pyggml.UnknownParameterError, match=r"chat\(messages, n=3\)"):
        stream(LONG, n=2)


def test_conversations_are_answered_in_order(llm: pyggml.LLM) -> None:
    seen: list[tuple[int, int | None]] = []
    answers = llm.chat_batch(CONVERSATIONS * 4, progress=lambda *news: seen.append(news), max_tokens=40)
    assert texts(answers) == ANSWERS * 4
    assert seen == [(n, 24) for n in range(1, 25)]
    assert texts(asyncio.run(llm.achat_batch(iter(CONVERSATIONS), max_tokens=40))) == ANSWERS
    assert llm.chat_batch([]) == []


def test_each_conversation_has_its_parameters(llm: pyggml.LLM) -> None:
    own = [SamplingParams(max_tokens=n, temperature=1.0, seed=n) for n in range(1, 7)]
    answers = llm.chat_batch(CONVERSATIONS, params=own, ignore_eos=True)
    assert [len(answer.token_ids) for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert told(answers) == told(
        [llm.chat(c, params=p, ignore_eos=True) for c, p in zip(CONVERSATIONS, own, strict=True)]
    )
    limits = [SamplingParams(max_tokens=2), None, SamplingParams(max_tokens=4)]
    for done in (llm.generate_batch(["The dog"] * 3, limits), asyncio.run(llm.agenerate_batch(["The"] * 3, limits))):
        assert [len(each.token_ids) for each in done][::2] == [2, 4]
    with pytest.raises(InvalidParameterError, match="params is a list of 3, and there are 6 conversations"):
        llm.chat_batch(CONVERSATIONS, params=limits)
    wrong: Any = {"max_tokens": 3}
    with pytest.raises(InvalidParameterError, match="params must be SamplingParams"):
        llm.chat_batch(CONVERSATIONS, params=wrong)


def test_failures_are_returned_in_their_place(llm: pyggml.LLM) -> None:
    bad = [{"role": "user", "content": 5}]
    long = [{"role": "user", "content": "dog " * 20_000}]
    given: list[Any] = [CONVERSATIONS[0], bad, CONVERSATIONS[1], long]
    answers = llm.chat_batch(given, max_tokens=40, return_exceptions=True)
    awaited = asyncio.run(llm.achat_batch(given, max_tokens=40, return_exceptions=True))
    for found in (answers, awaited):
        assert texts([found[0], found[2]]) == ANSWERS[:2]
        assert [type(found[1]), type(found[3])] == [InvalidParameterError, pyggml.ContextOverflowError]
    with pytest.raises(InvalidParameterError, match="content") as caught:
        llm.chat_batch(given, max_tokens=40)
    if sys.version_info >= (3, 11):
        assert "conversation 1 " in caught.value.__notes__[0]
    prompts = llm.generate_batch(["The dog", "", "The cat"], max_tokens=3, return_exceptions=True)
    assert [type(each).__name__ for each in prompts] == ["Completion", "EmptyPromptError", "Completion"]
    unknown: Any = {"max_token": 3}
    with pytest.raises(pyggml.UnknownParameterError, match="max_tokens"):
        llm.chat_batch(given, return_exceptions=True, **unknown)


def test_generate_batch_answers_conversations_too(llm: pyggml.LLM) -> None:
    mixed: list[Any] = [CONVERSATIONS[0], "The dog", CONVERSATIONS[1]]
    done = llm.generate_batch(mixed, max_tokens=40)
    assert [isinstance(each, ChatCompletion) for each in done] == [True, False, True]
    assert texts([done[0], done[2]]) == ANSWERS[:2]
    assert done[1].token_ids == llm.generate("The dog", max_tokens=40).token_ids
    assert texts(asyncio.run(llm.agenerate_batch(CONVERSATIONS, max_tokens=40))) == ANSWERS


def test_the_other_parameters_of_chat_hold_for_all(llm: pyggml.LLM) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    done = llm.chat_batch([[{"role": "user", "content": "The dog"}]] * 2, chat_template=template, max_tokens=5)
    assert {each.prompt_tokens for each in done} == {len(llm.tokenize("The dog"))}

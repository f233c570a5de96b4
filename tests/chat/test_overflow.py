"""Chats that are too long for the context, and leave out their oldest turns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import pyggml
from pyggml import LLM, ContextOverflowError
from pyggml.chat.conversation import Conversation
from pyggml.chat.overflow import fitted

N_CTX = 512
SYSTEM = {"role": "system", "content": "You answer questions about dogs."}


def conversation(n_turns: int, n_chars: int = 60) -> list[dict[str, Any]]:
    turns = [
        [
            {"role": "user", "content": f"Question {i}? ".ljust(n_chars, "q")},
            {"role": "assistant", "content": f"Answer {i}. ".ljust(n_chars, "a")},
        ]
        for i in range(n_turns)
    ]
    return [SYSTEM, *(message for turn in turns for message in turn), {"role": "user", "content": "What is hot?"}]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with pyggml.load(n_ctx=N_CTX, n_threads=1, n_parallel=2) as llm:
        yield llm


def test_the_prompt_is_that_of_the_turns_that_stay(llm: LLM) -> None:
    messages = conversation(40)
    with pytest.raises(ContextOverflowError):
        llm.chat(messages, max_tokens=100)
    done = llm.chat(messages, max_tokens=100, overflow="shift", temperature=0)
    n = done.dropped_messages
    assert n > 0
    assert n % 2 == 0
    kept = [SYSTEM, *messages[1 + n :]]
    assert kept[1]["role"] == "user"
    alone = llm.chat(kept, max_tokens=100, temperature=0)
    assert (done.token_ids, done.prompt_tokens) == (alone.token_ids, alone.prompt_tokens)
    assert done.prompt_tokens + 100 <= N_CTX
    assert llm.tokenize_chat(messages, max_tokens=100, overflow="shift") == llm.tokenize_chat(kept)


def test_no_more_is_dropped_than_a_quarter_of_the_context_needs(llm: LLM) -> None:
    for n_turns in range(8, 40):
        done = llm.chat(conversation(n_turns), max_tokens=1, overflow="shift")
        if done.dropped_messages:
            assert N_CTX // 2 < done.prompt_tokens < N_CTX


def test_a_growing_chat_finds_its_prefix(llm: LLM) -> None:
    """Dropping turns in steps keeps the beginning of the prompt."""
    llm.reset()
    n_new, cuts = [], set()
    for n_turns in range(20, 60):
        done = llm.chat(conversation(n_turns), max_tokens=16, overflow="shift", temperature=0)
        cuts.add(done.dropped_messages)
        n_new.append(done.prompt_tokens - done.cached_tokens)
    assert len(cuts) > 3
    assert sum(n > N_CTX // 4 for n in n_new) <= len(cuts) + 1
    assert len(cuts) < 40 / 2


def test_a_chat_that_fits_is_whole(llm: LLM) -> None:
    messages = conversation(2)
    done = llm.chat(messages, max_tokens=20, overflow="shift", temperature=0)
    assert done.dropped_messages == 0
    assert done.token_ids == llm.chat(messages, max_tokens=20, temperature=0).token_ids
    assert llm.chat([{"role": "user", "content": "Hello"}], overflow="shift").dropped_messages == 0


@pytest.mark.parametrize("max_tokens", [-1, 8192])
def test_half_of_the_context_at_most_is_kept_free(llm: LLM, max_tokens: int) -> None:
    done = llm.chat(conversation(40), max_tokens=max_tokens, overflow="shift", temperature=0)
    assert N_CTX // 4 < done.prompt_tokens <= N_CTX // 2


def test_a_last_turn_that_is_too_long(llm: LLM) -> None:
    long = {"role": "user", "content": "word " * N_CTX}
    with pytest.raises(ContextOverflowError, match=f"the context holds only {N_CTX}"):
        llm.chat([*conversation(40), {"role": "assistant", "content": "It is."}, long], overflow="shift")


def test_every_way_to_chat(llm: LLM) -> None:
    messages = conversation(40)
    options: dict[str, Any] = {"max_tokens": 30, "overflow": "shift", "temperature": 0}

    async def in_a_loop() -> list[Any]:
        stream = llm.astream_chat(messages, **options)
        async for _ in stream:
            pass
        return [await llm.achat(messages, **options), stream.completion]

    with llm.stream_chat(messages, **options) as stream:
        streamed = stream.finish()
    batch = llm.chat_batch([messages] * 2, **options)
    several = llm.chat(messages, n=2, **options)
    found = [llm.chat(messages, **options), streamed, *batch, *several, *asyncio.run(in_a_loop())]
    assert len({(each.text, each.prompt_tokens, each.dropped_messages) for each in found}) == 1
    assert found[0].dropped_messages > 0
    assert found[0].to_dict()["dropped_messages"] == found[0].dropped_messages


def of(*roles: str, content: str = "") -> Conversation:
    messages = [{"role": role, "content": content or str(i)} for i, role in enumerate(roles)]
    return Conversation(messages, {}, "auto", False, None, False, {}, False)


def n_messages(conversation: Conversation) -> int:
    return len(conversation.messages)


@pytest.mark.parametrize(
    ("roles", "n_ctx", "kept"),
    [
        ("system user assistant user assistant user", 8, "012345"),
        ("system user assistant user assistant user", 5, "0345"),
        ("system user assistant user assistant user", 3, "05"),
        ("system user assistant user assistant user", 1, "05"),  # the last turn stays
        ("system developer user user assistant user", 4, "015"),  # a turn may begin with two messages
        ("user assistant tool assistant user assistant tool assistant user", 7, "45678"),
        ("assistant user assistant user", 3, "03"),  # a greeting stays
        ("system assistant", 1, "01"),
    ],
)
def test_which_turns_stay(roles: str, n_ctx: int, kept: str) -> None:
    found = fitted(of(*roles.split()), n_ctx, 0, n_messages)
    assert "".join(message["content"] for message in found.messages) == kept


def test_cuts_are_stable_while_a_conversation_grows() -> None:
    """A message has 25 tokens, and 140 characters with its JSON; the context has 1,000 tokens."""

    def n_tokens(each: Conversation) -> int:
        return 25 * len(each.messages)

    starts = []
    for n_turns in range(1, 200):
        messages = of(*["user", "assistant"] * n_turns, "user", content="x" * 106)
        found = fitted(messages, 1000, 200, n_tokens)
        assert n_tokens(found) <= 800
        starts.append(len(messages.messages) - len(found.messages))
    assert starts == sorted(starts)
    changes = [b - a for a, b in itertools.pairwise(starts) if b > a]
    assert len(changes) > 30
    assert {*changes} <= {6, 8}  # a quarter of the context is 1,000 characters


def test_only_what_may_fit_is_rendered() -> None:
    sizes = []

    def n_tokens(each: Conversation) -> int:
        sizes.append(sum(len(message["content"]) for message in each.messages))
        return sizes[-1] // 4

    fitted(of(*["user", "assistant"] * 2000, "user", content="x" * 3000), 1000, 100, n_tokens)
    assert len(sizes) < 20
    assert max(sizes) <= 64 * 1000

"""Actions of the users of the stress test on a model: threads in ACTIONS, coroutines in TASKS."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from soak.stress_requests import STORY, Ask, some_ask, some_prompt
from soak.stress_world import Loaded, World

import pyggml
from pyggml import LLM


@dataclass(eq=False)
class User:
    """A thread or a task with a mind of its own."""

    world: World
    rng: random.Random
    name: str

    def ask(self, loaded: Loaded) -> Ask:
        return some_ask(self.rng, loaded.llm)


def whole(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    user.world.judge(loaded, ask, loaded.llm.generate(ask.prompt, **ask.params))


def streamed(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    stream = loaded.llm.stream(ask.prompt, **ask.params)
    user.world.streams[user] = ask, stream  # for cancel_anothers
    try:
        texts = [chunk.text for chunk in stream]
    finally:
        del user.world.streams[user]
    user.world.judge(loaded, ask, stream.completion)
    if "".join(texts) != stream.completion.text:
        user.world.fault(f"the chunks of {ask} do not join to its text")


def cancel_anothers(user: User, _loaded: Loaded) -> None:
    for ask, stream in list(user.world.streams.values())[:1]:
        ask.cancelled = True
        stream.cancel()


def cancelled_halfway(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    ask.cancelled = True
    stream = loaded.llm.stream(ask.prompt, **ask.params)
    for _ in itertools.islice(stream, user.rng.choice([0, 1, 5, 20])):
        pass
    stream.cancel()
    user.world.judge(loaded, ask, stream.finish())


def dropped(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    stream = loaded.llm.stream(ask.prompt, **ask.params)
    for _ in itertools.islice(stream, user.rng.choice([0, 0, 1, 5])):
        pass


def left_by_an_error(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    with suppress(ZeroDivisionError), loaded.llm.stream(ask.prompt, **ask.params) as stream:
        for _ in stream:
            raise ZeroDivisionError


def batch(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    prompts = [some_prompt(user.rng, loaded.llm) for _ in range(user.rng.randint(0, 12))]
    answers = loaded.llm.generate_batch(prompts, **ask.params)
    if len(answers) != len(prompts):
        user.world.fault(f"{len(answers)} answers to {len(prompts)} prompts")
    for prompt, answer in zip(prompts, answers, strict=True):
        user.world.judge(loaded, Ask(prompt, ask.params, ask.well_formed, ask.repeatable), answer)


def batch_left_by_an_error(user: User, loaded: Loaded) -> None:
    prompts = [some_prompt(user.rng, loaded.llm) for _ in range(6)]
    with suppress(ZeroDivisionError):
        loaded.llm.generate_batch(prompts, max_tokens=20, progress=lambda *_: 1 // 0)


def several_of_one(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    ask.repeatable = False  # their seeds differ
    answers = loaded.llm.generate_n(ask.prompt, user.rng.randint(1, 6), **ask.params)
    for answer in answers:
        user.world.judge(loaded, ask, answer)


def chatted(user: User, loaded: Loaded) -> None:
    question = user.rng.choice(["What colour is the sky?", "How many legs has a dog?", "What is 3 and 4?"])
    ask = Ask([], {"max_tokens": user.rng.choice([1, 20, 60])}, repeatable=False)
    stream = loaded.llm.stream_chat([{"role": "user", "content": question}], **ask.params)
    content = "".join(chunk.content for chunk in stream)
    user.world.judge(loaded, ask, stream.completion)
    if content != stream.completion.message.content:
        user.world.fault(f"the chunks of a chat are {content!r}, and its message is {stream.completion.message}")


def embedding(user: User, loaded: Loaded) -> None:
    texts = [STORY[: user.rng.randint(1, len(STORY))] for _ in range(user.rng.randint(1, 5))]
    vectors = loaded.llm.embed(texts, normalize=True)
    if vectors.shape != (len(texts), loaded.llm.model.n_embd_out) or abs((vectors**2).sum(axis=1) - 1).max() > 1e-3:
        user.world.fault(f"the embeddings of {texts} are {vectors}")


def logits(user: User, loaded: Loaded) -> None:
    prompt = loaded.llm.tokenize(STORY)[: user.rng.choice([1, 5, 33, 60])]
    rows = loaded.llm.logits(prompt)
    user.world.judge_logits(loaded, prompt, rows)


def stats(user: User, loaded: Loaded) -> None:
    now = loaded.llm.stats()
    if now.n_finished > now.n_requests or now.n_running > now.n_parallel or now.n_cells_running > now.n_cells:
        user.world.fault(f"impossible numbers: {now}")


def reset(_user: User, loaded: Loaded) -> None:
    loaded.llm.reset()


def reload(user: User, _loaded: Loaded) -> None:
    user.world.reload(user.rng)
    user.world.count("reloads")


def refused(user: User, loaded: Loaded) -> None:
    """Pass unusable input, and check the error for it."""
    llm = loaded.llm
    ways: list[Callable[..., object]] = [llm.generate, llm.stream, lambda p, **kw: llm.generate_batch([p], **kw)]
    prompt, params, error = user.rng.choice(unusable(llm))
    try:
        user.rng.choice(ways)(prompt, **params)
    except error:
        user.world.count("refused")
    else:
        user.world.fault(f"not refused: {str(prompt)[:40]} {params}")


def unusable(llm: LLM) -> list[tuple[Any, dict[str, Any], type[Exception]]]:
    return [
        ([5] * (llm.n_ctx + 1), {}, pyggml.ContextOverflowError),
        ([5, -1], {}, pyggml.InvalidParameterError),
        ([5, 10**6], {}, pyggml.InvalidParameterError),
        ("", {}, pyggml.EmptyPromptError),
        ([], {}, pyggml.EmptyPromptError),
        ("Once", {"grammar": "root ::= ("}, pyggml.GrammarError),
        ("Once", {"json_schema": {"type": "nonsense"}}, pyggml.GrammarError),
        ("Once", {"temperature": float("nan")}, pyggml.InvalidParameterError),
        ("Once", {"stop_token_ids": [10**6]}, pyggml.InvalidParameterError),
        ("Once", {"no_such_thing": 1}, pyggml.InvalidParameterError),
    ]


Action = Callable[[User, Loaded], None]

ACTIONS: list[tuple[float, Action]] = [
    (10, whole),
    (8, streamed),
    (3, cancelled_halfway),
    (3, cancel_anothers),
    (3, dropped),
    (1, left_by_an_error),
    (2, batch),
    (1, batch_left_by_an_error),
    (1, several_of_one),
    (2, chatted),
    (0.3, embedding),
    (1, logits),
    (3, stats),
    (1, reset),
    (3, refused),
    (0.2, reload),
]

# --- what tasks do ---------------------------------------------------------------------------------------------


async def awaited(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    user.world.judge(loaded, ask, await loaded.llm.agenerate(ask.prompt, **ask.params))


async def streamed_to_task(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    stream = loaded.llm.astream(ask.prompt, **ask.params)
    texts = [chunk.text async for chunk in stream]
    user.world.judge(loaded, ask, stream.completion)
    if "".join(texts) != stream.completion.text:
        user.world.fault(f"the chunks of {ask} do not join to its text")


async def cancelled_task(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    task = asyncio.ensure_future(loaded.llm.agenerate(ask.prompt, **ask.params))
    await asyncio.sleep(user.rng.choice([0, 0, 0.001, 0.02, 0.2]))
    task.cancel()
    with suppress(asyncio.CancelledError):
        user.world.judge(loaded, ask, await task)


async def too_slow(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(loaded.llm.agenerate(ask.prompt, **ask.params), user.rng.choice([0.001, 0.05]))


async def dropped_by_task(user: User, loaded: Loaded) -> None:
    ask = user.ask(loaded)
    n = user.rng.choice([0, 0, 1, 5])
    async for _ in loaded.llm.astream(ask.prompt, **ask.params):
        n -= 1
        if n < 0:
            break


async def several(user: User, loaded: Loaded) -> None:
    asks = [user.ask(loaded) for _ in range(user.rng.randint(2, 8))]
    answers = await asyncio.gather(
        *(loaded.llm.agenerate(ask.prompt, **ask.params) for ask in asks), return_exceptions=True
    )
    for ask, answer in zip(asks, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        user.world.judge(loaded, ask, answer)


async def stats_by_task(user: User, loaded: Loaded) -> None:
    stats(user, loaded)


TaskAction = Callable[[User, Loaded], Awaitable[None]]

TASKS: list[tuple[float, TaskAction]] = [
    (10, awaited),
    (8, streamed_to_task),
    (4, cancelled_task),
    (2, too_slow),
    (3, dropped_by_task),
    (2, several),
    (2, stats_by_task),
]

"""Steps of event loops: each is a task, which may be cancelled wherever it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fuzz.sequences.generating import full, length, progress
from fuzz.sequences.world import PROMPTS, QUESTION, CallersError, World

Task = Callable[[World, int, int, int], Coroutine[Any, Any, None]]


async def agenerate(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("agenerate", llm, may=full(llm)):
            done = await llm.object.agenerate(PROMPTS[b % len(PROMPTS)], max_tokens=length(c), ignore_eos=True)
            world.judge(b, done.token_ids, length(c))


async def astream(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is None:
        return
    with world.attempt("astream", llm, may=(CallersError, *full(llm))):
        ids: list[int] = []
        async with llm.object.astream(PROMPTS[b % len(PROMPTS)], max_tokens=length(c), ignore_eos=True) as stream:
            async for chunk in stream:
                ids += chunk.token_ids
                if len(ids) > b % 40:
                    if c % 4 == 0:
                        raise CallersError
                    if c % 4 == 1:
                        stream.cancel()
                    if c % 4 == 2:
                        break
        world.judge(b, ids, length(c) if c % 4 == 3 else None)


async def dropped(world: World, a: int, b: int, c: int) -> None:
    """Start streams without closing them."""
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("anext(astream)", llm, may=(StopAsyncIteration, *full(llm))):
            streams = [llm.object.astream(PROMPTS[b % len(PROMPTS)], max_tokens=50, ignore_eos=True) for _ in range(3)]
            for stream in streams[: 1 + c % 3]:
                await anext(stream)


async def impatient(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("wait_for(agenerate)", llm, may=(asyncio.TimeoutError, *full(llm))):
            asked = llm.object.agenerate(PROMPTS[b % len(PROMPTS)], max_tokens=length(c), ignore_eos=True)
            world.judge(b, (await asyncio.wait_for(asked, 0.001 * (c % 30))).token_ids, length(c))


async def abatch(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is None:
        return
    wanted = [(b + i) % len(PROMPTS) for i in range(1 + c % 9)]

    def prompts() -> Iterator[str]:
        for i, prompt in enumerate(wanted):
            if i == 3 and c % 4 == 0:
                raise CallersError
            yield PROMPTS[prompt]

    with world.attempt("agenerate_batch", llm, may=(CallersError, *full(llm))):
        told = progress(world, c // 4)
        answers = await llm.object.agenerate_batch(prompts(), max_tokens=length(c), ignore_eos=True, progress=told)
        assert len(answers) == len(wanted)
        for prompt, answer in zip(wanted, answers, strict=True):
            world.judge(prompt, answer.token_ids, length(c))


async def together(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("gather", llm, may=full(llm)):
            asked = [
                llm.object.agenerate(PROMPTS[i], max_tokens=9, ignore_eos=True) for i in range(1 + c % len(PROMPTS))
            ]
            for i, done in enumerate(await asyncio.gather(*asked)):
                world.judge(i, done.token_ids, 9)


async def achat(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("achat", llm, may=full(llm)):
            assert (await llm.object.achat(QUESTION)).message.content == world.answers.content


async def aembed(world: World, a: int, b: int, c: int) -> None:
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("aembed", llm):
            assert (await llm.object.aembed(PROMPTS[0]) == world.answers.vector).all()


async def aread(world: World, a: int, b: int, c: int) -> None:
    if (engine := world.get("engine", a)) is not None:
        with world.attempt("asubmit", engine):
            request = await engine.object.asubmit(engine.facts["ids"], max_tokens=length(c), ignore_eos=True)
            if b % 3 == 0:
                request.cancel()
            world.judge(0, await request.aread_all(), None if b % 3 == 0 else length(c))


async def blocking(world: World, a: int, b: int, c: int) -> None:
    """A call that waits, made in the loop itself: unwise, and right."""
    if (llm := world.get("llm", a)) is not None:
        with world.attempt("generate in a loop", llm, may=full(llm)):
            done = llm.object.generate(PROMPTS[b % len(PROMPTS)], max_tokens=9, ignore_eos=True)
            world.judge(b, done.token_ids, 9)


TASKS: dict[str, tuple[float, Task]] = {
    "agenerate": (4, agenerate),
    "astream": (4, astream),
    "dropped": (2, dropped),
    "impatient": (2, impatient),
    "abatch": (2, abatch),
    "together": (2, together),
    "achat": (1, achat),
    "aembed": (1, aembed),
    "aread": (2, aread),
    "blocking": (0.5, blocking),
}

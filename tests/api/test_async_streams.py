"""Streams in event loops: where they start, what raises where, and all the ways to end them early."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import demo_questions
from support.event_loops import Run, fill, is_idle, n_wakers, until_async

import pyggml
from pyggml.chat import ChatParser
from pyggml.chat.types import ChatDelta
from pyggml.generation.request import READ_TOKENS

STORY = "Once upon a time"
ASKED = [{"role": "user", "content": next(iter(demo_questions.ANSWERS))}]
ANSWER = demo_questions.answers(1)[0]
ENDLESS: dict[str, Any] = {"max_tokens": 16_000, "ignore_eos": True}

AnyStream = pyggml.AsyncStream | pyggml.AsyncChatStream
Ask = Callable[[pyggml.LLM], AnyStream]


@pytest.fixture
def patient() -> Iterator[pyggml.LLM]:
    """One request at a time, one that waits, and who comes then waits for room."""
    with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, queue_full="wait", n_threads=1) as llm:
        yield llm


def test_astream_joins_to_the_whole(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        stream = llm.astream(STORY, max_tokens=60)
        chunks = [chunk async for chunk in stream]
        whole = stream.completion
        assert whole.text == "".join(chunk.text for chunk in chunks) == llm.detokenize(whole.token_ids)
        assert whole.token_ids == [token for chunk in chunks for token in chunk.token_ids]
        assert len(whole.token_ids) == 60
        assert all(chunk.finish_reason is None for chunk in chunks[:-1])
        assert chunks[-1].finish_reason == whole.finish_reason == "length"
        assert [chunk async for chunk in stream] == []

    run(main())


@pytest.mark.parametrize("stop", ["only", " a small demo", "."])
def test_stop_strings_never_leak(llm: pyggml.LLM, run: Run[None], stop: str) -> None:
    prompt, full = demo_questions.prompts(llm, 6)[5], demo_questions.answers(6)[5]
    cut = full[: full.index(stop)]

    async def main() -> None:
        shown = ""
        async with llm.astream(prompt, stop=stop) as stream:
            async for chunk in stream:
                shown += chunk.text
                assert cut.startswith(shown)
        assert shown == cut == stream.completion.text
        assert stream.completion.stop_reason == stop
        assert (await llm.agenerate(prompt, stop=stop)).text == cut

    run(main())


@pytest.mark.parametrize("how", ["aclose", "async with", "dropped", "cancel", "wait_for"])
def test_ways_to_end_early(llm: pyggml.LLM, run: Run[None], how: str) -> None:
    async def main() -> None:
        stream: pyggml.AsyncStream | None = llm.astream(STORY, max_tokens=16_000, ignore_eos=True)
        assert stream is not None
        assert (await stream.__anext__()).finish_reason is None
        if how == "aclose":
            await stream.aclose()
            await stream.aclose()
            assert [chunk async for chunk in stream] == []
        elif how == "async with":
            async with stream:
                await stream.__anext__()
            assert [chunk async for chunk in stream] == []
        elif how == "dropped":
            stream = None
        elif how == "cancel":
            threading.Thread(target=stream.cancel).start()
            assert [chunk async for chunk in stream][-1].finish_reason == "cancelled"
            assert stream.completion.finish_reason == "cancelled"
        else:
            while True:  # a chunk may be there in time
                try:
                    await asyncio.wait_for(stream.__anext__(), 1e-6)
                except asyncio.TimeoutError:
                    break
            assert [chunk async for chunk in stream] == []
        await until_async(lambda: is_idle(llm))

    run(main())


def test_dropped_in_another_thread(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        streams = [llm.astream(STORY, max_tokens=16_000, ignore_eos=True)]
        await streams[0].__anext__()
        assert n_wakers() == 1
        await asyncio.to_thread(streams.clear)
        await until_async(lambda: n_wakers() == 0 and is_idle(llm))
        assert (await llm.agenerate(STORY, max_tokens=2)).text

    run(main())


def test_closing_wakes_who_awaits(own_llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        blockers = [own_llm.astream(STORY, max_tokens=16_000, ignore_eos=True) for _ in range(2)]
        for blocker in blockers:
            await blocker.__anext__()
        waiting = own_llm.astream(STORY)
        task = asyncio.create_task(anext_or_none(waiting))
        await asyncio.sleep(0)
        with pytest.raises(pyggml.InvalidParameterError, match="one task"):
            await waiting.__anext__()
        await waiting.aclose()
        assert await task is None
        for blocker in blockers:
            await blocker.aclose()

    run(main())


async def anext_or_none(stream: pyggml.AsyncStream) -> pyggml.Chunk | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None


def test_a_stream_that_is_not_awaited_asks_for_nothing(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        before = llm.stats().n_requests
        stream = llm.astream(STORY)
        with pytest.raises(pyggml.InvalidParameterError, match="not ended"):
            _ = stream.completion
        await stream.aclose()
        assert [chunk async for chunk in stream] == []
        assert llm.stats().n_requests == before

    run(main())


@pytest.mark.slow_except("asyncio")
def test_more_tokens_than_one_read_takes(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        n = READ_TOKENS + 50
        stream = llm.astream(STORY, max_tokens=n, ignore_eos=True)
        first = await stream.__anext__()
        await until_async(lambda: is_idle(llm))
        second = await stream.__anext__()
        assert len(second.token_ids) <= READ_TOKENS
        done = await stream.finish()
        assert len(done.token_ids) == n
        assert done.text == llm.detokenize(done.token_ids)
        assert done.text.startswith(first.text + second.text)

    run(main())


def ask(llm: pyggml.LLM, **params: Any) -> pyggml.AsyncStream:
    return llm.astream(demo_questions.prompts(llm, 1)[0], **params)


def ask_chat(llm: pyggml.LLM, **params: Any) -> pyggml.AsyncChatStream:
    return llm.astream_chat(ASKED, **params)


@pytest.fixture(params=[ask, ask_chat])
def asking(request: pytest.FixtureRequest) -> Callable[..., AnyStream]:
    """Asks for a stream, of text and of chat."""
    function: Callable[..., AnyStream] = request.param
    return function


def test_it_starts_where_it_is_entered(llm: pyggml.LLM, run: Run[None], asking: Callable[..., AnyStream]) -> None:
    async def main() -> None:
        before = llm.stats()
        stream = asking(llm)
        await asyncio.sleep(0.01)
        assert llm.stats().n_requests == before.n_requests
        async with stream as entered:
            assert entered is stream
            assert llm.stats().n_requests == before.n_requests + 1
            await until_async(lambda: is_idle(llm))  # without anybody who reads
            assert llm.stats().n_generated_tokens > before.n_generated_tokens
            chunks = [chunk async for chunk in stream]
        assert "".join(chunk.text for chunk in chunks) == ANSWER
        assert llm.stats().n_requests == before.n_requests + 1

    run(main())


def test_without_entering_it_starts_at_the_first_chunk(
    llm: pyggml.LLM, run: Run[None], asking: Callable[..., AnyStream]
) -> None:
    async def main() -> None:
        before = llm.stats().n_requests
        stream = asking(llm, max_tokens=3)
        assert llm.stats().n_requests == before
        await stream.__anext__()
        assert llm.stats().n_requests == before + 1
        await stream.aclose()

    run(main())


def refused_by_the_template(llm: pyggml.LLM) -> AnyStream:
    return llm.astream_chat(ASKED, chat_template="{{ raise_exception('no system message') }}{{ messages }}")


NOT_TO_BE_SUBMITTED: dict[str, tuple[Ask, type[Exception]]] = {
    "no tokens": (lambda llm: llm.astream([]), pyggml.EmptyPromptError),
    "too many tokens": (lambda llm: llm.astream([5] * (llm.n_ctx + 1)), pyggml.ContextOverflowError),
    "far too many tokens": (lambda llm: llm.astream([5] * (llm.n_ctx + 10_000)), pyggml.ContextOverflowError),
    "too long a text": (lambda llm: llm.astream("a dog " * llm.n_ctx), pyggml.ContextOverflowError),
    "too long a chat": (
        lambda llm: llm.astream_chat([{"role": "user", "content": "a dog " * llm.n_ctx}]),
        pyggml.ContextOverflowError,
    ),
    "a zero byte": (lambda llm: llm.astream("a\0b"), pyggml.InvalidParameterError),
    "an unknown token": (lambda llm: llm.astream([10**6]), pyggml.InvalidParameterError),
    "a wrong grammar": (lambda llm: llm.astream(STORY, grammar="root ::= missing"), pyggml.GrammarError),
    "a wrong grammar in a chat": (lambda llm: llm.astream_chat(ASKED, grammar="root ::= missing"), pyggml.GrammarError),
    "a wrong schema": (lambda llm: llm.astream(STORY, json_schema="{"), pyggml.GrammarError),
    "a wrong schema in a chat": (lambda llm: llm.astream_chat(ASKED, json_schema="{"), pyggml.GrammarError),
    "no template": (lambda llm: llm.astream_chat(ASKED, chat_template="{{"), pyggml.InvalidParameterError),
    "a template that refuses": (refused_by_the_template, pyggml.InvalidParameterError),
}


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("what", NOT_TO_BE_SUBMITTED)
def test_what_cannot_be_submitted_raises_where_it_is_entered(llm: pyggml.LLM, run: Run[None], what: str) -> None:
    stream_of, error = NOT_TO_BE_SUBMITTED[what]

    async def main() -> None:
        before = n_wakers(), llm.stats().n_requests
        stream, has_entered, message = stream_of(llm), False, ""
        try:
            async with stream:
                has_entered = True
        except error as raised:
            message = str(raised)
        assert not has_entered
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            await stream_of(llm).__anext__()
        with pytest.raises(pyggml.InvalidParameterError, match="is closed"):
            await stream.__aenter__()
        assert [chunk async for chunk in stream] == []
        await until_async(lambda: n_wakers() == before[0])  # a thread that worked for us may just be letting go
        assert llm.stats().n_requests == before[1]

    run(main())


@pytest.mark.slow_except("asyncio-ask", "asyncio-ask_chat", "uvloop-ask")
def test_a_full_queue_raises_where_it_is_entered(
    narrow: pyggml.LLM, run: Run[None], asking: Callable[..., AnyStream]
) -> None:
    async def main() -> None:
        streams = fill(narrow)
        with pytest.raises(pyggml.QueueFullError):
            await asking(narrow).__aenter__()
        for stream in streams:
            stream.close()
        await until_async(lambda: is_idle(narrow))
        async with asking(narrow) as entered:
            assert (await entered.finish()).text

    run(main())


@pytest.mark.slow_except("asyncio-ask", "asyncio-ask_chat")
def test_entering_waits_for_room(patient: pyggml.LLM, run: Run[None], asking: Callable[..., AnyStream]) -> None:
    async def main() -> None:
        streams = fill(patient)
        with pytest.raises(pyggml.RequestTimeout):
            await asking(patient, timeout_s=0.05).__aenter__()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asking(patient).__aenter__(), 0.05)

        cancelled = asking(patient)
        entering = asyncio.create_task(cancelled.__aenter__())
        await asyncio.sleep(0.05)
        with pytest.raises(pyggml.InvalidParameterError, match="one task"):
            await cancelled.__aenter__()
        cancelled.cancel()
        assert await entering is cancelled
        assert [chunk.finish_reason async for chunk in cancelled] == ["cancelled"]

        waiting = asking(patient)
        entering = asyncio.create_task(waiting.__aenter__())
        await asyncio.sleep(0.05)
        assert not entering.done()
        for stream in streams:
            stream.close()
        await entering
        assert (await waiting.finish()).finish_reason == "stop"

    before = n_wakers(), patient.stats().n_requests
    run(main())
    assert is_idle(patient)
    assert (n_wakers(), patient.stats().n_requests) == (before[0], before[1] + 3)


def test_a_closed_model_is_not_entered(own_llm: pyggml.LLM, run: Run[None], asking: Callable[..., AnyStream]) -> None:
    async def main() -> None:
        stream = asking(own_llm)
        await asyncio.to_thread(own_llm.close)
        with pytest.raises(pyggml.ClosedError):
            await stream.__aenter__()

    run(main())


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.02])
@pytest.mark.parametrize("text", [STORY, STORY * 2_000], ids=["in the loop", "in a thread"])
def test_cancelling_while_it_is_entered_leaves_nothing(
    llm: pyggml.LLM, run: Run[None], text: str, after_s: float
) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(llm.astream(text, **ENDLESS).__aenter__()) for _ in range(8)]
        await asyncio.sleep(after_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        del tasks, task  # and with them the streams that were entered in time
        await until_async(lambda: is_idle(llm))

    before = n_wakers()
    run(main())
    assert is_idle(llm)
    assert n_wakers() == before


def test_leaving_without_iterating_cancels(llm: pyggml.LLM, run: Run[None], asking: Callable[..., AnyStream]) -> None:
    async def main() -> None:
        async with asking(llm, **ENDLESS) as stream:
            await until_async(lambda: llm.stats().n_running == 1)
        assert stream.completion.finish_reason == "cancelled"
        assert [chunk async for chunk in stream] == []
        await until_async(lambda: is_idle(llm))
        with pytest.raises(pyggml.InvalidParameterError, match="is closed"):
            await stream.__aenter__()

        with contextlib.suppress(KeyError):
            async with asking(llm, **ENDLESS):
                raise KeyError
        await until_async(lambda: is_idle(llm))

    run(main())


def test_entering_what_runs_goes_on(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        before = llm.stats().n_requests
        stream = ask(llm)
        text = (await stream.__anext__()).text  # which may be all of it
        async with stream:
            text += "".join([chunk.text async for chunk in stream])
        assert text == ANSWER

        twice = ask(llm)
        await twice.__aenter__()
        async with twice:
            assert (await twice.finish()).text == ANSWER
        assert llm.stats().n_requests == before + 2

    run(main())


def test_timeouts_count_from_the_entering(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        async with llm.astream(STORY, max_tokens=10**6, ignore_eos=True, timeout_s=0.1) as stream:
            await until_async(lambda: is_idle(llm))
            done = await stream.finish()
        assert done.finish_reason == "timeout"
        assert done.token_ids

    run(main())


@pytest.mark.slow_except("asyncio")
def test_the_loop_runs_while_a_stream_is_entered(llm: pyggml.LLM, run: Run[None]) -> None:
    """Tokenizing takes a good part of a second here, so a loop that were held up would not tick at all."""
    text = "Once upon a time there was a little dog. " * 50_000

    async def main() -> None:
        n_ticks, entering = 0, asyncio.create_task(llm.astream(text).__aenter__())
        while not entering.done():
            await asyncio.sleep(0.005)
            n_ticks += 1
        with pytest.raises(pyggml.ContextOverflowError):
            await entering
        assert n_ticks > 3

    run(main())


@pytest.mark.slow_except("asyncio-100-True", "uvloop-100-True")
@pytest.mark.parametrize(("n_tokens", "in_the_loop"), [(100, True), (1000, False)])
def test_a_loop_does_not_wait_while_a_long_answer_is_parsed(
    llm: pyggml.LLM, run: Run[None], monkeypatch: pytest.MonkeyPatch, n_tokens: int, in_the_loop: bool
) -> None:
    feed, threads = ChatParser.feed, set()

    def noting(parser: ChatParser, text: str, *, last: bool = False) -> ChatDelta:
        threads.add(threading.get_ident())
        return feed(parser, text, last=last)

    monkeypatch.setattr(ChatParser, "feed", noting)

    async def main() -> None:
        answer = await llm.achat(ASKED, max_tokens=n_tokens, ignore_eos=True)
        assert len(answer.token_ids) == n_tokens
        assert answer.message.content == answer.text
        assert (threads == {threading.get_ident()}) is in_the_loop

    run(main())


@pytest.mark.slow_except("asyncio")
def test_closed_while_a_long_answer_is_parsed(llm: pyggml.LLM, run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    feed, parsing, closed, parsed = ChatParser.feed, threading.Event(), threading.Event(), threading.Event()
    loop_s_thread = threading.get_ident()

    def waiting(parser: ChatParser, text: str, *, last: bool = False) -> ChatDelta:
        if threading.get_ident() == loop_s_thread:  # a beginning that was there already
            return feed(parser, text, last=last)
        parsing.set()
        closed.wait()
        delta = feed(parser, text, last=last)
        parsed.set()
        return delta

    monkeypatch.setattr(ChatParser, "feed", waiting)

    async def main() -> None:
        stream = llm.astream_chat(ASKED, max_tokens=1000, ignore_eos=True)
        task = asyncio.ensure_future(stream.finish())
        await asyncio.to_thread(parsing.wait)
        with pytest.raises(pyggml.InvalidParameterError, match="has not ended"):
            _ = stream.completion
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = stream.completion
        closed.set()
        await asyncio.to_thread(parsed.wait)
        assert stream.completion == before
        assert before.finish_reason == "cancelled"
        assert before.message.content == before.text

    try:
        run(main())
    finally:
        closed.set()

"""LLM in event loops: asyncio and, where it is installed, uvloop; several at once, closed early, and with threads."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support import demo_questions
from support.event_loops import LOOPS, Run, fill, is_idle, is_installed, n_wakers, new_loop, run_in, until, until_async

import pyggml
from pyggml.generation.event_loops import LoopWaiter
from pyggml.schema import grammar as schema_grammar

STORY = "Once upon a time"


def test_agenerate_is_generate(llm: pyggml.LLM, run: Run[pyggml.Completion]) -> None:
    for prompt, answer in zip(demo_questions.prompts(llm, 6), demo_questions.answers(6), strict=True):
        expected = llm.generate(prompt)
        done = run(llm.agenerate(prompt))
        assert done.text == expected.text == answer
        assert (done.token_ids, done.finish_reason, done.stop_reason, done.prompt_tokens) == (
            expected.token_ids,
            "stop",
            expected.stop_reason,
            len(prompt),
        )
        assert done.timings.generated_tokens == len(done.token_ids)


@pytest.mark.slow_except("asyncio")
def test_sixty_four_tasks_answer_as_if_alone(llm: pyggml.LLM, run: Run[Any]) -> None:
    async def main() -> list[pyggml.Completion]:
        return await asyncio.gather(*(llm.agenerate(prompt) for prompt in demo_questions.prompts(llm, 64)))

    assert [done.text for done in run(main())] == demo_questions.answers(64)


def test_one_descriptor_and_no_thread_for_all_tasks(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        before = n_wakers(), threading.active_count()
        tasks = [asyncio.create_task(llm.agenerate(STORY, max_tokens=30)) for _ in range(40)]
        stream = llm.astream(STORY, max_tokens=30)
        await stream.__anext__()
        assert (n_wakers(), threading.active_count()) == (before[0] + 1, before[1])
        await asyncio.gather(*tasks)
        await stream.finish()
        assert n_wakers() == before[0]

    run(main())


def test_the_next_loop_starts_anew(llm: pyggml.LLM, run: Run[pyggml.Completion]) -> None:
    run(asyncio.sleep(0))  # type: ignore[arg-type]  # the first loop of a process opens what all share
    before = n_wakers(), len(os.listdir("/dev/fd"))  # noqa: PTH208
    for _ in range(5):
        assert run(llm.agenerate(STORY, max_tokens=3)).text
    assert (n_wakers(), len(os.listdir("/dev/fd"))) == before  # noqa: PTH208


def test_a_cancelled_task_frees_its_sequence(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in llm.astream(STORY, max_tokens=16_000, ignore_eos=True):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        assert llm.stats().n_running == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async(lambda: is_idle(llm))

    run(main())


def test_a_task_that_nobody_holds_comes_to_its_end(llm: pyggml.LLM, run: Run[None]) -> None:
    """As one that waits for a socket does: the loop holds it."""

    async def main() -> None:
        answers: list[pyggml.Completion] = []

        async def ask() -> None:
            answers.append(await llm.agenerate(STORY, max_tokens=200, ignore_eos=True))

        loop = asyncio.get_running_loop()
        loop.create_task(ask())  # noqa: RUF006

        def collected() -> bool:
            gc.collect()
            return bool(answers)

        await until_async(collected)

    run(main())
    assert n_wakers() == 0


def test_collected_in_another_thread(llm: pyggml.LLM, run: Run[None]) -> None:
    """A waiter that the garbage collector frees keeps its descriptor until its loop stops watching it.

    Otherwise the next one gets the same number, and is never watched.
    """

    async def main() -> None:
        waiter = LoopWaiter()
        waiter._shared.itself = waiter._shared  # type: ignore[union-attr]  # a traceback's frames make such cycles
        del waiter
        collecting = threading.Thread(target=gc.collect)
        collecting.start()
        collecting.join()
        assert (await asyncio.wait_for(llm.agenerate(STORY, max_tokens=3), 60)).text

    run(main())
    assert n_wakers() == 0


def test_cancelled_in_the_queue(own_llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        tasks = [
            asyncio.create_task(own_llm.agenerate(STORY, max_tokens=16_000, ignore_eos=True, temperature=1.0))
            for _ in range(10)
        ]
        await until_async(lambda: own_llm.stats().n_queued == 8)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        await until_async(lambda: is_idle(own_llm))
        assert (await own_llm.agenerate(STORY, max_tokens=3)).text

    run(main())


def test_many_that_begin_at_once_let_others_run(llm: pyggml.LLM, run: Run[None]) -> None:
    """One of them begins in each round of the loop, so another task gets as many turns meanwhile."""

    async def main() -> None:
        n_before = llm.stats().n_requests
        tasks = [asyncio.create_task(llm.agenerate(STORY, max_tokens=1)) for _ in range(50)]
        n_turns = 0
        while llm.stats().n_requests < n_before + 50:
            await asyncio.sleep(0)
            n_turns += 1
        assert n_turns >= 50
        await asyncio.gather(*tasks)

    run(main())


def test_errors_come_where_they_can_be_known(llm: pyggml.LLM, run: Run[None]) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="temprature"):
        llm.astream(STORY, temprature=1)  # type: ignore[call-arg]
    with pytest.raises(pyggml.InvalidParameterError, match="top_p"):
        llm.astream(STORY, top_p=2)
    with pytest.raises(pyggml.EmptyPromptError):
        llm.astream("")

    async def main() -> None:
        before = n_wakers()
        failures: list[tuple[Awaitable[Any], type[Exception]]] = [
            (llm.astream([5] * (llm.n_ctx + 1)).__anext__(), pyggml.ContextOverflowError),
            (llm.astream([5] * (llm.n_ctx + 10_000)).__anext__(), pyggml.ContextOverflowError),
            (llm.agenerate(STORY, grammar="root ::= missing"), pyggml.GrammarError),
            (llm.agenerate(STORY, json_schema="{"), pyggml.GrammarError),
            (llm.agenerate("a\0b"), pyggml.InvalidParameterError),
            (llm.agenerate(np.array(5)), pyggml.InvalidParameterError),
            (llm.agenerate_batch(STORY), pyggml.InvalidParameterError),
            (llm.agenerate([10**6]), pyggml.InvalidParameterError),
            (llm.agenerate(""), pyggml.EmptyPromptError),
        ]
        for awaitable, error in failures:
            with pytest.raises(error):
                await awaitable
        await until_async(lambda: n_wakers() == before)  # a thread that worked for us may just be letting go
        assert (await llm.agenerate(STORY, max_tokens=2)).text

    run(main())


def test_a_grammar_holds(llm: pyggml.LLM, run: Run[Any]) -> None:
    async def main() -> list[pyggml.Completion]:
        return await asyncio.gather(
            *(llm.agenerate(STORY, grammar='root ::= "yes" | "no"', max_tokens=20) for _ in range(6)),
            llm.agenerate(STORY, json_schema={"type": "boolean"}, max_tokens=20),
        )

    *words, flag = [done.text for done in run(main())]
    assert set(words) <= {"yes", "no"}
    assert flag in ("true", "false")


@pytest.mark.slow_except("uvloop")
def test_the_loop_runs_while_a_long_text_is_tokenized(llm: pyggml.LLM, run: Run[None]) -> None:
    """Tokenizing takes a good part of a second here, so a loop that were held up would not tick at all."""
    text = "Once upon a time there was a little dog. " * 50_000

    async def main() -> None:
        n_ticks = 0

        async def tick() -> None:
            nonlocal n_ticks
            while True:
                await asyncio.sleep(0.005)
                n_ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(pyggml.ContextOverflowError):
            await llm.agenerate(text)
        ticking.cancel()
        assert n_ticks > 3

    run(main())


@pytest.mark.parametrize("method", ["agenerate", "agenerate_n", "agenerate_batch", "achat"])
def test_schemas_become_grammars_outside_the_loop(
    llm: pyggml.LLM, run: Run[None], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, threads = schema_grammar.grammar_of, set()

    def grammar_of(schema: object) -> str:
        threads.add(threading.get_ident())
        return real(schema)

    monkeypatch.setattr(schema_grammar, "grammar_of", grammar_of)
    asked: dict[str, tuple[object, ...]] = {
        "agenerate_n": (STORY, 2),
        "agenerate_batch": ([STORY, STORY],),
        "achat": ([{"role": "user", "content": STORY}],),
    }

    async def main() -> None:
        await getattr(llm, method)(*asked.get(method, (STORY,)), json_schema={"type": "boolean"})

    run(main())
    assert threads
    assert threading.get_ident() not in threads


def test_timeout_ends_with_what_there_is(llm: pyggml.LLM, run: Run[pyggml.Completion]) -> None:
    done = run(llm.agenerate(STORY, max_tokens=10**6, ignore_eos=True, timeout_s=0.05))
    assert done.finish_reason == "timeout"


def test_two_loops_and_threads_share_a_model(llm: pyggml.LLM) -> None:
    kinds = [kind for kind in LOOPS if is_installed(kind)]
    prompts = demo_questions.prompts(llm, 18)

    async def main() -> list[pyggml.Completion]:
        return await asyncio.gather(*map(llm.agenerate, prompts))

    def generate(i: int) -> list[pyggml.Completion]:
        return run_in(kinds[i % len(kinds)], main()) if i < 2 else [llm.generate(prompt) for prompt in prompts]

    with ThreadPoolExecutor(6) as pool:
        for completions in pool.map(generate, range(6)):
            assert [done.text for done in completions] == demo_questions.answers(18)
    assert n_wakers() == 0


def test_close_reaches_every_awaiter(own_llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        tasks = [
            asyncio.create_task(own_llm.agenerate(STORY, max_tokens=16_000, ignore_eos=True, temperature=1.0))
            for _ in range(6)
        ]
        await until_async(lambda: own_llm.stats().n_running == 2)
        await asyncio.to_thread(own_llm.close)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [pyggml.ClosedError] * 6
        with pytest.raises(pyggml.ClosedError):
            await own_llm.agenerate(STORY)

    run(main())
    assert n_wakers() == 0


@pytest.mark.parametrize("kind", LOOPS)
def test_a_closed_loop_that_knows_its_tasks_takes_them_along(llm: pyggml.LLM, kind: str) -> None:
    """As an application's does, which keeps its tasks and handles their exceptions."""

    class Application:
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.task = loop.create_task(llm.agenerate(STORY, max_tokens=16_000, ignore_eos=True))

        def handle(self, _loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
            """Of a task that is destroyed while it waits, which is what happens here."""

    def serve() -> None:
        loop = new_loop(kind)
        loop.set_exception_handler(Application(loop).handle)
        loop.call_later(0.05, loop.stop)
        loop.run_forever()
        assert n_wakers() == 1
        loop.close()

    serve()
    assert n_wakers() == 0
    until(lambda: is_idle(llm))


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # asyncio's, about its own tasks
def test_a_loop_closed_with_work_in_flight(llm: pyggml.LLM, kind: str) -> None:
    loop = new_loop(kind)

    async def main() -> list[object]:
        stream = llm.astream(STORY, max_tokens=16_000, ignore_eos=True)
        await stream.__anext__()
        works: list[Coroutine[Any, Any, object]] = [
            llm.agenerate(STORY, max_tokens=16_000, ignore_eos=True),
            llm.agenerate_batch([STORY] * 3, max_tokens=16_000, ignore_eos=True),
            stream.finish(),
        ]
        tasks: list[object] = [asyncio.create_task(work) for work in works]
        await asyncio.sleep(0.05)
        return tasks

    tasks = loop.run_until_complete(main())
    assert n_wakers() == 1
    loop.close()
    assert not is_idle(llm)
    tasks.clear()
    gc.collect()
    until(lambda: is_idle(llm))
    assert n_wakers() == 0
    assert run_in(kind, llm.agenerate(STORY, max_tokens=2)).text


def test_a_full_queue_raises(narrow: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        streams = fill(narrow)
        with pytest.raises(pyggml.QueueFullError, match="1"):
            await narrow.agenerate(STORY)
        for stream in streams:
            stream.close()
        await until_async(lambda: is_idle(narrow))
        assert (await narrow.agenerate(STORY, max_tokens=2)).text

    run(main())


@pytest.mark.slow_except("asyncio")
def test_a_full_queue_makes_wait(run: Run[None]) -> None:
    async def main(llm: pyggml.LLM) -> None:
        streams = fill(llm)
        with pytest.raises(pyggml.RequestTimeout, match="max_queue"):
            await llm.agenerate(STORY, timeout_s=0.05)
        waiting = llm.astream(STORY)
        task = asyncio.create_task(waiting.finish())
        await asyncio.sleep(0.01)
        waiting.cancel()
        assert (await task).finish_reason == "cancelled"
        tasks = [asyncio.create_task(llm.agenerate(STORY, max_tokens=5)) for _ in range(20)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in tasks)
        for stream in streams:
            stream.close()
        texts = {(await task).text for task in tasks}
        assert len(texts) == 1

    with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, queue_full="wait", n_threads=1) as llm:
        run(main(llm))
    assert n_wakers() == 0


def test_close_reaches_those_who_wait_for_room(run: Run[None]) -> None:
    async def main(llm: pyggml.LLM) -> None:
        streams = fill(llm)
        task = asyncio.create_task(llm.agenerate(STORY))
        await asyncio.sleep(0.01)
        await asyncio.to_thread(llm.close)
        with pytest.raises(pyggml.ClosedError):
            await task
        del streams

    with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, queue_full="wait", n_threads=1) as llm:
        run(main(llm))


def test_agenerate_batch(llm: pyggml.LLM, run: Run[Any]) -> None:
    seen: list[tuple[int, int | None]] = []
    prompts = iter(demo_questions.prompts(llm, 40))
    done = run(llm.agenerate_batch(prompts, progress=lambda *news: seen.append(news)))
    assert [completion.text for completion in done] == demo_questions.answers(40)
    assert seen == [(n, None) for n in range(1, 41)]
    assert run(llm.agenerate_batch([])) == []


def test_agenerate_batch_fails_as_a_whole(llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        prompts: list[Any] = [STORY] * 10 + [[10**6]] + [STORY] * 1000
        with pytest.raises(pyggml.InvalidParameterError) as caught:
            await llm.agenerate_batch(prompts, max_tokens=50)
        if sys.version_info >= (3, 11):
            assert "prompt 10 " in caught.value.__notes__[0]
        assert len(asyncio.all_tasks()) == 1
        await until_async(lambda: is_idle(llm))

        task = asyncio.create_task(llm.agenerate_batch([STORY] * 1000, max_tokens=50))
        await until_async(lambda: llm.stats().n_running > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1
        await until_async(lambda: is_idle(llm))

    run(main())


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "asyncio.run(main())", "loop.run_until_complete(main())"])
def test_exit_with_work_in_flight(end: str) -> None:
    code = f"""
        import asyncio, threading, time
        import pyggml

        llm = pyggml.load()
        loop = asyncio.new_event_loop()

        async def main():
            global tasks
            tasks = [asyncio.create_task(llm.agenerate("The dog", max_tokens=9000, ignore_eos=True)) for _ in range(6)]
            await asyncio.sleep(0.05)

        def in_a_daemon():
            other = asyncio.new_event_loop()
            other.run_until_complete(llm.agenerate("The dog", max_tokens=8000, ignore_eos=True))

        threading.Thread(target=in_a_daemon, daemon=True).start()
        time.sleep(0.1)
        {end}
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_import_leaves_asyncio_alone() -> None:
    code = "import sys, pyggml; assert 'asyncio' not in sys.modules; assert pyggml.AsyncStream; pyggml.nonsense"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert "AttributeError: module 'pyggml' has no attribute 'nonsense'" in done.stderr


@pytest.mark.slow_except("nonsense", "non.sense", ".")
@pytest.mark.parametrize("name", ["nonsense", "non.sense", ".", ""])
def test_what_is_not_there_is_no_attribute(name: str) -> None:
    assert not hasattr(pyggml, name)

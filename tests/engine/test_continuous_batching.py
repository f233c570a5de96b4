"""Many requests on one model from Python: computed together, reusing prefixes, and queued if there are too many."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support import demo_questions
from support.event_loops import is_idle, until

import pyggml
from pyggml import SamplingParams, lib
from pyggml.generation.request import READ_TOKENS

STORY = "Once upon a time"
LONG = "There was a little dog who lived in a red house with a big garden. " * 12


@pytest.fixture
def own_llm() -> Iterator[pyggml.LLM]:
    """A shipped model whose counters start at 0, and which the test may close."""
    with pyggml.load(n_ctx=16384, n_parallel=4, n_threads=1) as llm:
        yield llm


@pytest.fixture
def narrow() -> Iterator[pyggml.LLM]:
    """One request at a time, two that wait, and no more."""
    with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=2, n_threads=1) as llm:
        yield llm


def endless(llm: pyggml.LLM, **params: Any) -> pyggml.Stream:
    return llm.stream(STORY, max_tokens=16_000, ignore_eos=True, **params)


def impossible(llm: pyggml.LLM) -> dict[str, Any]:
    """Parameters that are found out when the first token is chosen."""
    starts_with_y = [i for i in range(llm.model.vocab.n_tokens) if llm.tokenizer.piece(i).startswith(b"y")]
    return {"grammar": 'root ::= "yes"', "logit_bias": dict.fromkeys(starts_with_y, float("-inf"))}


class TestTogether:
    """Requests share forward passes, and nothing else."""

    def test_streams_share_forward_passes(self, own_llm: pyggml.LLM) -> None:
        streams = [own_llm.stream(STORY, max_tokens=400, ignore_eos=True) for _ in range(4)]
        assert all(len(stream.finish().token_ids) == 400 for stream in streams)
        stats = own_llm.stats()
        assert stats.n_generated_tokens == 1600
        assert stats.n_decode_steps < 1000
        assert stats.tokens_per_step > 1.5
        assert (stats.n_requests, stats.n_finished) == (4, 4)
        assert stats.sample_s > 0 < stats.schedule_s < stats.decode_s

    def test_as_many_run_as_there_are_sequences(self, own_llm: pyggml.LLM) -> None:
        streams = [endless(own_llm) for _ in range(10)]
        until(lambda: own_llm.stats().n_running == 4)
        stats = own_llm.stats()
        assert (stats.n_running, stats.n_queued, stats.n_parallel) == (4, 6, 4)
        assert 0 < stats.n_cells_running <= stats.n_cells
        for stream in streams:
            stream.close()
        until(lambda: is_idle(own_llm))
        assert own_llm.stats().n_finished == 10
        assert own_llm.stats().n_cells_running == 0

    def test_threads_get_the_answers_they_would_alone(self, llm: pyggml.LLM) -> None:
        with ThreadPoolExecutor(16) as pool:
            done = pool.map(llm.generate, demo_questions.prompts(llm, 64))
            assert [completion.text for completion in done] == demo_questions.answers(64)

    def test_each_has_its_own_sampling(self, llm: pyggml.LLM) -> None:
        def say(word: str) -> str:
            return llm.generate(STORY, grammar=f'root ::= "{word}"', temperature=1.0).text

        words = ["yes", "no", "a dog", "the cat", "seven"] * 6
        with ThreadPoolExecutor(8) as pool:
            free = [llm.stream(STORY, max_tokens=60, temperature=1.0, seed=7) for _ in range(2)]
            assert list(pool.map(say, words)) == words
        assert all(len(stream.finish().token_ids) > 5 for stream in free)

    def test_one_that_ends_early_leaves_the_rest_alone(self, llm: pyggml.LLM) -> None:
        streams = [llm.stream(prompt) for prompt in demo_questions.prompts(llm, 12)]
        for stream in streams[::2]:
            next(stream)
            stream.close()
        assert [stream.finish().text for stream in streams[1::2]] == demo_questions.answers(12)[1::2]

    def test_an_error_of_one_leaves_the_rest_alone(self, llm: pyggml.LLM) -> None:
        streams = [llm.stream(prompt) for prompt in demo_questions.prompts(llm, 12)]
        with pytest.raises(pyggml.InferError, match="no token"):
            llm.generate(STORY, **impossible(llm))
        assert [stream.finish().text for stream in streams] == demo_questions.answers(12)

    def test_a_reader_that_stops_reading_stalls_nobody(self, llm: pyggml.LLM) -> None:
        unread = [llm.stream(STORY, max_tokens=400, ignore_eos=True) for _ in range(4)]
        for _ in range(3):
            assert len(llm.generate(STORY, max_tokens=20).token_ids) == 20
        until(lambda: is_idle(llm))
        assert [len(stream.finish().token_ids) for stream in unread] == [400] * 4

    def test_dropped_streams_free_their_sequences(self, llm: pyggml.LLM) -> None:
        streams = [endless(llm) for _ in range(8)]
        next(streams[0])
        streams.clear()
        until(lambda: is_idle(llm))

    def test_logits_beside_generations(self, llm: pyggml.LLM) -> None:
        alone = llm.logits(LONG)
        streams = [endless(llm) for _ in range(3)]
        together = llm.logits(LONG)
        assert abs(together - alone).max() <= 0.02 * abs(alone).max()
        for stream in streams:
            stream.close()


class TestPrefixes:
    """Cells of finished or running requests are not computed again."""

    def test_the_same_prompt_again(self, own_llm: pyggml.LLM) -> None:
        first, second = (own_llm.generate(LONG, max_tokens=8) for _ in range(2))
        assert first.cached_tokens == 0
        assert second.cached_tokens >= 0.9 * second.prompt_tokens
        assert second.cached_tokens < second.prompt_tokens  # the last one is computed for its logits
        assert second.timings.computed_tokens == second.prompt_tokens - second.cached_tokens
        stats = own_llm.stats()
        assert stats.n_cached_tokens == second.cached_tokens
        assert 0 < stats.cached_fraction < 1
        assert stats.n_cells_cached > 0

    def test_a_chat_that_grows(self, own_llm: pyggml.LLM) -> None:
        ids = own_llm.tokenize(LONG)
        for turn in range(4):
            done = own_llm.generate(ids, max_tokens=12, ignore_eos=True)
            if turn:
                assert done.cached_tokens > 0.8 * done.prompt_tokens
            ids = [*ids, *done.token_ids, *own_llm.tokenize(" And then", add_special=False)]

    def test_from_one_that_is_still_running(self, own_llm: pyggml.LLM) -> None:
        running = own_llm.stream(LONG, max_tokens=3000, ignore_eos=True)
        next(running)
        done = own_llm.generate(LONG, max_tokens=4)
        assert done.cached_tokens >= 0.9 * done.prompt_tokens
        running.close()

    def test_reset_forgets(self, own_llm: pyggml.LLM) -> None:
        own_llm.generate(LONG, max_tokens=4)
        own_llm.reset()
        until(lambda: own_llm.stats().n_cells_cached == 0)
        assert own_llm.generate(LONG, max_tokens=4).cached_tokens == 0

    def test_without_it_nothing_is_kept(self) -> None:
        with pyggml.load(prefix_cache=False, n_threads=1) as llm:
            assert [llm.generate(LONG, max_tokens=4).cached_tokens for _ in range(3)] == [0, 0, 0]
            assert llm.stats().n_cells_cached == 0


class TestReproducible:
    """``n_parallel=1, prefix_cache=False``: the same bits, whatever else is asked."""

    def test_the_same_tokens_whatever_else_is_asked(self) -> None:
        params = SamplingParams(max_tokens=120, temperature=1.3, seed=11, ignore_eos=True)
        with pyggml.load(n_parallel=1, prefix_cache=False, n_threads=1) as llm:
            alone = llm.generate(STORY, params).token_ids
            others = [llm.stream(LONG, max_tokens=30, temperature=1.0) for _ in range(3)]
            again = llm.stream(STORY, params)
            others += [llm.stream(LONG, max_tokens=30, temperature=1.0) for _ in range(3)]
            assert again.finish().token_ids == alone
            assert all(other.finish().cached_tokens == 0 for other in others)
        with pyggml.load(n_parallel=1, prefix_cache=False, n_threads=1) as llm:
            assert llm.generate(STORY, params).token_ids == alone


class TestGenerateBatch:
    """Any number of prompts, a window of them at a time."""

    def test_order_and_progress(self, llm: pyggml.LLM) -> None:
        seen: list[tuple[int, int | None]] = []
        prompts = demo_questions.prompts(llm, 60)
        done = llm.generate_batch(prompts, SamplingParams(max_tokens=30), progress=lambda *news: seen.append(news))
        assert [completion.text for completion in done] == demo_questions.answers(60)
        assert seen == [(n, 60) for n in range(1, 61)]

    def test_a_generator_is_taken_as_the_work_goes_on(self, llm: pyggml.LLM) -> None:
        n_taken = n_done = ahead = 0

        def prompts() -> Iterator[list[int]]:
            nonlocal n_taken, ahead
            for i in range(200):
                n_taken += 1
                ahead = max(ahead, n_taken - n_done)
                yield [5 + i % 7] * (1 + i % 5)

        def progress(done: int, total: int | None) -> None:
            nonlocal n_done
            assert total is None
            n_done = done

        done = llm.generate_batch(prompts(), max_tokens=2, progress=progress)
        assert [completion.prompt_tokens for completion in done] == [1 + i % 5 for i in range(200)]
        assert n_done == 200
        assert ahead <= 2 * llm.n_parallel + 1

    def test_more_tokens_than_one_read_takes(self, llm: pyggml.LLM) -> None:
        done = llm.generate_batch([STORY] * 3, max_tokens=READ_TOKENS + 100, ignore_eos=True)
        assert [len(completion.token_ids) for completion in done] == [READ_TOKENS + 100] * 3

    def test_stop_strings(self, llm: pyggml.LLM) -> None:
        done = llm.generate_batch(demo_questions.prompts(llm, 12), stop=[" is", "only"])
        cut = [answer.split(" is")[0].split("only")[0] for answer in demo_questions.answers(12)]
        assert [completion.text for completion in done] == cut

    def test_nothing_to_do(self, llm: pyggml.LLM) -> None:
        assert llm.generate_batch([]) == []
        assert [done.finish_reason for done in llm.generate_batch([STORY] * 3, max_tokens=0)] == ["length"] * 3

    def test_a_schema_for_all(self, llm: pyggml.LLM) -> None:
        done = llm.generate_batch([STORY] * 5, json_schema={"type": "boolean"}, max_tokens=10)
        assert {completion.text for completion in done} <= {"true", "false"}

    @pytest.mark.parametrize("bad", ["", "a\0b", [10**6], [5] * 100_000], ids=["empty", "NUL", "unknown id", "long"])
    def test_a_prompt_that_fails_ends_all(self, llm: pyggml.LLM, bad: Any) -> None:
        before = llm.stats().n_requests
        prompts: list[Any] = [STORY] * 20 + [bad] + [STORY] * 1000
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            llm.generate_batch(prompts, max_tokens=30)
        if sys.version_info >= (3, 11):
            assert "prompt 20 " in caught.value.__notes__[0]
        until(lambda: is_idle(llm))
        assert llm.stats().n_requests - before == 20

    def test_a_failure_while_it_runs(self, llm: pyggml.LLM) -> None:
        with pytest.raises(pyggml.InferError, match="no token"):
            llm.generate_batch([STORY] * 30, **impossible(llm))
        until(lambda: is_idle(llm))

    @pytest.mark.parametrize("whose", ["progress", "prompts"])
    def test_an_exception_of_the_callers_ends_all(self, llm: pyggml.LLM, whose: str) -> None:
        def prompts() -> Iterator[str]:
            for i in range(1000):
                if whose == "prompts" and i == 20:
                    raise KeyError("mine")
                yield STORY

        def progress(n_done: int, _total: int | None) -> None:
            if whose == "progress" and n_done == 5:
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            llm.generate_batch(prompts(), max_tokens=10, progress=progress)
        until(lambda: is_idle(llm))

    @pytest.mark.parametrize("prompts", [STORY, b"bytes", 5, None])
    def test_no_batch_at_all(self, llm: pyggml.LLM, prompts: Any) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match="list"):
            llm.generate_batch(prompts)

    @pytest.mark.parametrize("queue_full", ["raise", "wait"])
    def test_a_short_queue_is_waited_for(self, queue_full: Any) -> None:
        with pyggml.load(n_parallel=2, max_queue=1, queue_full=queue_full, n_threads=1) as llm:
            blocker = llm.stream(STORY, max_tokens=300, ignore_eos=True)
            done = llm.generate_batch([STORY] * 40, max_tokens=5, timeout_s=60)
            assert [len(completion.token_ids) for completion in done] == [5] * 40
            assert len(blocker.finish().token_ids) == 300

    def test_several_at_once(self, llm: pyggml.LLM) -> None:
        with ThreadPoolExecutor(3) as pool:
            for done in pool.map(llm.generate_batch, [demo_questions.prompts(llm, 30)] * 3):
                assert [completion.text for completion in done] == demo_questions.answers(30)

    def test_closed_meanwhile(self, own_llm: pyggml.LLM) -> None:
        with ThreadPoolExecutor(1) as pool:
            batch = pool.submit(own_llm.generate_batch, [STORY] * 5000, max_tokens=50)
            until(lambda: own_llm.stats().n_running > 0)
            own_llm.close()
            with pytest.raises(pyggml.ClosedError):
                batch.result(100)


class TestBackpressure:
    """A full queue raises at once or waits, as asked."""

    def test_raises(self, narrow: pyggml.LLM) -> None:
        running = endless(narrow)
        next(running)
        waiting = [endless(narrow) for _ in range(2)]
        with pytest.raises(pyggml.QueueFullError, match="2") as caught:
            narrow.generate(STORY)
        assert isinstance(caught.value, RuntimeError)
        with pytest.raises(pyggml.QueueFullError):
            narrow.logits(STORY)
        waiting[0].close()
        until(lambda: narrow.stats().n_queued < 2)
        waiting.append(endless(narrow))
        for stream in (running, *waiting):
            stream.close()
        until(lambda: is_idle(narrow))
        assert narrow.generate(STORY, max_tokens=2).text

    def test_waits(self) -> None:
        with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, queue_full="wait", n_threads=1) as llm:
            running = endless(llm)
            next(running)
            queued = endless(llm)
            with pytest.raises(pyggml.RequestTimeout, match="max_queue") as caught:
                llm.generate(STORY, timeout_s=0.05)
            assert isinstance(caught.value, TimeoutError)
            with ThreadPoolExecutor(8) as pool:
                answers = [pool.submit(llm.generate, STORY, max_tokens=5) for _ in range(8)]
                rows = pool.submit(llm.logits, STORY)
                time.sleep(0.05)
                assert not any(answer.done() for answer in answers)
                running.close()
                queued.close()
                assert len({answer.result(100).text for answer in answers}) == 1
                assert rows.result(100).shape[0] == len(llm.tokenize(STORY))

    def test_close_reaches_those_who_wait(self) -> None:
        with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, queue_full="wait", n_threads=1) as llm:
            running = endless(llm)
            next(running)
            queued = endless(llm)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(llm.generate, STORY)
                time.sleep(0.05)
                llm.close()
                with pytest.raises(pyggml.ClosedError):
                    waiting.result(100)
            del running, queued

    def test_nothing_is_left_of_the_wait(self) -> None:
        gc.collect()
        assert lib.pyg_live_handles(lib.PYG_HANDLE_WAKER) == 0


class TestOptions:
    """Options that load() accepts and refuses."""

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"n_parallel": 0}, "n_parallel"),
            ({"n_parallel": 257}, "n_parallel"),
            ({"n_parallel": 2.0}, "n_parallel"),
            ({"n_parallel": 8, "n_batch": 7}, "n_batch is 7 and n_parallel is 8"),
            ({"max_queue": 0}, "max_queue"),
            ({"max_queue": -1}, "max_queue"),
            ({"queue_full": "drop"}, "queue_full"),
        ],
        ids=str,
    )
    def test_refused(self, options: dict[str, Any], named: str) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match=named):
            pyggml.load(**options)

    def test_a_number_of_threads_is_obeyed(self) -> None:
        with pyggml.load(n_threads=2) as llm:
            llm.generate(STORY, max_tokens=3)
            stats = llm.stats()
            assert (stats.n_threads, stats.n_threads_batch) == (2, 2)

    def test_one_request_may_use_the_whole_context(self) -> None:
        with pyggml.load(n_ctx=256, n_parallel=4, n_threads=1) as llm:
            assert llm.stats().n_cells == 256
            done = llm.generate(STORY, max_tokens=10_000, ignore_eos=True)
            assert done.prompt_tokens + len(done.token_ids) == 256 + 1

    def test_all_of_them_finish_when_there_is_no_room_for_all(self) -> None:
        with pyggml.load(n_ctx=256, n_parallel=4, n_threads=1) as llm:
            streams = [llm.stream(STORY, max_tokens=150, ignore_eos=True) for _ in range(8)]
            done = [stream.finish() for stream in streams]
            assert [len(completion.token_ids) for completion in done] == [150] * 8
            n_preemptions = llm.stats().n_preemptions
            assert n_preemptions > 0
            assert sum(completion.timings.n_preemptions for completion in done) == n_preemptions

    def test_the_widest(self) -> None:
        with pyggml.load(n_parallel=64, n_batch=64, n_threads=1) as llm:
            done = llm.generate_batch([STORY] * 200, max_tokens=4)
            assert len({completion.text for completion in done}) == 1


@pytest.mark.slow_except("batch")
@pytest.mark.parametrize("what", ["batch", "room"])
def test_ctrl_c(what: str) -> None:
    code = f"""
        import os, signal, threading, time
        import pyggml
        from pyggml import lib

        llm = pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, queue_full="wait", n_threads=1)
        n_streams = dict(batch=0, room=2)[{what!r}]
        streams = [llm.stream("The dog", max_tokens=8000, ignore_eos=True) for _ in range(n_streams)]
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            llm.generate_batch(["The dog"] * 100_000) if {what!r} == "batch" else llm.generate("The dog")
        except KeyboardInterrupt:
            print("interrupted")
        streams.clear()
        assert llm.generate("The dog", max_tokens=2).text
        assert lib.pyg_live_handles(lib.PYG_HANDLE_WAKER) == 0
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "interrupted\n"


@pytest.mark.slow
def test_threads_come_and_go(llm: pyggml.LLM) -> None:
    """Five hundred requests from short-lived threads leave nothing behind."""
    before = [lib.pyg_live_handles(kind) for kind in (lib.PYG_HANDLE_REQUEST, lib.PYG_HANDLE_WAKER)]
    for _ in range(10):
        threads = [threading.Thread(target=llm.generate, args=(STORY,), kwargs={"max_tokens": 2}) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    gc.collect()
    after = [lib.pyg_live_handles(kind) for kind in (lib.PYG_HANDLE_REQUEST, lib.PYG_HANDLE_WAKER)]
    assert after == before

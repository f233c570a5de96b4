"""Engine and Request: the loop without LLM, for tools that bring their own tokenizer."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import demo_questions
from support.checkpoints import models
from support.event_loops import is_idle, until

import pyggml
from pyggml import Context, Engine, Model, lib
from pyggml._core import c_calls
from pyggml.schema import grammar as schema_grammar

LONG: dict[str, Any] = {"max_tokens": 100_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    """The LLM whose results an engine must equal."""
    with pyggml.load(n_threads=1, n_parallel=4) as llm:
        yield llm


@pytest.fixture(scope="module")
def prompts(llm: pyggml.LLM) -> list[list[int]]:
    """Questions that the model is sure how to answer, whoever shares its forward passes."""
    return demo_questions.prompts(llm, 6)


@pytest.fixture(scope="module")
def expected(llm: pyggml.LLM, prompts: list[list[int]]) -> list[list[int]]:
    return [llm.generate(prompt, max_tokens=40).token_ids for prompt in prompts]


def new_engine(model: Model, *, n_ctx: int = 4096, n_seq_max: int = 4, **options: Any) -> Engine:
    return Engine(Context(model, n_ctx=n_ctx, n_seq_max=n_seq_max, n_threads=1), **options)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(pyggml.SHIPPED_MODEL) as model:
        yield model


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[Engine]:
    with new_engine(model) as engine:
        yield engine


@pytest.fixture
def own_engine(model: Model) -> Iterator[Engine]:
    """An engine that the test may close."""
    with new_engine(model, n_seq_max=2) as engine:
        yield engine


class TestInThreads:
    def test_it_is_the_loop_of_the_llm(
        self, llm: pyggml.LLM, engine: Engine, prompts: list[list[int]], expected: list[list[int]]
    ) -> None:
        assert set(engine.stop_token_ids) == set(llm.stop_tokens)
        for prompt, token_ids in zip(prompts, expected, strict=True):
            request = engine.submit(prompt, max_tokens=40)
            assert [i for news in request for i in news] == token_ids
            assert request.finish_reason == "stop"
            assert request.stop_token_id in engine.stop_token_ids
            assert request.prompt_tokens == len(prompt)
            assert request.timings.generated_tokens == len(token_ids)
            assert request.read() == request.read_now() == request.read_all() == []
            again = engine.submit(np.array(prompt, np.int32), pyggml.SamplingParams(max_tokens=40))
            assert again.read_all() == token_ids

    def test_the_same_bits_alone(self, model: Model) -> None:
        with pyggml.load(n_threads=1, n_parallel=1, prefix_cache=False) as llm:
            prompt = llm.tokenize("Once upon a time")
            story = llm.generate(prompt, max_tokens=300, ignore_eos=True).token_ids
        with new_engine(model, n_seq_max=1, prefix_cache=False) as engine:
            assert engine.submit(prompt, max_tokens=300, ignore_eos=True).read_all() == story

    def test_only_streams_are_watched(
        self, llm: pyggml.LLM, engine: Engine, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The engine may delay tokens if the request is not streamed."""
        unwatched, create = [], c_calls.create

        def spy(type: str, free: Any, new: Any, *arguments: Any) -> Any:
            if new is lib.pyg_engine_submit:
                unwatched.append(arguments[-1].prefer_throughput)
            return create(type, free, new, *arguments)

        monkeypatch.setattr(c_calls, "create", spy)
        llm.generate(prompts[0], max_tokens=1)
        llm.generate_batch(prompts[:2], max_tokens=1)
        asyncio.run(llm.agenerate(prompts[0], max_tokens=1))
        list(llm.stream(prompts[0], max_tokens=1))
        engine.submit(prompts[0], max_tokens=1).read_all()
        assert unwatched == [True, True, True, True, False, False]

    def test_many_threads(self, engine: Engine, prompts: list[list[int]], expected: list[list[int]]) -> None:
        steps, generated = engine.stats().n_decode_steps, engine.stats().n_generated_tokens

        def work(n: int) -> bool:
            return engine.submit(prompts[n % 6], max_tokens=40).read_all() == expected[n % 6]

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(work, range(48)))
        stats = engine.stats()
        assert stats.n_generated_tokens - generated > 1.5 * (stats.n_decode_steps - steps)  # they shared them
        assert stats.n_parallel == engine.n_parallel == 4

    def test_parameters_mean_what_they_mean_elsewhere(
        self, llm: pyggml.LLM, engine: Engine, prompts: list[list[int]]
    ) -> None:
        each: tuple[dict[str, Any], ...] = (
            {"temperature": 0.01, "seed": 3, "top_k": 40},
            {"json_schema": {"enum": ["yes", "no"]}},
            {"grammar": 'root ::= "blue" | "green"'},
            {"stop_token_ids": [llm.generate(prompts[0]).token_ids[2]]},
        )
        for options in each:
            request, done = engine.submit(prompts[0], **options), llm.generate(prompts[0], **options)
            assert request.read_all() == done.token_ids
            assert request.finish_reason == done.finish_reason
            assert request.stop_token_id == (done.stop_reason if done.finish_reason == "stop" else None)
        json.loads(llm.detokenize(engine.submit(prompts[0], json_schema={"enum": [1, 2]}).read_all()))

    def test_prefixes_are_reused_until_reset(self, own_engine: Engine, llm: pyggml.LLM) -> None:
        prompt = llm.tokenize("Once upon a time there was a little dog who liked the sun. " * 4)
        requests = []
        for reset in (False, False, True):
            if reset:
                own_engine.reset()
            requests.append(own_engine.submit(prompt, max_tokens=2))
            requests[-1].read_all()
        assert [request.cached_tokens for request in requests] == [0, len(prompt) - 1, 0]

    def test_logprobs(self, llm: pyggml.LLM, engine: Engine, prompts: list[list[int]]) -> None:
        options: dict[str, Any] = {"logprobs": 2, "prompt_logprobs": 1}
        done = llm.generate(prompts[0], **options)
        request = engine.submit(prompts[0], **options)
        token_ids = request.read_all()
        assert done.logprobs is not None
        assert request.logprobs is not None
        assert token_ids == [each.token_id for each in request.logprobs]
        np.testing.assert_allclose(
            [each.logprob for each in request.logprobs], [each.logprob for each in done.logprobs], atol=1e-2
        )
        assert request.prompt_logprobs is not None
        assert len(request.prompt_logprobs) == len(prompts[0])
        assert engine.submit(prompts[0], max_tokens=1).logprobs is None

    def test_logits(self, llm: pyggml.LLM, engine: Engine, prompts: list[list[int]]) -> None:
        running = engine.submit(prompts[1], **LONG)
        logits = engine.logits(prompts[0])
        assert logits.shape == (len(prompts[0]), engine.n_vocab)
        np.testing.assert_allclose(logits, llm.logits(prompts[0]), atol=1e-3)
        running.cancel()

    def test_ends_of_ones_own(self, model: Model, llm: pyggml.LLM, prompts: list[list[int]]) -> None:
        third = llm.generate(prompts[0]).token_ids[2]
        with new_engine(model, stop_token_ids=[third]) as engine:
            request = engine.submit(prompts[0], max_tokens=50)
            assert len(request.read_all()) == 2
            assert (engine.stop_token_ids, request.stop_token_id) == ((third,), third)
        with new_engine(model, stop_token_ids=()) as engine:
            request = engine.submit(prompts[0], max_tokens=60)
            assert set(llm.stop_tokens) & set(request.read_all())
            assert request.finish_reason == "length"

    def test_a_time_limit(self, engine: Engine, prompts: list[list[int]]) -> None:
        request = engine.submit(prompts[0], **LONG, timeout_s=0.2)
        assert request.read_all()
        assert request.finish_reason == "timeout"


class TestEndings:
    def test_cancelled_by_another_thread(self, engine: Engine, prompts: list[list[int]]) -> None:
        request = engine.submit(prompts[0], **LONG)
        assert request.read()
        threading.Timer(0.05, request.cancel).start()
        request.read_all()
        assert request.finish_reason == "cancelled"
        until(lambda: is_idle(engine))

    def test_cancelled_in_prefill(self, model: Model) -> None:
        with new_engine(model, n_ctx=65_536, n_seq_max=1) as engine:
            prompt = np.random.default_rng(0).integers(100, 2000, engine.n_ctx - 8)
            request = engine.submit(prompt, max_tokens=1)
            until(lambda: engine.stats().n_running == 1)
            begin = time.monotonic()
            request.cancel()
            assert request.read_all() == []
            assert request.finish_reason == "cancelled"
            assert request.timings.computed_tokens < len(prompt) == request.timings.prompt_tokens
            assert time.monotonic() - begin < 30

    def test_dropped(self, engine: Engine, prompts: list[list[int]]) -> None:
        requests = [engine.submit(prompt, **LONG) for prompt in prompts]
        assert requests[0].read()
        del requests
        gc.collect()
        until(lambda: is_idle(engine))
        for token_ids in engine.submit(prompts[0], **LONG):
            assert token_ids
            break
        until(lambda: is_idle(engine))

    def test_closed_while_they_run(self, own_engine: Engine, prompts: list[list[int]]) -> None:
        requests = [own_engine.submit(prompt, **LONG) for prompt in prompts]
        with ThreadPoolExecutor(len(requests)) as pool:
            readers = [pool.submit(request.read_all) for request in requests]
            until(lambda: own_engine.stats().n_generated_tokens > 10)
            own_engine.close()
            for reader in readers:
                with pytest.raises(pyggml.ClosedError, match="engine was closed while this request was running"):
                    reader.result()
        own_engine.close()
        calls: list[Callable[[], object]] = [
            lambda: own_engine.submit(prompts[0]),
            lambda: own_engine.logits(prompts[0]),
            own_engine.stats,
            own_engine.reset,
        ]
        for call in calls:
            with pytest.raises(pyggml.ClosedError):
                call()

    def test_the_model_outlives_its_owner(self, prompts: list[list[int]]) -> None:
        with Model(pyggml.SHIPPED_MODEL) as model:
            engine = new_engine(model)
        assert engine.submit(prompts[0], max_tokens=5).read_all()
        engine.close()


class TestInALoop:
    def test_many_tasks(
        self, engine: Engine, prompts: list[list[int]], expected: list[list[int]], run: Callable[..., Any]
    ) -> None:
        threads = threading.active_count()
        wakers = lib.pyg_live_handles(lib.PYG_HANDLE_WAKER)

        async def one(n: int) -> list[int]:
            request = engine.submit(prompts[n % 6], max_tokens=40)
            if n % 2:
                return await request.aread_all()
            return [i async for news in request for i in news]

        async def main() -> list[list[int]]:
            found = asyncio.gather(*(one(n) for n in range(48)))
            await asyncio.sleep(0.01)
            assert lib.pyg_live_handles(lib.PYG_HANDLE_WAKER) <= wakers + 1
            assert threading.active_count() == threads
            return await found

        assert run(main()) == [expected[n % 6] for n in range(48)]
        gc.collect()
        assert lib.pyg_live_handles(lib.PYG_HANDLE_WAKER) == wakers

    def test_a_cancelled_task(self, engine: Engine, prompts: list[list[int]], run: Callable[..., Any]) -> None:
        async def work() -> None:
            async for _ in engine.submit(prompts[0], **LONG):
                pass

        async def main() -> None:
            task = asyncio.create_task(work())
            while not engine.stats().n_running:
                await asyncio.sleep(0.002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            gc.collect()

        run(main())
        until(lambda: is_idle(engine))

    def test_new_grammars_are_compiled_outside_the_loop(
        self, engine: Engine, prompts: list[list[int]], run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, threads = schema_grammar.grammar_of, set()

        def grammar_of(schema: object) -> str:
            threads.add(threading.get_ident())
            return real(schema)

        async def main() -> list[int]:
            with pytest.raises(pyggml.GrammarError):
                await engine.asubmit(prompts[0], grammar="root ::= missing")
            request = await engine.asubmit(prompts[0], json_schema={"type": "boolean"}, max_tokens=40)
            return await request.aread_all()

        monkeypatch.setattr(schema_grammar, "grammar_of", grammar_of)
        answer = engine.model.vocab.detokenize(run(main()))
        assert answer in ("true", "false")
        assert threads
        assert threading.get_ident() not in threads

    def test_cancelled_while_it_is_submitted(
        self, engine: Engine, prompts: list[list[int]], run: Callable[..., Any]
    ) -> None:
        async def main() -> None:
            for _ in range(20):
                task = asyncio.create_task(engine.asubmit(prompts[0], **LONG))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        run(main())
        until(lambda: is_idle(engine))

    def test_a_wait_that_is_given_up_loses_nothing(
        self, own_engine: Engine, prompts: list[list[int]], expected: list[list[int]], run: Callable[..., Any]
    ) -> None:
        async def main() -> list[int]:
            fill = [own_engine.submit(prompts[1], **LONG) for _ in range(2)]
            request = own_engine.submit(prompts[0], max_tokens=40)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(request.aread(), 0.05)  # it is still in the queue
            for each in fill:
                each.cancel()
            return await request.aread_all()

        assert run(main()) == expected[0]

    def test_a_deadline_in_the_queue(
        self, own_engine: Engine, prompts: list[list[int]], run: Callable[..., Any]
    ) -> None:
        async def main() -> None:
            fill = [own_engine.submit(prompts[1], **LONG) for _ in range(2)]
            request = own_engine.submit(prompts[0], timeout_s=0.1)
            assert await asyncio.wait_for(request.aread_all(), 60) == []
            assert request.finish_reason == "timeout"
            for each in fill:
                each.cancel()

        run(main())

    def test_closed_while_they_wait(
        self, own_engine: Engine, prompts: list[list[int]], run: Callable[..., Any]
    ) -> None:
        async def main() -> None:
            tasks = [asyncio.create_task(own_engine.submit(prompt, **LONG).aread_all()) for prompt in prompts]
            await asyncio.sleep(0.05)
            await asyncio.to_thread(own_engine.close)
            for found in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(found, pyggml.ClosedError)

        run(main())

    def test_read_in_a_thread_though_submitted_in_a_loop(
        self, engine: Engine, prompts: list[list[int]], expected: list[list[int]], run: Callable[..., Any]
    ) -> None:
        async def main() -> tuple[list[int], list[int]]:
            first, second = (engine.submit(prompts[0], max_tokens=40) for _ in range(2))
            return first.read_all(), await asyncio.to_thread(second.read_all)

        assert run(main()) == (expected[0], expected[0])


class TestMisuse:
    def test_contexts_that_cannot_be_taken(self, model: Model, bert: Model, prompts: list[list[int]]) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match="a Context was expected, not Model"):
            Engine(model)  # type: ignore[arg-type]
        with Context(bert, n_ctx=256, embeddings=True) as context:
            with pytest.raises(pyggml.UnsupportedArchitectureError, match="does not generate"):
                Engine(context, stop_token_ids=())
            assert context.n_ctx  # still the caller's
        with Context(model, n_ctx=256, n_threads=1) as context:
            context.decode(prompts[0])
            with pytest.raises(pyggml.InvalidParameterError, match=r"already decoded.*memory_clear\(\)"):
                Engine(context)
            wrong: tuple[dict[str, Any], ...] = (
                {"n_ctx": 100_000},
                {"n_ctx": 0},
                {"max_queue": 0},
                {"stop_token_ids": [-1]},
            )
            for options in wrong:
                context.memory_clear()
                with pytest.raises(pyggml.InvalidParameterError):
                    Engine(context, **options)
            engine = Engine(context)
            with pytest.raises(pyggml.ClosedError):
                context.decode(prompts[0])
            with pytest.raises(pyggml.ClosedError):
                Engine(context)
            assert engine.submit(prompts[0], max_tokens=3).read_all()
            engine.close()
        with (
            Context(model, n_ctx=512, n_seq_max=2, kv_unified=False, n_threads=1) as context,
            pytest.raises(pyggml.InvalidParameterError, match="kv_unified"),
        ):
            Engine(context)

    def test_windows_in_several_micro_batches(self, tmp_path: Path) -> None:
        with Model(models.write_gemma2(tmp_path / "windows.gguf")) as model:
            few: dict[str, Any] = {"n_ctx": 512, "n_seq_max": 16, "n_threads": 1, "kv_unified": True}
            with (
                Context(model, **few, n_ubatch=8) as context,
                pytest.raises(pyggml.InvalidParameterError, match=r"n_ubatch is 8, and 16 sequences.* n_ubatch=16"),
            ):
                Engine(context)
            Engine(Context(model, **few, n_ubatch=16), stop_token_ids=()).close()

    def test_a_model_without_an_end(self, tmp_path: Path, tiny_path: Path) -> None:
        facts = {key: value for key, value in models.metadata_of(tiny_path).items() if not key.startswith("tokenizer.")}
        facts |= {"tokenizer.ggml.model": "no_vocab", "llama.vocab_size": models.N_BYTE_VOCAB}
        path = models.write(tmp_path / "m.gguf", facts, models.llama_weights())
        with Model(path) as model:
            with Context(model, n_ctx=256, n_threads=1) as context, pytest.raises(pyggml.TokenizerError, match="stop"):
                Engine(context)
            with Engine(Context(model, n_ctx=256, n_threads=1), stop_token_ids=()) as engine:
                assert len(engine.submit([1, 2, 3], max_tokens=5).read_all()) == 5

    @pytest.mark.parametrize(
        ("prompt", "options", "error", "words"),
        [
            ("a text", {}, pyggml.InvalidParameterError, "token ids, not text"),
            ([], {}, pyggml.EmptyPromptError, "no tokens"),
            ([10**6], {}, pyggml.InvalidParameterError, "1000000 at index 0 is outside the vocabulary"),
            ([1.5], {}, pyggml.InvalidParameterError, "integers"),
            ([5] * 5000, {}, pyggml.ContextOverflowError, "5000 tokens"),
            ([5], {"stop": ["x"]}, pyggml.InvalidParameterError, "no tokenizer.*stop_token_ids"),
            ([5], {"temprature": 1}, pyggml.InvalidParameterError, "no parameter 'temprature'.*'temperature'"),
            ([5], {"params": 7}, pyggml.InvalidParameterError, "params must be SamplingParams"),
            ([5], {"grammar": "root ::= missing"}, pyggml.GrammarError, "grammar"),
        ],
    )
    def test_requests_that_cannot_be(
        self, engine: Engine, prompt: Any, options: dict[str, Any], error: type[Exception], words: str
    ) -> None:
        with pytest.raises(error, match=words):
            engine.submit(prompt, **options)

    def test_a_full_queue(self, model: Model, prompts: list[list[int]]) -> None:
        with new_engine(model, n_seq_max=1, max_queue=1) as engine:
            running = engine.submit(prompts[0], **LONG)
            assert running.read()
            waiting = engine.submit(prompts[0], max_tokens=3)
            with pytest.raises(pyggml.QueueFullError):
                engine.submit(prompts[0])
            threading.Timer(0.05, running.cancel).start()
            late = engine.when_there_is_room(lambda: engine.submit(prompts[0], max_tokens=3))
            assert late.read_all() == waiting.read_all()

    def test_two_readers(self, own_engine: Engine, prompts: list[list[int]]) -> None:
        fill = [own_engine.submit(prompts[1], **LONG) for _ in range(2)]
        request = own_engine.submit(prompts[0], max_tokens=40)  # waits in the queue
        reader = threading.Thread(target=request.read)
        reader.start()
        until(request._reader.locked)
        with pytest.raises(pyggml.InvalidParameterError, match="one reader at a time"):
            request.read()
        with pytest.raises(pyggml.InvalidParameterError, match="one reader at a time"):
            request.read_now()
        for each in fill:
            each.cancel()
        reader.join()

    def test_awaited_elsewhere(self, engine: Engine, prompts: list[list[int]]) -> None:
        request = engine.submit(prompts[0], **LONG)

        async def read() -> None:
            while await request.aread():
                pass

        with pytest.raises(pyggml.InvalidParameterError, match="not submitted in this event loop"):
            asyncio.run(read())
        request.cancel()

"""Texts of many callers in shared passes: the same bits as alone, and no waiting for bulk calls."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models

import pyggml
from pyggml.generation.embedding.job import Job

TEXTS = [f"{'word ' * (n * 7 % 60)}number {n}" for n in range(60)]
BULK = [f"{'some words of a bulk call ' * 8}{n}" for n in range(600)]


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["here", "isolated"])
def encoder(request: pytest.FixtureRequest, bert_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(bert_path, isolate=request.param) as llm:
        llm.embed("makes the context, which is not any test's own")
        yield llm


def jobs_of(llm: pyggml.LLM, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that are submitted from now on."""
    jobs: list[Job] = []
    submit = llm._embedder.queue.submit

    def watch(job: Job) -> None:
        jobs.append(job)
        submit(job)

    monkeypatch.setattr(llm._embedder.queue, "submit", watch)
    return jobs


def beside_bulk(llm: pyggml.LLM, work: Callable[[], Any], n_bulk: int = 3) -> Any:
    """Do something while bulk calls run, from their first pass on."""
    vectors: list[Any] = []
    threads = [threading.Thread(target=lambda: vectors.append(llm.embed(BULK))) for _ in range(n_bulk)]
    before = llm._embedder.queue.n_passes
    for thread in threads:
        thread.start()
    while llm._embedder.queue.n_passes == before:
        time.sleep(0.0005)
    result = work()
    assert any(thread.is_alive() for thread in threads), "bulk calls should still run"
    for thread in threads:
        thread.join()
    assert len({each.tobytes() for each in vectors}) == 1
    return result


def test_the_same_bits_as_alone(encoder: pyggml.LLM) -> None:
    alone = np.stack([encoder.embed(text) for text in TEXTS])
    np.testing.assert_array_equal(encoder.embed(TEXTS), alone)
    found = beside_bulk(encoder, lambda: np.stack([encoder.embed(text) for text in TEXTS[:20]]))
    np.testing.assert_array_equal(found, alone[:20])


def test_each_kind_of_pooling_in_one_pass(encoder: pyggml.LLM) -> None:
    kinds: list[Any] = ["mean", "cls", "last", "max", "none", "weighted_mean"]
    alone = [encoder.embed(TEXTS[5], pooling=kind) for kind in kinds]

    async def main() -> list[Any]:
        return await asyncio.gather(*(encoder.aembed(TEXTS[5], pooling=kind) for kind in kinds * 5))

    for found, expected in zip(asyncio.run(main()), alone * 5, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_single_text_waits_for_one_pass_at_most(encoder: pyggml.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(encoder, monkeypatch)
    beside_bulk(encoder, lambda: [encoder.embed(text) for text in TEXTS[:30]])
    single = [job for job in jobs if len(job.results) == 1]
    assert len(single) == 30
    # It arrives while a pass is computed, and is in the next one.
    assert [job.n_passes_missed for job in single] == [0] * 30


def test_a_single_coroutine_waits_for_one_pass_at_most(encoder: pyggml.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(encoder, monkeypatch)

    async def main() -> None:
        bulk = [asyncio.create_task(encoder.aembed(BULK)) for _ in range(3)]
        while len(jobs) < 3:
            await asyncio.sleep(0.001)
        for text in TEXTS[:10]:
            await encoder.aembed(text)
        assert not any(task.done() for task in bulk)
        for task in bulk:
            task.cancel()
        await asyncio.gather(*bulk, return_exceptions=True)

    asyncio.run(main())
    assert [job.n_passes_missed for job in jobs if len(job.results) == 1] == [0] * 10


def test_passes_texts_and_tokens_are_counted(encoder: pyggml.LLM) -> None:
    before, request = encoder.embedding_stats(), encoder.embedding_request(TEXTS)
    request.run()
    after = encoder.embedding_stats()
    assert after.n_passes > before.n_passes
    assert after.n_texts - before.n_texts == len(TEXTS)
    assert after.n_tokens - before.n_tokens == request.n_tokens
    assert after.n_waiting == 0


def test_callers_share_passes(encoder: pyggml.LLM) -> None:
    queue = encoder._embedder.queue

    async def main() -> None:
        await asyncio.gather(*(encoder.aembed(text) for text in TEXTS))

    before = queue.n_passes
    asyncio.run(main())
    assert queue.n_passes - before < len(TEXTS) - 10


def test_a_cancelled_call_leaves_the_queue(encoder: pyggml.LLM) -> None:
    async def main() -> None:
        task = asyncio.create_task(encoder.aembed(BULK * 20))
        while encoder._embedder.queue.n_passes == before:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not encoder._embedder.queue._waiting
        await encoder.aembed("hello")

    before = encoder._embedder.queue.n_passes
    asyncio.run(main())
    assert encoder._embedder.queue.n_passes - before < 100  # of more than a thousand


def test_closing_fails_all_that_wait(bert_path: Path) -> None:
    llm = pyggml.load(bert_path, n_threads=1)
    errors: list[Exception] = []

    def work() -> None:
        try:
            llm.embed(BULK * 10)
        except pyggml.ClosedError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while llm._embedder.queue.n_passes == 0:
        time.sleep(0.0005)
    llm.close()
    for thread in threads:
        thread.join()
    assert len(errors) == len({id(error) for error in errors}) == 4


def test_a_failed_pass_fails_its_own_jobs_only(bert_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for a long text may be missing, while there is enough for the others in its pass."""
    with pyggml.load(bert_path, n_threads=1) as llm:
        llm.embed("hello")
        encoder = llm._embedder.queue._encoders["pooled"]
        outputs = encoder.outputs

        def limited(parts: Any, adapters: Any) -> Any:
            if sum(len(part.texts.ids) for part in parts) > 100:
                raise pyggml.OutOfMemoryError("there is no memory for so many", 100, 10)
            return outputs(parts, adapters)

        monkeypatch.setattr(encoder, "outputs", limited)

        async def main() -> list[Any]:
            texts = ["hello", "word " * 150, "world", "words"]
            return await asyncio.gather(*map(llm.aembed, texts), return_exceptions=True)

        first, long, *others = asyncio.run(main())
        assert isinstance(long, pyggml.OutOfMemoryError)
        assert (long.required_bytes, long.available_bytes) == (100, 10)
        np.testing.assert_array_equal(first, llm.embed("hello"))
        assert all(isinstance(each, np.ndarray) for each in others)


def test_pairs_and_texts_take_turns(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = models.write_bert(model_dir / "ranker-of-passes.gguf", seed=3, ranks=True)
    with pyggml.load(path, n_threads=1) as llm:
        alone = llm.rerank("what?", TEXTS[:3]), llm.embed(TEXTS[0])
        jobs = jobs_of(llm, monkeypatch)
        scores, vector = beside_bulk(llm, lambda: (llm.rerank("what?", TEXTS[:3]), llm.embed(TEXTS[0])))
        np.testing.assert_array_equal(scores, alone[0])
        np.testing.assert_array_equal(vector, alone[1])
        assert max(job.n_passes_missed for job in jobs if len(job.results) <= 3) <= 1


PROGRAM = """
import sys, threading, pyggml

llm = pyggml.load(sys.argv[1], n_threads=1)
llm.embed("makes the context")
main = threading.main_thread()

def afterwards():
    main.join()
    print(llm.embed(["a", "b"]).shape, llm.embed("c").shape)

def forever():
    while True:
        llm.embed(["some words"] * 5000)

threading.Thread(target=afterwards).start()
threading.Thread(target=forever, daemon=True).start()
"""


def test_threads_that_outlive_the_main_thread(bert_path: Path) -> None:
    """They embed until they end; those that are daemons do not keep the process from exiting."""
    command = [sys.executable, "-c", PROGRAM, str(bert_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, f"(2, {models.N_EMBD}) ({models.N_EMBD},)\n"), done.stderr

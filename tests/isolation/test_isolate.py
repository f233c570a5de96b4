"""load(isolate=True): results equal those of an engine in this process, and a crash ends only the engine's process."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api.test_async import (
    test_a_cancelled_task_frees_its_sequence,  # noqa: F401 - these run here with the fixtures below
    test_a_full_queue_raises,  # noqa: F401
    test_agenerate_batch_fails_as_a_whole,  # noqa: F401
    test_close_reaches_every_awaiter,  # noqa: F401
    test_one_descriptor_and_no_thread_for_all_tasks,  # noqa: F401
    test_timeout_ends_with_what_there_is,  # noqa: F401
)
from api.test_async_streams import (
    test_more_tokens_than_one_read_takes,  # noqa: F401
    test_stop_strings_never_leak,  # noqa: F401
)
from api.test_generate_n import (
    test_a_schema_is_worked_out_once,  # noqa: F401
)
from support.event_loops import Run, run_in, until

import pyggml
from pyggml import SamplingParams
from pyggml.generation.pending_request import PendingRequest
from pyggml.isolation import protocol

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=16384, n_parallel=8, n_threads=1, isolate=True) as llm:
        yield llm


@pytest.fixture
def run() -> Run[Any]:
    """Runs a coroutine; one kind of loop will do, as they differ where the requests are the same."""
    return lambda main: run_in("asyncio", main)


@pytest.fixture
def own_llm() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=16384, n_parallel=2, n_threads=1, isolate=True) as llm:
        yield llm


@pytest.fixture
def narrow() -> Iterator[pyggml.LLM]:
    with pyggml.load(n_ctx=16384, n_parallel=1, max_queue=1, n_threads=1, isolate=True) as llm:
        yield llm


def engines() -> list[int]:
    """The processes of engines that this process has started, by their ids."""
    found: list[int] = []
    if sys.platform != "linux":
        return found
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (pid := int(entry.name)) and _parent_of(pid) == os.getpid():
            found += [pid] * (b"pyggml.isolation.worker" in _read(f"/proc/{pid}/cmdline"))
    return sorted(found)


def _parent_of(pid: int) -> int:
    words = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(words[1]) if words else 0


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def pid_of(llm: pyggml.LLM) -> int:
    assert llm._isolated is not None
    return llm._isolated.process().pid


def is_gone(pid: int) -> bool:
    return not _read(f"/proc/{pid}/cmdline")


# --- the same answers ---------------------------------------------------------------------------------------------

ASKED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "a seed": {"temperature": 0.9, "top_p": 0.9, "seed": 7},
    "penalties": {"repeat_penalty": 1.3, "presence_penalty": 0.5, "temperature": 0.7, "seed": 3},
    "samplers": {"samplers": ["top_k", "temperature"], "top_k": 5, "temperature": 1.5, "seed": 1},
    "mirostat": {"mirostat": 2, "temperature": 0.8, "seed": 4},
    "dry": {"dry_multiplier": 0.8, "dry_sequence_breakers": ["\n", "."]},
    "a stop string": {"stop": ["village", "lived"]},
    "stop tokens": {"stop_token_ids": [16]},
    "past the end": {"ignore_eos": True, "max_tokens": 120},
    "a bias": {"logit_bias": {14: -100.0, 318: 2.5}},
    "logprobs": {"logprobs": 3, "prompt_logprobs": 2},
    "limits": {"bad_words": ["village", [16]], "min_tokens": 30, "allowed_token_ids": [*range(3, 400)]},
    "labels": {"choices": ["A", "B"], "logprobs": 4, "logprobs_mode": "processed_logprobs"},
    "a grammar": {"grammar": 'root ::= "a" [b-d]{3,9} "."'},
    "a schema": {"json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "nothing": {"max_tokens": 0},
}


def untimed(completion: pyggml.Completion) -> pyggml.Completion:
    """Without what differs from run to run; how many tokens come after a stop string is one of these."""
    timings = replace(completion.timings, queue_s=0, prefill_s=0, decode_s=0, n_drafted_forced=0, n_drafted_lookup=0)
    timings = replace(timings, n_accepted_forced=0, n_accepted_lookup=0)
    if isinstance(completion.stop_reason, str):
        timings = replace(timings, generated_tokens=0)
    return replace(completion, timings=timings)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[pyggml.LLM, pyggml.LLM]]:
    """One in this process and one that is isolated, in which prompts are computed as a whole."""
    options: dict[str, Any] = {"n_parallel": 1, "n_threads": 1, "prefix_cache": False}
    with pyggml.load(**options) as here, pyggml.load(isolate=True, **options) as there:
        here.embed("The context for embeddings is kept.")
        yield here, there


@pytest.mark.parametrize("what", ASKED)
def test_the_same_answer(pair: tuple[pyggml.LLM, pyggml.LLM], what: str) -> None:
    asked = {"max_tokens": 40} | ASKED[what]
    here, there = (llm.generate("Once upon a time, there was a", **asked) for llm in pair)
    assert untimed(here) == untimed(there)
    assert there.timings.prefill_s > 0
    with pair[1].stream("Once upon a time, there was a", **asked) as stream:
        assert "".join(chunk.text for chunk in stream) == here.text
    assert untimed(stream.completion) == untimed(here)


def test_the_same_of_everything_else(pair: tuple[pyggml.LLM, pyggml.LLM]) -> None:
    here, there = pair
    question = [{"role": "user", "content": "What colour is the sky?"}]
    assert here.chat(question).message == there.chat(question).message
    assert here.apply_chat_template(question) == there.apply_chat_template(question)
    assert here.tokenize("A cat.") == there.tokenize("A cat.")
    assert (here.stop_tokens, here.metadata, here.family) == (there.stop_tokens, there.metadata, there.family)
    assert (here.n_ctx, here.source, repr(here)) == (there.n_ctx, there.source, repr(there))
    assert [replace(each, available_bytes=0) for each in here.memory] == [
        replace(each, available_bytes=0) for each in there.memory
    ]
    for name in ("desc", "n_params", "size_bytes", "n_layer", "n_head_kv", "n_embd", "is_causal", "ftype"):
        assert getattr(here.model, name) == getattr(there.model, name)
    assert np.array_equal(here.logits("The sky is blue."), there.logits("The sky is blue."))
    texts = ["The sky is blue.", "A", "Once upon a time, there was a little cat."]
    assert np.array_equal(here.embed(texts, normalize=True), there.embed(texts, normalize=True))
    for ask in (
        lambda llm: llm.generate_n("There was a little dog", 3, max_tokens=8, temperature=1.0, seed=1),
        lambda llm: llm.generate_batch(["A cat", "A dog", "A pig"] * 3, max_tokens=8),
        lambda llm: [asyncio.run(llm.agenerate("A cow", max_tokens=8))],
    ):
        assert [untimed(each) for each in ask(here)] == [untimed(each) for each in ask(there)]
    counted = there.stats()
    assert (counted.n_requests, counted.n_running) == (counted.n_finished, 0)
    there.reset()


@pytest.mark.slow
def test_an_encoder(bert_path: Path) -> None:
    with pyggml.load(bert_path, n_threads=1) as here, pyggml.load(bert_path, n_threads=1, isolate=True) as there:
        assert np.array_equal(here.embed(["a b", "c"]), there.embed(["a b", "c"]))
        for llm in (here, there):
            with pytest.raises(pyggml.UnsupportedArchitectureError, match="does not generate"):
                llm.generate("a")


def test_the_same_refusals(pair: tuple[pyggml.LLM, pyggml.LLM]) -> None:
    refused: tuple[dict[str, Any], ...] = (
        {"prompt": [1] * 5000},
        {"prompt": [10**6]},
        {"prompt": []},
        {"prompt": "a", "grammar": "root ::= oops"},
        {"prompt": "a", "stop_token_ids": [10**6]},
        {"prompt": "a", "logit_bias": {10**6: 1.0}},
    )
    for asked in refused:
        raised = []
        for llm in pair:
            with pytest.raises(pyggml.InferError) as caught:
                llm.generate(**asked)
            raised.append((type(caught.value), str(caught.value)))
        assert raised[0] == raised[1]
    with pytest.raises(pyggml.ContextOverflowError, match="5000 tokens"):
        pair[1].logits([1] * 5000)
    with pytest.raises(pyggml.InvalidParameterError, match="outside the vocabulary"):
        pair[1].logits([10**6])


@pytest.mark.slow
def test_what_does_not_load_raises_what_it_raises_here(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    options: tuple[dict[str, Any], ...] = (
        {"source": broken},
        {"device": "cuda:7"},
        {"n_ctx": 2**31},
        {"source": "missing.gguf"},
    )
    for asked in options:
        raised = []
        for isolate in (False, True):
            with pytest.raises(pyggml.InferError) as caught:
                pyggml.load(isolate=isolate, **asked)
            raised.append(type(caught.value))
        assert raised[0] == raised[1]


@pytest.mark.slow
def test_progress_may_stop_the_load() -> None:
    before, seen = engines(), list[float]()
    with pyggml.load(isolate=True, n_threads=1, progress=seen.append):
        assert seen[-1] == 1
    with pytest.raises(pyggml.ModelLoadError, match="stopped by its progress callback"):
        pyggml.load(isolate=True, progress=lambda _: False)
    with pytest.raises(ZeroDivisionError):
        pyggml.load(isolate=True, progress=lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert engines() == before


def test_what_needs_the_weights_says_where_they_are(llm: pyggml.LLM) -> None:
    for use in (lambda: pyggml.Context(llm.model), lambda: llm.model.handle):
        with pytest.raises(pyggml.InvalidParameterError, match="isolate=True"):
            use()
    with pyggml.Model(llm.model.path) as model, pytest.raises(pyggml.InvalidParameterError, match="isolate"):
        pyggml.load(model, isolate=True)


# --- the end of the process ---------------------------------------------------------------------------------------


@pytest.mark.slow_except("SIGSEGV")
@linux
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_it_ends_in_the_middle_of_a_stream(how: str) -> None:
    with pyggml.load(n_threads=1, isolate=True) as llm:
        pid = pid_of(llm)
        before = llm.generate("Once upon a time", max_tokens=20)
        stream = llm.stream("Once upon a time", max_tokens=900, ignore_eos=True)
        next(stream)
        os.kill(pid, signal.Signals[how])
        with pytest.raises(pyggml.EngineError, match=f"ended by {how}.*next call starts another"):
            for _ in stream:
                pass
        assert llm.generate("Once upon a time", max_tokens=20).text == before.text
        assert llm.stats().n_restarts == 1
        after = pid_of(llm)
        assert after != pid
    assert is_gone(pid)
    assert is_gone(after)


@pytest.mark.slow
@linux
def test_it_ends_while_nobody_asks(own_llm: pyggml.LLM) -> None:
    for n in (1, 2):
        os.kill(pid_of(own_llm), signal.SIGKILL)
        until(lambda: own_llm.stats().n_parallel == 2 and own_llm._engine.is_starting)
        assert own_llm.stats().n_restarts == n - 1  # looking does not start another
        assert own_llm.generate("A", max_tokens=2).token_ids
        assert own_llm.stats().n_restarts == n
        assert own_llm.embed("A").any()


@pytest.mark.slow
@linux
def test_it_ends_while_it_loads() -> None:
    before = engines()

    def kill(_: float) -> None:
        for pid in {*engines()} - {*before}:
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(pyggml.EngineError, match=r"SIGKILL \(possibly out of memory\), while it loaded"):
        pyggml.load(isolate=True, progress=kill)
    assert engines() == before


@pytest.mark.slow
@linux
def test_its_last_words_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    with pyggml.load(n_threads=1, isolate=True) as llm:
        stream = llm.stream("Once upon a time", max_tokens=900, ignore_eos=True)
        next(stream)
        os.kill(pid_of(llm), signal.SIGABRT)
        with pytest.raises(pyggml.EngineError, match=r"SIGABRT; its last output: .*pyggml.isolation.worker"):
            stream.finish()


@pytest.mark.slow
@linux
def test_thirty_two_threads_and_an_end() -> None:
    with (
        pyggml.load(n_ctx=4096, n_threads=1, n_parallel=8, isolate=True) as llm,
        ThreadPoolExecutor(32) as pool,
    ):

        def ask(seed: int) -> str:
            try:
                return llm.generate("Once", max_tokens=60, temperature=1.0, seed=seed, ignore_eos=True).text
            except pyggml.EngineError as error:
                return type(error).__name__

        first = [pool.submit(ask, seed) for seed in range(64)]
        until(lambda: llm.stats().n_generated_tokens > 100)
        os.kill(pid_of(llm), signal.SIGKILL)
        assert any(each.result() == "EngineError" for each in first)
        again = list(pool.map(ask, range(32)))
        assert "EngineError" not in again
        assert again[5] == llm.generate("Once", max_tokens=60, temperature=1.0, seed=5, ignore_eos=True).text
        assert llm.stats().n_restarts == 1


@pytest.mark.slow
@linux
def test_the_loop_runs_while_another_is_started(own_llm: pyggml.LLM, run: Run[None]) -> None:
    async def main() -> None:
        tasks = [
            asyncio.create_task(own_llm.agenerate("Once", max_tokens=900, ignore_eos=True, seed=seed))
            for seed in range(4)
        ]
        await asyncio.sleep(0.05)
        os.kill(pid_of(own_llm), signal.SIGKILL)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, pyggml.EngineError) for each in found[:1])
        starting, n_turns = asyncio.create_task(own_llm.agenerate("Once", max_tokens=5)), 0
        while not starting.done():
            n_turns += 1
            await asyncio.sleep(0.002)
        assert (await starting).token_ids
        assert n_turns > 20  # loading takes a tenth of a second at least

    run(main())


@pytest.mark.slow
@linux
@pytest.mark.parametrize("how", ["exit", "os._exit(0)", "os.kill(os.getpid(), 9)", "raise"])
def test_no_orphan_is_left(how: str) -> None:
    program = (
        "import os, sys, threading, pyggml\n"
        "made = []\n"
        "load = threading.Thread(target=lambda: made.append(pyggml.load(n_threads=1, isolate=True)))\n"
        "load.start(); load.join()\n"  # the process outlives the thread that asked for it
        "llm, = made\n"
        "stream = llm.stream('Once', max_tokens=900, ignore_eos=True)\n"
        "next(stream)\n"
        "print(llm._isolated.process().pid, flush=True)\n"
        f"{ {'exit': 'sys.exit(0)', 'raise': '1 / 0'}.get(how, how) }\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    pid = int(done.stdout)
    until(lambda: is_gone(pid))
    assert done.returncode == {"exit": 0, "os._exit(0)": 0, "raise": 1}.get(how, -9)
    assert ("ZeroDivisionError" in done.stderr) == (how == "raise")


@pytest.mark.slow
@linux
def test_it_shares_nothing_but_what_it_needs(tmp_path: Path) -> None:
    secret = (tmp_path / "secret").open("w")
    os.set_inheritable(secret.fileno(), True)
    own = shutil.copy(pyggml.SHIPPED_MODEL, tmp_path / "own.gguf")  # the shipped one may be mapped for other tests
    with secret, pyggml.load(own, n_threads=1, isolate=True) as llm:
        pid = pid_of(llm)
        open_there = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        assert str(tmp_path / "secret") not in open_there
        assert llm.model.path in Path(f"/proc/{pid}/maps").read_text()
        assert llm.model.path not in Path("/proc/self/maps").read_text()
        assert os.getpgid(pid) != os.getpgid(0)  # Ctrl-C is the program's


@pytest.mark.slow
@linux
def test_a_fork_leaves_it_to_the_parent(own_llm: pyggml.LLM) -> None:
    program = (
        "import os, pyggml\n"
        "llm = pyggml.load(n_threads=1, isolate=True)\n"
        "stream = llm.stream('Once', max_tokens=300, ignore_eos=True)\n"
        "next(stream)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        llm.generate('a')\n"
        "    except pyggml.EngineError as error:\n"
        "        print(error, flush=True)\n"
        "    llm.close()\n"
        "    raise SystemExit\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(stream.finish().token_ids))\n"
        "print(llm.stats().n_restarts)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    said, parent, restarts = done.stdout.splitlines()
    assert "before a fork" in said
    assert (parent, restarts, done.stderr) == ("0 300", "0", "")
    assert own_llm.generate("a", max_tokens=1).token_ids


@pytest.mark.slow
@linux
def test_nothing_is_left_of_it() -> None:
    def held() -> tuple[int, int, list[int]]:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), engines()

    before = held()
    llm = pyggml.load(n_threads=1, isolate=True)
    assert threading.active_count() == before[1] + 1  # for any number of requests
    streams = [llm.stream("Once", max_tokens=900, ignore_eos=True) for _ in range(6)]
    assert threading.active_count() == before[1] + 1
    llm.close()
    for stream in streams:
        with pytest.raises(pyggml.ClosedError):
            stream.finish()
    with pytest.raises(pyggml.ClosedError):
        llm.generate("a")
    with pytest.raises(pyggml.ClosedError):
        llm.stats()
    with pytest.raises(pyggml.ClosedError):
        llm.embed("a")
    del streams, stream, llm
    assert held() == before
    dropped = pyggml.load(n_threads=1, isolate=True)
    del dropped
    assert held() == before


# --- what comes from it is data -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        *("ring garbage", "ring endless event", "ring no kind", "ring impossible count", "endless answer"),
        *("no json", "no length", "long length", "no object", "no facts", "wrong type", "no pyggml error"),
        "deep json",
    ],
)
def test_a_process_that_lies(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOW", how)
    monkeypatch.setattr("pyggml.isolation.process._WORKER", "support.servers.hostile_worker")
    with pytest.raises(
        pyggml.EngineError, match="boo" if how == "no pyggml error" else "makes no sense|invalid|malformed|corrupted"
    ):
        pyggml.load(isolate=True)


def test_parameters_arrive_as_they_are() -> None:
    params = SamplingParams(
        max_tokens=7,
        temperature=0.1 + 0.2,
        logit_bias={3: float("-inf"), 5: -1e-7},
        grammar=pyggml.Grammar("root ::= [a-z]", lazy=True, trigger_patterns=("a", "ü"), trigger_tokens=(1, 2)),
        samplers=("top_k", "temperature"),
        logprobs=2,
        seed=2**32 - 2,
    )
    request = PendingRequest(range(3), params, is_streamed=False)
    request.stop_token_ids = [1, 2]
    sent = protocol.encode_generation(request, 1.5, {})
    arrived = protocol.decode_generation(sent)
    assert replace(arrived.params, samplers=tuple(arrived.params.samplers or ())).logit_bias == params.logit_bias
    assert arrived.params.temperature == params.temperature
    assert (arrived.stop_token_ids, arrived.timeout_s, arrived.watched) == ([1, 2], 1.5, False)
    request.params = arrived.params
    assert protocol.encode_generation(request, 1.5, {}) == sent


@pytest.mark.slow
def test_no_message_does_harm() -> None:
    """Random bytes in place of messages, and truncated messages, give our own error or a message."""
    made = random.Random(0)
    whole = protocol.encode_reply({"model": {"a": [1, 2.5, None]}, "n_ctx": 3}, b"12345678")
    for n in range(300):
        data = made.randbytes(n) if n % 2 else whole[: made.randrange(len(whole))]
        try:
            fields, _ = protocol.decode_reply(memoryview(data))
        except pyggml.EngineError:
            continue
        assert isinstance(fields, dict)


@pytest.mark.slow
def test_waits_do_not_hold_up_others(llm: pyggml.LLM) -> None:
    """Statistics come while a long answer of vectors is computed and others stream."""
    with ThreadPoolExecutor(2) as pool:
        vectors = pool.submit(llm.embed, ["word " * 400] * 20)
        stream = llm.stream("Once", max_tokens=50, ignore_eos=True)
        began = time.monotonic()
        llm.stats()
        took = time.monotonic() - began
        assert len(stream.finish().token_ids) == 50
        assert vectors.result().shape[0] == 20
    assert took < 60

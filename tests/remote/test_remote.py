"""Models over several hosts: they give the CPU's results, and the loss of a host raises an exception.

The hosts are servers on the loopback, with a worker process for each connection, which the tests kill and stop.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.raw_graphs import relative_error
from support.servers.remote_servers import KEY, Server, server, until

import pyggml
from pyggml._native.context import Context
from pyggml._native.model import Model
from pyggml._native.placement import resolve_placement
from pyggml.options import PlacementOptions
from pyggml.remote import ExportedDevices, connect, host

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("key") / "rpc.key"
    file.write_bytes(KEY)
    return file


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Server, Server]]:
    with server() as one, server() as other:
        yield one, other


@pytest.fixture
def load(two: tuple[Server, Server], key_file: Path) -> Iterator[Callable[..., pyggml.LLM]]:
    """Loads a model over both hosts, half of it on each, and closes it in the end."""
    loaded = []

    def load(source: object = None, **options: object) -> pyggml.LLM:
        settings = {"tensor_split": [1, 1], "n_ctx": 256, "n_threads": 1, "rpc_key": key_file, **options}
        llm = pyggml.load(source, device="auto", rpc=[each.address for each in two], **settings)  # type: ignore[arg-type]
        loaded.append(llm)
        return llm

    yield load
    for llm in loaded:
        llm.close()


def greedy(llm: pyggml.LLM, n: int = 12) -> list[int]:
    return llm.generate(PROMPT, max_tokens=n, temperature=0).token_ids


def test_layers_are_on_both_hosts(load: Callable[..., pyggml.LLM], llm: pyggml.LLM) -> None:
    over = load()
    main, first, second = over.memory
    assert main.name == "CPU"
    assert {first.name[:3], second.name[:3]} == {"RPC"}
    for share in (first, second):
        assert share.weights_bytes > 1_000_000
        assert share.cache_bytes > 100_000
    assert greedy(over, 24) == greedy(llm, 24)


@pytest.mark.slow
def test_logits_and_embeddings_are_the_cpus(load: Callable[..., pyggml.LLM], own_llm: pyggml.LLM) -> None:
    llm = own_llm
    over = load()
    ids = over.tokenize(PROMPT + ", there was a little")
    assert relative_error(over.logits(ids), llm.logits(ids)) < 0.1
    own, theirs = (np.asarray(each.embed(PROMPT)) for each in (over, llm))
    assert own @ theirs / np.linalg.norm(own) / np.linalg.norm(theirs) > 0.9999


def test_several_requests_at_once(load: Callable[..., pyggml.LLM], llm: pyggml.LLM) -> None:
    prompts = [PROMPT, "The bird", "Lucas said", "A dog"]
    texts = [
        [each.text for each in model.generate_batch(prompts, max_tokens=8, temperature=0)] for model in (load(), llm)
    ]
    assert texts[0] == texts[1]


def test_the_state_of_a_context_is_saved_and_restored(two: tuple[Server, Server], tiny_path: Path) -> None:
    def logits_after(context: Context) -> np.ndarray:
        context.decode([7])
        return np.array(context.logits()[-1])

    with connect(two[0].address, KEY) as client:
        model = Model(tiny_path, placement=resolve_placement(PlacementOptions(), client.devices))
    with model, Context(model, n_ctx=64) as one, Context(model, n_ctx=64) as other:
        one.decode([3, 4, 5])
        state = one.state_save()
        other.state_restore(state)
        np.testing.assert_array_equal(logits_after(one), logits_after(other))


@pytest.mark.slow
def test_layers_go_where_they_fit(key_file: Path) -> None:
    """With "auto", a host that lends too little for the whole model gets what fits."""
    with server(ExportedDevices(("cpu",), max_bytes=4_000_000, n_threads=1)) as small:
        with pyggml.load(
            rpc=small.address, rpc_key=key_file, n_gpu_layers="auto", n_ctx=256, n_threads=1, n_batch=64, n_ubatch=64
        ) as llm:
            main, remote = llm.memory
            assert 0 < remote.total_bytes <= 4_000_000
            assert main.weights_bytes > 1_000_000
            assert len(greedy(llm)) == 12
        with pytest.raises(pyggml.OutOfMemoryError, match="n_gpu_layers="):
            pyggml.load(rpc=small.address, rpc_key=key_file, n_ctx=8192)


def test_a_device_may_be_named(two: tuple[Server, Server], key_file: Path) -> None:
    addresses = ",".join(each.address for each in two)
    with pyggml.load(rpc=addresses, rpc_key=key_file, device="rpc:1", n_ctx=256, n_threads=1) as llm:
        assert len(llm.memory) == 2
        assert len(greedy(llm, 3)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rpc": "a:b"}, "not the address"),
        ({"rpc": 7}, "rpc must be a list of hosts"),
        ({"rpc": ["x:1", "x:1"]}, "twice"),
        ({"rpc": "localhost:1", "rpc_key": "/nonexistent/key"}, "cannot be read"),
        ({"rpc": "localhost:1", "rpc_key": 7}, "rpc_key must be the path of a key file, not int"),
        ({"rpc": "localhost:1", "rpc_key": "a\0b"}, "rpc_key must be the path"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        pyggml.load(**options)  # type: ignore[arg-type]


# --- a host is lost -----------------------------------------------------------------------------------------------


def test_lost_in_the_middle_of_a_generation(
    load: Callable[..., pyggml.LLM], two: tuple[Server, Server], llm: pyggml.LLM
) -> None:
    over = load()
    with over.stream(PROMPT, max_tokens=200) as stream:
        next(stream)
        two[1].signal(signal.SIGKILL)
        with pytest.raises(pyggml.HostLostError, match=two[1].address):
            list(stream)
    with pytest.raises(pyggml.HostLostError, match=two[1].address):
        greedy(over)
    over.close()
    assert greedy(load()) == greedy(llm)  # a new load works, and so does the other model of this process


@pytest.mark.slow
def test_lost_while_idle(load: Callable[..., pyggml.LLM], two: tuple[Server, Server]) -> None:
    over = load()
    greedy(over, 2)
    two[0].signal(signal.SIGKILL)
    with pytest.raises(pyggml.HostLostError, match=two[0].address):
        over.embed(PROMPT)
    with pytest.raises(pyggml.HostLostError, match=two[0].address):
        over.logits(PROMPT)


@pytest.mark.slow
def test_lost_while_loading(load: Callable[..., pyggml.LLM], two: tuple[Server, Server]) -> None:
    def progress(fraction: float) -> None:
        if fraction > 0.5 and not killed:
            killed.append(two[0].workers[-1])
            os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    with pytest.raises(pyggml.HostLostError, match=two[0].address):
        load(progress=progress)
    assert killed
    assert len(greedy(load(), 2)) == 2


def test_lost_with_a_context(two: tuple[Server, Server], tiny_path: Path) -> None:
    with connect(two[0].address, KEY) as client:
        model = Model(tiny_path, placement=resolve_placement(PlacementOptions(), client.devices))
    with model, Context(model, n_ctx=64) as context:
        context.decode([3, 4])
        two[0].signal(signal.SIGKILL)
        for use in (
            lambda: context.decode([5]),
            context.state_save,
            lambda: Context(model, n_ctx=64),
        ):
            with pytest.raises(pyggml.HostLostError, match=two[0].address):
                use()


@pytest.mark.slow
def test_a_silent_host_is_lost(
    load: Callable[..., pyggml.LLM], two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process neither answers nor closes its connection; calls wait no longer than the timeout."""
    monkeypatch.setattr(host, "SILENCE_S", 2.0)
    over = load()
    greedy(over, 2)
    two[0].signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(pyggml.HostLostError, match="no heartbeat for 2 s"):
            over.generate(PROMPT, max_tokens=5, timeout_s=0.5)
        over.close()
        assert time.monotonic() - began < 6
    finally:
        two[0].signal(signal.SIGKILL)


@pytest.mark.slow
def test_closing_does_not_wait_for_a_silent_host(
    load: Callable[..., pyggml.LLM], two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "SILENCE_S", 2.0)
    over = load()
    ended: list[Exception] = []

    def generate() -> None:
        try:
            over.generate(PROMPT, max_tokens=200)
        except pyggml.InferError as error:
            ended.append(error)

    thread = threading.Thread(target=generate)
    thread.start()
    assert until(lambda: over.stats().n_generated_tokens > 2)
    two[1].signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        over.close()
        thread.join()
        assert time.monotonic() - began < 6
        assert isinstance(ended[0], (pyggml.HostLostError, pyggml.ClosedError))
    finally:
        two[1].signal(signal.SIGKILL)


@pytest.mark.slow
def test_a_host_that_computes_long_is_not_silent(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that takes longer than the silence allowed, since the host shows that it lives."""
    monkeypatch.setattr(host, "SILENCE_S", 1.5)
    # All of it in one graph, with one answer to wait for.
    whole: dict[str, Any] = {"n_parallel": 1, "prefix_cache": False, "n_batch": 2048, "n_ubatch": 2048}
    with server() as slow, pyggml.load(rpc=slow.address, rpc_key=key_file, n_ctx=2048, n_threads=1, **whole) as llm:
        stopping = threading.Event()

        def slow_down() -> None:  # a worker that runs a tenth of the time is one on a slow machine
            while not stopping.is_set():
                slow.signal(signal.SIGSTOP)
                time.sleep(0.18)
                slow.signal(signal.SIGCONT)
                time.sleep(0.02)

        thread = threading.Thread(target=slow_down)
        thread.start()
        try:
            began = time.monotonic()
            llm.generate((list(range(3, 400)) * 5)[:1900], max_tokens=1)
            assert llm.stats().n_decode_steps == 1
            assert time.monotonic() - began > 1.5
        finally:
            stopping.set()
            thread.join()


@pytest.mark.slow
def test_nothing_is_left_behind(load: Callable[..., pyggml.LLM], two: tuple[Server, Server]) -> None:
    """Descriptors and threads are back to what they were, whether the host lived or not."""

    def counts() -> tuple[int, int]:
        return len([*Path("/proc/self/fd").iterdir()]), len([*Path("/proc/self/task").iterdir()])

    with load() as first:
        greedy(first, 1)
    assert until(lambda: all(sum("disconnected" in line for line in each.lines) == len(each.workers) for each in two))
    before = counts()
    for is_lost in (False, True):
        over = load()
        greedy(over, 1)
        if is_lost:
            two[0].signal(signal.SIGKILL)
            with pytest.raises(pyggml.HostLostError):
                greedy(over, 1)
        over.close()
        assert until(lambda: all(now <= then for now, then in zip(counts(), before, strict=True))), (counts(), before)

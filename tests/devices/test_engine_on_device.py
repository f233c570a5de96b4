"""The engine and contexts on a device: here the CPU of another process, which has its own memory and no callback."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from support.checkpoints import models as checkpoints
from support.raw_graphs import relative_error
from support.servers.cpu_host import LentCPU, lent_cpu
from support.servers.remote_servers import is_alive

import pyggml
from pyggml import Context, Model, OutOfMemoryError
from pyggml._core.ffi import ffi, lib
from pyggml.source import SHIPPED_MODEL
from pyggml.types import EngineStats

N_CTX, N_BATCH, N_UBATCH = 16384, 512, 128
TEXT = "Once upon a time, there was a little dog who liked to run. "


@pytest.fixture(scope="module")
def device() -> Iterator[LentCPU]:
    with lent_cpu() as device:
        yield device


@pytest.fixture(scope="module")
def far(device: LentCPU) -> Iterator[pyggml.LLM]:
    """The shipped model, all of it on the device."""
    with device.load(n_ctx=N_CTX, n_parallel=2, n_batch=N_BATCH, n_ubatch=N_UBATCH) as llm:
        yield llm


@pytest.fixture
def models(device: LentCPU) -> Iterator[tuple[Model, Model]]:
    """The shipped model on the device, and here."""
    with Model(SHIPPED_MODEL, placement=device.placement) as far, Model(SHIPPED_MODEL, device="cpu") as near:
        yield far, near


def ids_of(n: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(5, 200, n)]


def steps_between(before: EngineStats, after: EngineStats) -> tuple[int, int]:
    """Forward passes, and tokens of prompts in them."""
    return after.n_decode_steps - before.n_decode_steps, after.n_prompt_tokens - before.n_prompt_tokens


def when_under_way(llm: pyggml.LLM, n_tokens: int) -> EngineStats:
    """The counters once this many more tokens of prompts have been computed."""
    start = llm.stats()
    while steps_between(start, now := llm.stats())[1] < n_tokens:
        time.sleep(0.001)
    return now


class TestCancel:
    """A step that has begun ends; none begins after a cancel. Another may begin between the counting and the cancel."""

    def test_inside_a_prompt(self, far: pyggml.LLM) -> None:
        with far.stream(ids_of(N_CTX - 8), max_tokens=4) as stream:
            before = when_under_way(far, 2 * N_UBATCH)
            stream.cancel()
            assert not [chunk for chunk in stream if chunk.text]
        n_steps, n_tokens = steps_between(before, far.stats())
        assert n_steps <= 2
        assert n_tokens <= n_steps * N_BATCH
        assert far.stats().n_running == 0

    def test_timeout(self, far: pyggml.LLM) -> None:
        before = far.stats()
        completion = far.generate(ids_of(N_CTX - 8, seed=1), max_tokens=4, timeout_s=0.2)
        n_steps, n_tokens = steps_between(before, far.stats())
        assert completion.finish_reason == "timeout"
        assert n_tokens < N_CTX // 2
        assert n_tokens <= n_steps * N_BATCH

    def test_close(self, device: LentCPU) -> None:
        llm = device.load(n_ctx=N_CTX, n_ubatch=N_UBATCH)
        stream = llm.stream(ids_of(N_CTX - 8), max_tokens=4)
        when_under_way(llm, 1)
        llm.close()
        with pytest.raises(pyggml.ClosedError):
            list(stream)

    def test_the_reproducible_mode_too(self, device: LentCPU) -> None:
        """Its pieces have a fixed length: that of a micro-batch."""
        prompt = ids_of(1000)
        with device.load(n_ctx=2048, n_parallel=1, prefix_cache=False, n_ubatch=N_UBATCH) as llm:
            first = llm.generate(prompt, max_tokens=8)
            assert llm.stats().n_prompt_tokens == len(prompt)
            assert llm.stats().n_decode_steps == -(-len(prompt) // N_UBATCH) + 7
            assert llm.generate(prompt, max_tokens=8).token_ids == first.token_ids


def test_prompts_that_arrive_together_fill_batches(device: LentCPU, tmp_path: Path) -> None:
    """32 prompts of 128 tokens take two steps of 2,048, and one more if the first is submitted before the others."""
    tiny = checkpoints.write_llama(tmp_path / "tiny.gguf")
    counts = []
    with device.load(tiny, n_ctx=32 * 256, n_parallel=32, n_batch=2048) as llm:
        for attempt in range(10):  # on a busy machine they may arrive one by one
            llm.reset()
            before = llm.stats()
            llm.generate_batch([ids_of(128, 32 * attempt + i) for i in range(32)], max_tokens=1)
            counts.append(steps_between(before, llm.stats()))
    assert all(32 * 127 < n_tokens <= 32 * 128 for _, n_tokens in counts)  # some begin with the same token
    assert min(n_steps for n_steps, _ in counts) <= 3


@pytest.mark.slow
def test_few_threads_look_up_embeddings(far: pyggml.LLM) -> None:
    """And no other number is tried: what would be measured is not computed by them."""
    before = far.stats()
    far.generate_batch([TEXT] * 4, max_tokens=60, ignore_eos=True)
    after = far.stats()
    assert (after.n_threads, after.n_threads_batch) == (before.n_threads, before.n_threads_batch)
    assert after.n_threads == 1
    assert after.n_threads_batch == min(4, lib.pyg_cpu_count())


def test_all_threads_compute_weights_that_stay_here(device: LentCPU) -> None:
    """As experts do; so the engine tries how many are best, and begins with all."""
    with device.load(n_ctx=512, override_tensor={r"blk\.0\.ffn_": "cpu"}) as llm:
        assert llm.stats().n_threads == lib.pyg_cpu_count()
        assert llm.generate(TEXT, max_tokens=8, ignore_eos=True).token_ids


class TestOutOfMemory:
    def test_weights(self) -> None:
        """Both numbers, and nothing left behind: the autouse fixture counts."""
        with lent_cpu(max_bytes=1 << 20) as small:
            with pytest.raises(OutOfMemoryError) as caught:
                Model(SHIPPED_MODEL, placement=small.placement)
            assert caught.value.required_bytes > caught.value.available_bytes > 0
            assert is_alive(small.server.workers[-1])
        with Model(SHIPPED_MODEL) as model:
            assert model.n_layer > 0

    def test_cache(self) -> None:
        with lent_cpu(max_bytes=100 << 20) as small, Model(SHIPPED_MODEL, placement=small.placement) as model:
            with pytest.raises(OutOfMemoryError) as caught:
                Context(model, n_ctx=1 << 18)
            assert caught.value.required_bytes > 100 << 20
            with Context(model, n_ctx=256) as context:
                assert context.decode([5, 6, 7]) == 1

    def test_while_it_runs(self) -> None:
        """Somebody else has taken what the device had when the context was made."""
        with (
            lent_cpu() as device,
            Model(SHIPPED_MODEL, placement=device.placement) as model,
            Context(model, n_ctx=2048, n_batch=2048, n_ubatch=2048) as context,
        ):
            context.decode([5, 6, 7])
            expected = context.logits()
            context.memory_clear()
            lib.llama_set_adapter_cvec(context.handle, ffi.NULL, 0, 0, 0, 0)  # its scratch is made anew
            pid = device.server.workers[-1]
            used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
            limits = resource.prlimit(pid, resource.RLIMIT_AS)
            resource.prlimit(pid, resource.RLIMIT_AS, (used - (16 << 20), limits[1]))
            for _ in range(2):
                with pytest.raises(OutOfMemoryError) as caught:
                    context.decode([5, 6, 7])
                assert caught.value.required_bytes > 16 << 20
            resource.prlimit(pid, resource.RLIMIT_AS, limits)
            context.decode([5, 6, 7])
            np.testing.assert_allclose(context.logits(), expected, rtol=1e-5)


class TestWhatComesBack:
    """Rows, embeddings, states and activations lie in the device's memory until somebody asks."""

    def test_logits_of_every_position(self, far: pyggml.LLM) -> None:
        ids = ids_of(3 * N_UBATCH)
        with pyggml.load(n_ctx=1024, n_threads=1) as near:
            assert relative_error(far.logits(ids), near.logits(ids)) < 0.1

    def test_states(self, models: tuple[Model, Model]) -> None:
        """A sequence moves between devices and continues as it was."""
        far, near = models
        with Context(far, n_ctx=512, n_seq_max=2) as there, Context(near, n_ctx=512, n_seq_max=2, n_threads=1) as here:
            ids = ids_of(100)
            there.decode(ids[:-1])
            here.state_restore(there.state_save(0), 1)
            there.state_restore(there.state_save())  # all of it
            there.decode(ids[-1:])
            here.decode(ids[-1:], seq_id=1)
            assert relative_error(here.logits(), there.logits()) < 0.1

    @pytest.mark.parametrize("pooling", ["none", "mean"])
    def test_embeddings(self, models: tuple[Model, Model], pooling: Literal["none", "mean"]) -> None:
        rows = []
        for model in models:
            with Context(model, n_ctx=512, embeddings=True, pooling=pooling, n_threads=1) as context:
                context.decode(ids_of(40))
                rows.append(context.embeddings() if pooling == "none" else context.embeddings_seq())
        assert relative_error(rows[0], rows[1]) < 0.1

    @pytest.mark.slow
    def test_importances(self, far: pyggml.LLM) -> None:
        there, here = (pyggml.compute_imatrix(model, ids_of(600), n_ctx=128) for model in (far, SHIPPED_MODEL))
        assert there.entries.keys() == here.entries.keys()
        for name, entry in there.entries.items():
            assert entry.counts.tolist() == here.entries[name].counts.tolist()
            assert relative_error(entry.sums, here.entries[name].sums) < 0.1

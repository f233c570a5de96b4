"""Snapshots of evicted cells on every kind of memory, and prefixes that are saved and restored as bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import lora_files, models

import pyggml
from pyggml.generation.pending_request import PendingRequest

WRITERS: dict[str, Callable[[Path], Path]] = {
    "attention": models.write_llama,
    "window": lambda path: models.write_gemma2(path, sliding_window=32),
    "recurrent": models.write_mamba,
    "hybrid": models.write_jamba,
}
LOAD: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_parallel": 1}
OPTIONS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 20}


@pytest.fixture(scope="module", params=WRITERS)
def path(request: pytest.FixtureRequest, model_dir: Path) -> Path:
    return WRITERS[request.param](model_dir / f"snapshots-{request.param}.gguf")


@pytest.fixture(scope="module")
def llama(model_dir: Path) -> Path:
    return models.write_llama(model_dir / "snapshots-llama.gguf")


def tokens(n: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 250) for _ in range(n)]


@pytest.mark.parametrize("n_parallel", [1, 2])
def test_conversations_that_alternate_are_computed_once(path: Path, n_parallel: int) -> None:
    chats = [tokens(100, seed=i) for i in range(4)]
    n_known = [0] * len(chats)
    load = LOAD | {"n_ctx": 256, "n_parallel": n_parallel}
    with pyggml.load(path, **load) as llm, pyggml.load(path, prefix_cache=False, **LOAD) as alone:
        for turn in range(3):
            for i, chat in enumerate(chats):
                done = llm.generate(chat, **OPTIONS)
                assert done.token_ids == alone.generate(chat, **OPTIONS).token_ids
                assert done.cached_tokens == n_known[i]
                n_known[i] = len(chat) + len(done.token_ids) - 1  # the last token was not computed
                chats[i] = [*chat, *done.token_ids, *tokens(5, seed=100 * turn + i)]
        stats = llm.stats()
    assert stats.n_snapshot_hits == 2 * len(chats)
    assert stats.n_snapshot_tokens > 0
    assert stats.n_snapshot_tokens <= stats.n_cached_tokens
    assert stats.n_snapshots >= 3
    assert 0 < stats.snapshot_bytes < 1 << 30


def test_without_memory_there_are_no_snapshots(llama: Path) -> None:
    with pyggml.load(llama, prefix_cache_bytes=0, **LOAD) as llm:
        for seed in (1, 2, 1):
            assert llm.generate(tokens(100, seed), **OPTIONS).cached_tokens == 0
        assert llm.stats().n_snapshots == llm.stats().snapshot_bytes == 0


def test_more_memory_than_there_is_is_refused(llama: Path) -> None:
    with pytest.raises(pyggml.OutOfMemoryError, match="prefix_cache_bytes=") as caught:
        pyggml.load(llama, prefix_cache_bytes=1 << 60, **LOAD)
    assert caught.value.required_bytes == 1 << 60


def test_a_reset_drops_snapshots(llama: Path) -> None:
    with pyggml.load(llama, **LOAD) as llm:
        llm.generate(tokens(100, 1), **OPTIONS)
        llm.generate(tokens(100, 2), **OPTIONS)
        assert llm.stats().n_snapshots == 1
        llm.reset()
        assert llm.generate(tokens(100, 1), **OPTIONS).cached_tokens == 0


def test_preempted_requests_continue_from_snapshots(path: Path) -> None:
    prompts = [tokens(40 + i, seed=i) for i in range(8)]
    options: dict[str, Any] = {"ignore_eos": True, "max_tokens": 60}
    with (
        pyggml.load(path, n_ctx=200, n_threads=1, n_parallel=4) as llm,
        pyggml.load(path, prefix_cache=False, **LOAD) as alone,
    ):
        crowd = llm.generate_batch(prompts, **options)
        stats = llm.stats()
        assert [done.token_ids for done in crowd] == [alone.generate(each, **options).token_ids for each in prompts]
    assert stats.n_preemptions > 0
    assert stats.n_snapshot_hits > 0


@pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_saved_prefix_outlives_its_engine(path: Path, isolate: bool) -> None:
    prompt = tokens(100, seed=1)
    load = LOAD | {"isolate": isolate}
    with pyggml.load(path, **load) as llm:
        first = llm.generate(prompt, **OPTIONS)
        said = [*prompt, *first.token_ids]
        saved = llm._engine.save_prefix(said)
        assert llm._engine.save_prefix(said) == saved
    turn = [*said, *tokens(10, seed=2)]
    with pyggml.load(path, **load) as llm, pyggml.load(path, prefix_cache=False, **LOAD) as alone:
        assert llm._engine.restore_prefix(saved) == len(said)
        done = llm.generate(turn, **OPTIONS)
        assert done.cached_tokens == len(said)
        assert done.token_ids == alone.generate(turn, **OPTIONS).token_ids
        assert llm.stats().n_snapshot_hits == 1


def test_a_restored_prefix_is_for_its_salt(llama: Path) -> None:
    prompt = tokens(100, seed=1)
    with pyggml.load(llama, **LOAD | {"n_parallel": 4}, prefix_cache_bytes=0) as llm:
        saved = llm._engine.save_prefix(prompt)
        llm.reset()
        llm._engine.restore_prefix(saved, cache_salt="a")
        cached = [llm.generate(prompt, max_tokens=1, cache_salt=salt).cached_tokens for salt in (None, "b", "a")]
        assert cached == [0, 0, 99]


def test_a_prefix_restored_again_takes_no_more_memory(llama: Path) -> None:
    prompt = tokens(100, seed=1)
    with pyggml.load(llama, **LOAD) as llm:
        saved = llm._engine.save_prefix(prompt)
        sizes = []
        for _ in range(3):
            for _ in range(5):
                llm._engine.restore_prefix(saved)
            llm.generate(prompt, **OPTIONS)
            sizes.append(llm.stats().snapshot_bytes)
    assert sizes[0] == sizes[1] == sizes[2] > 0


def test_a_prefix_of_a_layout_that_the_engine_never_has(llama: Path) -> None:
    prompt = tokens(100, seed=1)
    with pyggml.load(llama, n_ctx=1024, n_threads=1, n_parallel=2, kv_unified=False) as llm:
        saved = llm._engine.save_prefix(prompt)
        llm.reset()
        llm._engine.restore_prefix(saved)
        assert llm.generate(prompt, **OPTIONS).cached_tokens == 99
    with pyggml.load(llama, n_ctx=1024, n_threads=1, n_parallel=2) as llm:
        assert llm._engine.restore_prefix(saved) == 100
        assert llm.generate(prompt, **OPTIONS).cached_tokens == 0
        assert llm.stats().snapshot_bytes == 0


def test_a_prefix_is_saved_without_adapters(llama: Path, tmp_path: Path) -> None:
    adapter = lora_files.write_adapter(tmp_path / "adapter.gguf", llama)
    with pyggml.load(llama, **LOAD) as llm:
        llm.load_adapter(adapter, name="style")
        params = pyggml.SamplingParams(max_tokens=0, adapter="style")
        pending = PendingRequest(tokens(10, 1), params, is_streamed=False, saves_prefix=True)
        with pytest.raises(pyggml.InvalidParameterError, match="must have no adapters"):
            llm._engine.enqueue(pending)


def test_prefixes_that_cannot_be_restored(llama: Path, model_dir: Path) -> None:
    other = models.write_llama(model_dir / "snapshots-other.gguf", seed=7)
    with pyggml.load(llama, **LOAD) as llm:
        saved = llm._engine.save_prefix(tokens(100, seed=1))
    with pyggml.load(llama, **LOAD) as llm:
        for damaged, why in (
            (saved[:50], "too few"),
            (saved[:-1], "damaged or incomplete"),
            (saved + b"\0", "damaged or incomplete"),
            (bytes(len(saved)), "not a prefix"),
            (saved[:500] + bytes([saved[500] ^ 1]) + saved[501:], "damaged or incomplete"),
        ):
            with pytest.raises(pyggml.InvalidParameterError, match=why):
                llm._engine.restore_prefix(damaged)
        with pytest.raises(pyggml.InvalidParameterError, match="a saved prefix is bytes, not str"):
            llm._engine.restore_prefix("text")  # type: ignore[arg-type]
    for path, options, why in (
        (other, {}, "another model"),
        (llama, {"cache_type": "q8_0"}, "other load options"),
        (llama, {"rope_freq_base": 20000.0}, "other load options"),
        (llama, {"n_ctx": 64}, "100 tokens, but the context holds only 64"),
        (llama, {"prefix_cache": False}, "prefix_cache=True"),
    ):
        with (
            pyggml.load(path, **LOAD | options) as llm,
            pytest.raises(pyggml.InvalidParameterError, match=why),
        ):
            llm._engine.restore_prefix(saved)
    with (
        pyggml.load(llama, prefix_cache=False, **LOAD) as llm,
        pytest.raises(pyggml.InvalidParameterError, match="prefix_cache=True"),
    ):
        llm._engine.save_prefix([1, 2, 3])


def test_models_that_differ_in_one_number_are_different(llama: Path, tmp_path: Path) -> None:
    with pyggml.load(llama, **LOAD) as llm:
        saved = llm._engine.save_prefix(tokens(100, seed=1))
    whole = llama.read_bytes()
    weights = models.llama_weights()
    for name in [name for name in weights if "norm" in name]:
        at = whole.index(weights[name].astype("float32").tobytes())
        changed = tmp_path / f"{name}.gguf"
        changed.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with (
            pyggml.load(changed, **LOAD) as llm,
            pytest.raises(pyggml.InvalidParameterError, match="another model"),
        ):
            llm._engine.restore_prefix(saved)


@pytest.mark.slow
def test_changed_bytes_are_refused(path: Path) -> None:
    """3,000 saved prefixes with changed, missing or additional bytes."""
    rng = random.Random(1)
    prompt = tokens(60, seed=1)
    with pyggml.load(path, **LOAD) as llm:
        saved = llm._engine.save_prefix(prompt)
        expected = llm.generate(prompt, **OPTIONS).token_ids
        for _ in range(3000):
            changed = bytearray(saved)
            kind = rng.randrange(4)
            if kind == 0:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del changed[rng.randrange(len(changed)) :]
            elif kind == 2:
                at = rng.randrange(min(200, len(changed)))
                changed[at : at + 8] = rng.randbytes(8)
            else:
                at = rng.randrange(len(changed))
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
            if changed == saved:
                continue
            with pytest.raises(pyggml.InvalidParameterError):
                llm._engine.restore_prefix(bytes(changed))
        assert llm.generate(prompt, **OPTIONS).token_ids == expected


def test_a_saved_prefix_takes_its_time(llama: Path) -> None:
    with (
        pyggml.load(llama, **LOAD | {"n_ctx": 4096}) as llm,
        llm.stream(tokens(20, seed=1), ignore_eos=True, max_tokens=4000) as stream,
    ):
        next(stream)
        with pytest.raises(pyggml.RequestTimeout, match=r"timeout_s=0\.05"):
            llm._engine.save_prefix(tokens(20, seed=2), timeout_s=0.05)

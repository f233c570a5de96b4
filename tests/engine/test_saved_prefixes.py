"""Prefixes in files, and prefixes that are computed before requests come."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import saved_sessions
from support.checkpoints import lora_files, models

import pyggml
from pyggml import LLM, InvalidParameterError, SavedStateError

WRITERS: dict[str, Callable[[Path], Path]] = {
    "attention": models.write_llama,
    "window": models.write_gemma2,
    "recurrent": models.write_mamba,
    "hybrid": models.write_jamba,
}
LOAD: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_parallel": 2}
OPTIONS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 20, "logprobs": 3}


@pytest.fixture(scope="module", params=WRITERS)
def path(request: pytest.FixtureRequest, model_dir: Path) -> Path:
    return WRITERS[request.param](model_dir / f"saved-{request.param}.gguf")


@pytest.fixture(scope="module")
def tiny(tiny_path: Path) -> Iterator[LLM]:
    with pyggml.load(tiny_path, **LOAD) as llm:
        yield llm


def tokens(n: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 250) for _ in range(n)]


# --- warm ---------------------------------------------------------------------------------------------------------


def test_a_warmed_prefix_is_not_computed_again(path: Path) -> None:
    prefix = tokens(120, seed=1)
    prompts = [[*prefix, seed, *tokens(9, seed=seed)] for seed in (2, 3, 4)]
    with pyggml.load(path, **LOAD) as llm:
        expected = [llm.generate(prompt, **OPTIONS).token_ids for prompt in prompts]
        llm.reset()
        assert llm.warm(prefix) == 120
        found = [llm.generate(prompt, **OPTIONS) for prompt in prompts]
    assert [each.token_ids for each in found] == expected
    assert [each.cached_tokens for each in found] == [120] * 3


def test_messages_are_warmed_up_to_the_users_turn(llm: LLM) -> None:
    llm.reset()
    system = {"role": "system", "content": "You answer in one sentence. " * 10}
    n = llm.warm([system])
    for text in ("What is hot?", "0", "x", "Why?"):
        done = llm.chat([system, {"role": "user", "content": text}], max_tokens=1)
        assert done.cached_tokens >= n - 1
        assert done.prompt_tokens - n < 30
    whole = [system, {"role": "user", "content": "What is hot?"}]
    assert llm.warm(whole) == len(llm.tokenize_chat(whole))
    assert asyncio.run(llm.awarm(whole)) == llm.warm(whole)
    assert llm.warm("Once upon a time") == len(llm.tokenize("Once upon a time"))


def test_warm_takes_what_changes_the_prompt(llm: LLM) -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}
    messages = [{"role": "system", "content": "You are a dog."}]
    assert llm.warm(messages, [tool]) > llm.warm(messages)
    llm.warm(messages, cache_salt="a")
    asked = [*messages, {"role": "user", "content": "Who are you?"}]
    llm.reset()
    llm.warm(messages, cache_salt="a")
    assert llm.chat(asked, max_tokens=1, cache_salt="b").cached_tokens == 0
    assert llm.chat(asked, max_tokens=1, cache_salt="a").cached_tokens > 0


def test_what_warm_refuses(tiny_path: Path, tiny: LLM) -> None:
    with pytest.raises(InvalidParameterError, match="tools belong to a conversation"):
        tiny.warm("Hello", [])
    with pytest.raises(pyggml.ContextOverflowError):
        tiny.warm([5] * 600)
    with pytest.raises(pyggml.EmptyPromptError):
        tiny.warm("")
    with pytest.raises(pyggml.UnknownParameterError):
        tiny.warm("Hello", max_tokenz=3)  # type: ignore[call-arg]
    with pyggml.load(tiny_path, **LOAD, prefix_cache=False) as llm:
        for call in (llm.warm, lambda prompt: llm.save(prompt, "file")):
            with pytest.raises(InvalidParameterError, match="prefix_cache=False"):
                call([1, 2, 3])


# --- files --------------------------------------------------------------------------------------------------------


def test_a_prefix_survives_a_restart(path: Path, tmp_path: Path) -> None:
    prompt = tokens(150, seed=5)
    longer = [*prompt, *tokens(10, seed=6)]
    with pyggml.load(path, **LOAD) as llm:
        expected = llm.generate(longer, **OPTIONS)
        llm.reset()
        assert llm.save(prompt, tmp_path / "prefix") == 150
    command = [sys.executable, saved_sessions.__file__, str(path), json.dumps(LOAD), "prefix", str(tmp_path / "prefix")]
    out = subprocess.run([*command, json.dumps(longer)], capture_output=True, text=True, check=True, timeout=120).stdout
    token_ids, cached, n_prompt, computed, _, logprobs = json.loads(out)
    assert token_ids == expected.token_ids
    assert logprobs == repr(expected.logprobs)  # to the last bit
    assert (cached, n_prompt, computed) == (150, 160, 10)


def test_a_completion_is_saved_without_computing_it_again(path: Path, tmp_path: Path) -> None:
    prompt = tokens(150, seed=7)
    with pyggml.load(path, **LOAD) as llm:
        done = llm.generate(prompt, **OPTIONS)
        before = llm.stats().n_prompt_tokens
        whole = [*prompt, *done.token_ids]
        assert llm.save(whole, tmp_path / "prefix") == len(whole)
        assert llm.stats().n_prompt_tokens - before <= 1
        expected = llm.generate([*whole, 5], **OPTIONS)
    with pyggml.load(path, **LOAD) as llm:
        assert llm.restore(tmp_path / "prefix") == len(whole)
        found = llm.generate([*whole, 5], **OPTIONS)
        assert (found.token_ids, repr(found.logprobs)) == (expected.token_ids, repr(expected.logprobs))
        assert found.cached_tokens == len(whole)


def test_in_a_loop(tiny: LLM, tmp_path: Path) -> None:
    async def main() -> tuple[int, int]:
        return await tiny.asave(tokens(60, seed=8), tmp_path / "prefix"), await tiny.arestore(tmp_path / "prefix")

    assert asyncio.run(main()) == (60, 60)


def test_a_salt_applies_to_what_is_restored(tiny: LLM, tmp_path: Path) -> None:
    prompt = tokens(60, seed=9)
    tiny.save(prompt, tmp_path / "prefix", cache_salt="a")
    tiny.reset()
    tiny.restore(tmp_path / "prefix", cache_salt="b")
    longer = [*prompt, 5]
    assert tiny.generate(longer, max_tokens=1, cache_salt="a").cached_tokens == 0
    assert tiny.generate(longer, max_tokens=1, cache_salt="b").cached_tokens == 60


def test_a_short_prefix_is_restored_too(path: Path, tmp_path: Path) -> None:
    prompt = tokens(9, seed=16)
    with pyggml.load(path, **LOAD) as llm:
        expected = llm.generate([*prompt, 5], **OPTIONS)
        llm.save(prompt, tmp_path / "prefix")
        llm.reset()
        llm.restore(tmp_path / "prefix")
        found = llm.generate([*prompt, 5], **OPTIONS)
    assert found.cached_tokens == 9
    assert (found.token_ids, repr(found.logprobs)) == (expected.token_ids, repr(expected.logprobs))


def test_files_of_others(tiny: LLM, other_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "prefix"
    with pyggml.load(other_path, **LOAD) as other:
        other.save([1, 2, 3], file)
    with pytest.raises(SavedStateError, match=str(file)):
        tiny.restore(file)
    tiny.save(tokens(400, seed=10), file)
    with (
        pyggml.load(tiny.model.path, **{**LOAD, "n_ctx": 256}) as small,
        pytest.raises(SavedStateError, match="400 tokens"),
    ):
        small.restore(file)
    file.write_bytes(b"GGUF" * 100)
    with pytest.raises(SavedStateError, match="is not a saved state"):
        tiny.restore(file)
    file.write_bytes(b"")
    with pytest.raises(SavedStateError, match="is not a saved state"):
        tiny.restore(file)


@pytest.mark.slow_except(every=20)
@pytest.mark.parametrize("seed", range(100))
def test_damaged_files_are_refused(tiny: LLM, tmp_path: Path, seed: int) -> None:
    file, rng = tmp_path / "prefix", random.Random(seed)
    tiny.save(tokens(40, seed=11), file)
    data = bytearray(file.read_bytes())
    if seed % 2:
        del data[rng.randrange(len(data)) :]
    else:
        position = rng.randrange(min(len(data), 300) if seed % 4 else len(data))
        data[position] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    with pytest.raises(SavedStateError):
        tiny.restore(file)
    assert tiny.generate([1, 2, 3], max_tokens=2).finish_reason


def test_a_file_is_whole_or_not_at_all(tiny: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prefix"
    tiny.save([1, 2, 3], file)
    before = file.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(pyggml.DiskFullError):
        tiny.save([4, 5, 6, 7], file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(InvalidParameterError, match="no directory"):
        tiny.save([1], tmp_path / "no" / "file")


# --- slots --------------------------------------------------------------------------------------------------------


def test_slots_show_what_is_cached(tiny_path: Path) -> None:
    with pyggml.load(tiny_path, **LOAD) as llm:
        assert [(slot.index, slot.is_running, slot.n_tokens) for slot in llm.slots()] == [(0, False, 0), (1, False, 0)]
        prompt = tokens(50, seed=12)
        llm.warm(prompt, cache_salt="a")
        (slot,) = (slot for slot in llm.slots() if slot.n_tokens)
        assert (slot.is_running, slot.n_tokens) == (False, 50)
        assert llm.slot_tokens(slot.index, cache_salt="a") == prompt
        assert llm.slot_tokens(slot.index) == []
        assert llm.erase_slot(slot.index) == 0
        assert llm.erase_slot(slot.index, cache_salt="a") == 50
        assert llm.generate([*prompt, 5], max_tokens=1, cache_salt="a").cached_tokens == 0
        with pytest.raises(InvalidParameterError, match="there is no slot 2; slots are 0 to 1"):
            llm.slot_tokens(2)
        with llm.stream(prompt, max_tokens=400, ignore_eos=True) as stream:
            next(stream)
            (running,) = (slot.index for slot in llm.slots() if slot.is_running)
            with pytest.raises(InvalidParameterError, match=f"a request is running in slot {running}"):
                llm.erase_slot(running)


def test_in_a_process_of_its_own(tiny_path: Path, tmp_path: Path) -> None:
    prompt = tokens(80, seed=13)
    with pyggml.load(tiny_path, **LOAD) as llm:
        expected = llm.generate([*prompt, 5], **OPTIONS)
        llm.save(prompt, tmp_path / "ours")
    with pyggml.load(tiny_path, **LOAD, isolate=True) as isolated:
        isolated.restore(tmp_path / "ours")
        found = isolated.generate([*prompt, 5], **OPTIONS)
        assert (found.token_ids, found.cached_tokens) == (expected.token_ids, 80)
        assert isolated.save(prompt, tmp_path / "theirs") == 80
        (used,) = (slot.index for slot in isolated.slots() if slot.n_tokens)
        assert isolated.slot_tokens(used)[:80] == prompt
        assert isolated.erase_slot(used) >= 80
    assert (tmp_path / "theirs").read_bytes() == (tmp_path / "ours").read_bytes()


def test_cells_of_an_adapter_are_not_restored_for_others(tiny_path: Path, tmp_path: Path) -> None:
    """Prefixes are saved without adapters, and nothing else is called one."""
    adapter = lora_files.write_adapter(tmp_path / "adapter.gguf", tiny_path)
    prompt = tokens(80, seed=14)
    options: dict[str, Any] = {**OPTIONS, "max_tokens": 5}
    with pyggml.load(tiny_path, **LOAD, lora=adapter) as llm:
        adapted = llm.generate([*prompt, 5], **options)
        plain = llm.generate([*prompt, 5], **options, adapter={})
        assert repr(adapted.logprobs) != repr(plain.logprobs)
        for named in ({}, {"adapter": "adapter"}, {"adapter": {"adapter": 0.5}}):
            with pytest.raises(InvalidParameterError, match=r"adapters \(adapter\): pass adapter=\{\}"):
                llm.save(prompt, tmp_path / "prefix", **named)
        llm.save(prompt, tmp_path / "prefix", adapter={})
        llm.reset()
        llm.restore(tmp_path / "prefix")
        for adapter_of, expected, n_cached in (({}, plain, 80), (None, adapted, 0)):
            found = llm.generate([*prompt, 5], **options, adapter=adapter_of)
            assert (repr(found.logprobs), found.cached_tokens) == (repr(expected.logprobs), n_cached)

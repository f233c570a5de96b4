"""Adapters of a model in another process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="isolate=True does not work on Windows"),
]
LOAD: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_parallel": 4, "device": "cpu"}
PROMPT = prompt(1, 20)
CHOICES: tuple[Any, ...] = ({"law": 1.0}, {"law": 0.5, "tax": -1.0}, {}, "tax", None)


@pytest.fixture
def files(shelf: Shelf, tmp_path: Path) -> list[Path]:
    return [
        lora_files.write_adapter(tmp_path / f"{name}.gguf", shelf("llama"), seed=seed)
        for seed, name in enumerate(("law", "tax"))
    ]


@pytest.fixture
def isolated(shelf: Shelf, files: list[Path]) -> Iterator[pyggml.LLM]:
    with pyggml.load(shelf("llama"), isolate=True, lora={str(files[0]): 0.25, str(files[1]): 0}, **LOAD) as llm:
        yield llm


def results(llm: pyggml.LLM, choice: Any) -> tuple[Any, ...]:
    done = llm.generate(PROMPT, adapter=choice, max_tokens=8, ignore_eos=True, logprobs=1)
    score = llm.score(PROMPT, [[5, 6, 7]], adapter=choice)[0].logprob
    return (
        tuple(done.token_ids),
        repr(done.logprobs),
        llm.logits(PROMPT, adapter=choice).tobytes(),
        llm.embed([PROMPT], adapter=choice).tobytes(),
        round(score, 3),
    )


def kill(llm: pyggml.LLM) -> None:
    process = llm._isolated.last  # type: ignore[union-attr]
    os.kill(process.pid, signal.SIGKILL)
    assert process.is_exiting()


def test_results_are_those_of_a_model_in_this_process(isolated: pyggml.LLM, shelf: Shelf, files: list[Path]) -> None:
    with pyggml.load(shelf("llama"), lora={str(files[0]): 0.25, str(files[1]): 0}, **LOAD) as llm:
        expected = [results(llm, choice) for choice in CHOICES]
        facts = [(each.name, each.rank, each.alpha, each.n_targets, each.content) for each in llm.adapters.values()]
    assert len(set(expected)) == len(CHOICES)
    assert [results(isolated, choice) for choice in CHOICES] == expected
    assert [
        (each.name, each.rank, each.alpha, each.n_targets, each.content) for each in isolated.adapters.values()
    ] == facts
    assert isolated.adapters["law"].size_bytes > 0
    kill(isolated)
    assert results(isolated, CHOICES[1]) == expected[1]  # loaded again
    assert isolated.stats().n_restarts == 1
    isolated.adapters["law"].close()
    assert dict(isolated.default_adapters) == {"tax": 0.0}
    assert results(isolated, None) == expected[2]
    with pytest.raises(pyggml.InvalidParameterError, match="there is no adapter 'law'"):
        isolated.generate(PROMPT, adapter="law")


def test_slots_and_the_prefix_cache(isolated: pyggml.LLM) -> None:
    for choice, other in (("law", {}), ({}, "law")):
        isolated.reset()
        isolated.generate(PROMPT, max_tokens=1, adapter=choice)
        assert isolated.generate(PROMPT, max_tokens=1, adapter=other).cached_tokens == 0
        assert isolated.generate(PROMPT, max_tokens=1, adapter=choice).cached_tokens == len(PROMPT) - 1
        assert any(isolated.slot_tokens(index, adapter=choice)[:20] == PROMPT for index in range(4))


def test_lifetime(isolated: pyggml.LLM, files: list[Path], tmp_path: Path, shelf: Shelf) -> None:
    with pytest.raises(pyggml.ModelLoadError, match="not an adapter"):
        isolated.load_adapter(shelf("llama"), "bad")
    with pytest.raises(pyggml.ModelNotFoundError):
        isolated.load_adapter(tmp_path / "none.gguf")
    with isolated.stream(PROMPT, adapter="law", max_tokens=200, ignore_eos=True) as stream:
        next(iter(stream))
        closed = threading.Event()

        def close(law: pyggml.Adapter = isolated.adapters["law"]) -> None:
            law.close()
            closed.set()

        thread = threading.Thread(target=close)
        thread.start()
        assert not closed.wait(0.05) or stream.completion is not None  # it waits for the request
        tokens = sum(1 for _ in stream)
        thread.join()
        assert tokens > 0
    with isolated.load_adapter(files[0], "law", scale=2) as law:  # of the same name
        assert isolated.generate(PROMPT, adapter="law", max_tokens=3).token_ids
    assert not law.is_open
    # a file that is gone after a restart
    gone = isolated.load_adapter(lora_files.write_adapter(tmp_path / "gone.gguf", shelf("llama"), seed=9))
    Path(gone.path).unlink()
    kill(isolated)
    assert isolated.generate(PROMPT, max_tokens=3).token_ids
    with pytest.raises(pyggml.EngineError, match=r"the adapter 'gone' could not be loaded again .*gone\.gguf"):
        isolated.generate(PROMPT, adapter="gone")
    gone.close()

"""Adapters that are loaded and closed while requests run, and their names."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import lora_files, models
from support.device_kinds import Shelf, prompt

import pyggml

PROMPT = prompt(1, 20)


@pytest.fixture
def model(shelf: Shelf) -> Path:
    return shelf("llama")


@pytest.fixture
def file(model: Path, tmp_path: Path) -> Path:
    return lora_files.write_adapter(tmp_path / "law.gguf", model)


@pytest.fixture
def llm(model: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(model, n_ctx=2048, n_threads=1, device="cpu") as llm:
        yield llm


def test_facts(llm: pyggml.LLM, file: Path) -> None:
    adapter = llm.load_adapter(file, scale=0.5)
    assert (adapter.name, adapter.scale, adapter.rank, adapter.alpha) == ("law", 0.5, 4, 8.0)
    assert adapter.path == str(file)
    assert adapter.n_targets == 4 * 7  # layers, and the products of each
    assert repr(adapter) == "Adapter('law': rank 4, 28 weights, scale 0.5)"
    assert llm.adapters == {"law": adapter}
    before = adapter.size_bytes
    assert before == sum(4 * math.prod(info.shape) for info in _infos(file))
    llm.generate(PROMPT, adapter="law", max_tokens=1)
    assert before < adapter.size_bytes < 3 * before
    adapter.close()
    assert llm.adapters == {}
    assert repr(adapter).endswith(", closed)")
    with pytest.raises(pyggml.ClosedError):
        _ = adapter.size_bytes


def _infos(file: Path) -> list[Any]:
    with pyggml.gguf.GGUFReader(file) as reader:
        return list(reader.tensors.values())


def test_scales(llm: pyggml.LLM, file: Path) -> None:
    llm.load_adapter(file, "half", scale=0.5)
    llm.load_adapter(file, "whole")
    half = llm.logits(PROMPT, adapter="half").tobytes()
    assert llm.logits(PROMPT, adapter={"whole": 0.5}).tobytes() == half
    assert llm.logits(PROMPT, adapter={"half": 0.5}).tobytes() == half
    assert llm.logits(PROMPT, adapter="whole").tobytes() != half


def test_defaults(model: Path, llm: pyggml.LLM, file: Path) -> None:
    llm.load_adapter(file)
    plain, adapted = llm.logits(PROMPT).tobytes(), llm.logits(PROMPT, adapter={"law": 0.25}).tobytes()
    for lora in (f"{file}:0.25", {str(file): 0.25}, [f"{file}:0.25"]):
        with pyggml.load(model, n_ctx=512, n_threads=1, device="cpu", lora=lora) as other:
            assert dict(other.default_adapters) == {"law": 0.25}
            assert other.logits(PROMPT).tobytes() == adapted
            assert other.logits(PROMPT, adapter={}).tobytes() == plain
            other.default_adapters = None
            assert other.logits(PROMPT).tobytes() == plain
    llm.default_adapters = {"law": 0.25}
    text = llm.generate(PROMPT, max_tokens=8).token_ids
    assert text == llm.generate(PROMPT, max_tokens=8, adapter={"law": 0.25}).token_ids
    llm.adapters["law"].close()
    assert llm.logits(PROMPT).tobytes() == plain


def test_in_every_call(llm: pyggml.LLM, file: Path) -> None:
    llm.load_adapter(file)
    expected = llm.generate(PROMPT, max_tokens=6, adapter="law").token_ids
    assert expected != llm.generate(PROMPT, max_tokens=6).token_ids
    params = pyggml.SamplingParams(max_tokens=6, adapter="law")
    with llm.stream(PROMPT, params) as stream:
        list(stream)
    assert stream.completion.token_ids == expected
    assert [each.token_ids for each in llm.generate_batch([PROMPT] * 2, params)] == [expected] * 2
    assert llm.generate_n(PROMPT, 2, params)[1].token_ids == expected
    with pytest.raises(
        pyggml.InvalidParameterError, match=r"there is no adapter 'tax': loaded are 'law'; load_adapter"
    ):
        llm.generate(PROMPT, adapter="tax")


def test_close_waits_for_requests(llm: pyggml.LLM, file: Path) -> None:
    adapter = llm.load_adapter(file)
    stream = llm.stream(PROMPT, adapter="law", max_tokens=300, ignore_eos=True)
    next(iter(stream))
    closer = threading.Thread(target=adapter.close)
    closer.start()
    while adapter.is_open:
        time.sleep(0.001)
    with pytest.raises(pyggml.InvalidParameterError, match="there is no adapter 'law': none is loaded"):
        llm.generate(PROMPT, adapter="law", max_tokens=1)
    again = llm.load_adapter(file)  # its name is free
    assert closer.is_alive()
    stream.close()
    closer.join(20)
    assert not closer.is_alive()
    assert llm.generate(PROMPT, adapter="law", max_tokens=2).token_ids
    again.close()
    again.close()


def test_close_of_a_model_closes_its_adapters(model: Path, file: Path) -> None:
    llm = pyggml.load(model, n_ctx=512, n_threads=1, device="cpu")
    adapter = llm.load_adapter(file)
    stream = llm.stream(PROMPT, adapter="law", max_tokens=300, ignore_eos=True)
    next(iter(stream))
    llm.close()
    assert not adapter.is_open
    with pytest.raises(pyggml.ClosedError):
        list(stream)
    with pytest.raises(pyggml.ClosedError):
        llm.load_adapter(file)


def test_loading_while_requests_run(llm: pyggml.LLM, file: Path) -> None:
    expected = llm.generate(PROMPT, max_tokens=100, ignore_eos=True).token_ids
    with llm.stream(PROMPT, max_tokens=100, ignore_eos=True) as stream:
        for number, _ in enumerate(stream):
            if number % 10 == 0:
                with llm.load_adapter(file, f"{number}"):
                    llm.generate(PROMPT, adapter=f"{number}", max_tokens=1)
    assert stream.completion.token_ids == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "law"}, "there is already an adapter 'law'"),
        ({"name": ""}, "must be text that is not empty, not ''"),
        ({"name": 3}, "must be text that is not empty, not 3"),
        ({"name": "b", "scale": float("nan")}, "scale must be a finite number, not nan"),
        ({"name": "b", "scale": "1"}, "scale must be"),
        ({"source": None}, "not None"),
        ({"source": 3}, "must be given as a path"),
    ],
)
def test_invalid_arguments(llm: pyggml.LLM, file: Path, arguments: dict[str, Any], message: str) -> None:
    llm.load_adapter(file)
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        llm.load_adapter(**{"source": file, **arguments})
    assert list(llm.adapters) == ["law"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("", "must be text that is not empty"),
        (3, "must be the name of an adapter, or a mapping of names and scales"),
        ({"law": float("inf")}, "the scale of the adapter 'law' must be a finite number"),
        ({"law": None}, "the scale of the adapter 'law'"),
        ({3: 1.0}, "the name of an adapter must be text"),
    ],
)
def test_invalid_choices(choice: Any, message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        pyggml.SamplingParams(adapter=choice)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"general__type": "model"}, pyggml.ModelLoadError, r'is not an adapter: its general.type is "model"'),
        ({"general__type": None}, pyggml.ModelLoadError, "is not an adapter"),
        ({"adapter__type": "cvec"}, pyggml.ModelLoadError, 'of type "cvec"'),
        ({"general__architecture": "qwen3"}, pyggml.ArchitectureMismatchError, 'architecture "qwen3".*is "llama"'),
        ({"alpha": float("nan")}, pyggml.ModelLoadError, "alpha is nan"),
        ({"adapter__alora__invocation_tokens": [1, 2]}, pyggml.ModelLoadError, "activated LoRA"),
        ({"size": float("inf")}, pyggml.ModelLoadError, "values that are not finite"),
        ({"chosen": lambda _: False}, pyggml.ModelLoadError, "has no tensors"),
    ],
)
def test_refused_files(
    llm: pyggml.LLM, model: Path, tmp_path: Path, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    """By the native code; llm.load_adapter checks files before (tests/importer/test_adapters.py)."""
    file = lora_files.write_adapter(tmp_path / "bad.gguf", model, **given)
    with pytest.raises(error, match=message):
        llm._engine.load_adapter(file)
    with pytest.raises(pyggml.InferError, match=r"bad\.gguf"):
        llm.load_adapter(file)
    assert llm.adapters == {}


def _tensors(file: Path) -> dict[str, Any]:
    with pyggml.gguf.GGUFReader(file) as reader:
        return {name: reader.dequantized(name) for name in reader.tensors}


Q = "blk.0.attn_q.weight"


def _lacks_b(tensors: dict[str, Any]) -> None:
    del tensors[f"{Q}.lora_b"]


def _has_norm(tensors: dict[str, Any]) -> None:
    tensors["blk.0.attn_norm.weight"] = tensors[f"{Q}.lora_b"][:, 0]


def _has_few_inputs(tensors: dict[str, Any]) -> None:
    tensors[f"{Q}.lora_a"] = tensors[f"{Q}.lora_a"][:, :-32]


def _has_few_outputs(tensors: dict[str, Any]) -> None:
    tensors[f"{Q}.lora_b"] = tensors[f"{Q}.lora_b"][:-1]


def _has_unknown_weights(tensors: dict[str, Any]) -> None:
    for each in "ab":
        tensors[f"blk.9.x.weight.lora_{each}"] = tensors[f"{Q}.lora_{each}"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_lacks_b, pyggml.ModelLoadError, r"has only one of blk\.0\.attn_q\.weight\.lora_a"),
        (_has_norm, pyggml.ModelLoadError, r"has the tensor blk\.0\.attn_norm\.weight.*weights of norms"),
        (_has_few_inputs, pyggml.ArchitectureMismatchError, "do not fit .* of the shape"),
        (_has_few_outputs, pyggml.ArchitectureMismatchError, "do not fit"),
        (
            _has_unknown_weights,
            pyggml.ArchitectureMismatchError,
            r"blk\.9\.x\.weight, which .* does not have",
        ),
    ],
)
def test_refused_tensors(
    llm: pyggml.LLM, file: Path, tmp_path: Path, change: Any, error: type[Exception], message: str
) -> None:
    tensors = _tensors(file)
    change(tensors)
    facts: dict[str, object] = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    bad = lora_files.write_tensors(tmp_path / "bad.gguf", facts, tensors, pyggml.gguf.GGMLType.F32)
    with pytest.raises(error, match=message):
        llm._engine.load_adapter(bad)
    with pytest.raises(error, match=r"bad\.gguf"):
        llm.load_adapter(bad)


def test_other_files(llm: pyggml.LLM, model: Path, file: Path, tmp_path: Path) -> None:
    with pytest.raises(pyggml.ModelNotFoundError):
        llm.load_adapter(tmp_path / "none.gguf")
    with pytest.raises(pyggml.ModelLoadError, match="is not an adapter"):
        llm.load_adapter(model)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(pyggml.ModelLoadError, match="cut short"):
        llm.load_adapter(cut)


def test_tied_embedding_is_refused(tmp_path: Path, tiny_path: Path) -> None:
    """Upstream would add what was made for the embedding to the output, in another shape, and abort."""
    with pyggml.gguf.GGUFReader(tiny_path) as reader:
        weights = {name: reader.dequantized(name) for name in reader.tensors if name != "output.weight"}
        tied = models.write(tmp_path / "tied.gguf", dict(reader.metadata), weights)
    n_vocab, n_embd = weights["token_embd.weight"].shape
    tensors = {
        "token_embd.weight.lora_a": np.ones((n_vocab, 2), np.float32),
        "token_embd.weight.lora_b": np.ones((n_embd, 2), np.float32),
    }
    facts: dict[str, object] = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    file = lora_files.write_tensors(tmp_path / "e.gguf", facts, tensors, pyggml.gguf.GGMLType.F32)
    with pyggml.load(tied, n_ctx=256, device="cpu") as llm:
        with pytest.raises(pyggml.ModelLoadError, match="which is also the output matrix"):
            llm._engine.load_adapter(file)
        with pytest.raises(pyggml.InferError, match=r"token_embd\.weight"):
            llm.load_adapter(file)


def _resident_bytes() -> int:
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


@pytest.mark.slow
def test_memory_of_a_hundred(llm: pyggml.LLM, model: Path, tmp_path: Path) -> None:
    """It is what ``size_bytes`` says: once when they are loaded, and B once more in tiles when they are used."""
    rank, type = 48, pyggml.gguf.GGMLType.F32
    files = [lora_files.write_adapter(tmp_path / f"{n}.gguf", model, seed=n, rank=rank, type=type) for n in range(100)]
    with llm.load_adapter(files[0], "first"):  # what is allocated once
        llm.generate(PROMPT, adapter="first", max_tokens=1)
    before = _resident_bytes()
    adapters = [llm.load_adapter(file) for file in files]
    loaded, stated = _resident_bytes() - before, sum(each.size_bytes for each in adapters)
    assert stated > 100 * 10**6
    assert loaded == pytest.approx(stated, rel=0.1)
    for adapter in adapters:
        llm.generate(PROMPT, adapter=adapter.name, max_tokens=1)
    used, packed = _resident_bytes() - before, sum(each.size_bytes for each in adapters)
    assert 1.3 * stated < packed < 2 * stated
    assert used == pytest.approx(packed, rel=0.1)


@pytest.mark.slow
def test_hundred_adapters_and_a_thousand_loads(llm: pyggml.LLM, model: Path, tmp_path: Path) -> None:
    files = [lora_files.write_adapter(tmp_path / f"{seed}.gguf", model, seed=seed) for seed in range(100)]
    adapters = [llm.load_adapter(file) for file in files]
    first = [llm.generate(PROMPT, adapter=f"{seed}", max_tokens=4).token_ids for seed in range(100)]
    assert len({str(each) for each in first}) > 50
    for adapter in adapters:
        adapter.close()

    def cycle() -> int:
        for number in range(200):
            with llm.load_adapter(files[number % 100], "one"):
                llm.generate(PROMPT, adapter="one", max_tokens=1)
        return _resident_bytes()

    rss = [cycle() for _ in range(5)]
    assert rss[-1] < rss[0] * 1.03

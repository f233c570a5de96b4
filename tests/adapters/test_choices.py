"""Adapters to load with a model, as callers write them, and the defaults of requests."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import lora_files
from support.device_kinds import Shelf, prompt

import pyggml
from pyggml.options.adapter_choice import LoraSource, checked_lora

LOAD: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "device": "cpu"}


@pytest.fixture
def file(shelf: Shelf, tmp_path: Path) -> Path:
    return lora_files.write_adapter(tmp_path / "law.gguf", shelf("llama"))


@pytest.fixture
def llm(shelf: Shelf) -> Iterator[pyggml.LLM]:
    with pyggml.load(shelf("llama"), **LOAD) as llm:
        yield llm


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, []),
        ("a.gguf,b.gguf:0.5", [("a.gguf", None, 1.0), ("b.gguf", None, 0.5)]),
        ("x=a.gguf,y=a.gguf:0", [("a.gguf", "x", 1.0), ("a.gguf", "y", 0.0)]),
        (["a,b.gguf", "x=hf:o/r:2"], [("a,b.gguf", None, 1.0), ("hf:o/r", "x", 2.0)]),
        ({"x=a.gguf": 2, "b.gguf:1": 1}, [("a.gguf", "x", 2.0), ("b.gguf:1", None, 1.0)]),
        ("dir/rank=8/a.gguf:2", [("dir/rank=8/a.gguf", None, 2.0)]),
        (Path("x=a:3"), [("x=a:3", None, 1.0)]),
        ([Path("a,b")], [("a,b", None, 1.0)]),
        ("hf:org/repo", [("hf:org/repo", None, 1.0)]),
    ],
)
def test_forms(given: Any, expected: list[LoraSource]) -> None:
    assert checked_lora(given) == expected


@pytest.mark.parametrize("name", ["run:3", "a,b.gguf", "x=y.gguf", "x=y,z:2"])
def test_files_with_signs_in_their_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).touch()
    for given in (name, [name], Path(name), {name: 1.0}):
        assert checked_lora(given) == [(name, None, 1.0)]
    assert checked_lora([f"law={name}:0.5"]) == [(name, "law", 0.5)]
    assert checked_lora([f"law={name}"]) == [(name, "law", 1.0)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a.gguf,a.gguf:2", "lora names a.gguf twice"),
        (3, "lora must be"),
        ([3], "must be given as a path"),
        ({"a": "1"}, "the scale of a must be"),
        ("a:nan", "the scale of a must be a finite number"),
    ],
)
def test_refused_forms(given: Any, message: str) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        checked_lora(given)


def test_two_files_of_one_name(shelf: Shelf, file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    same = shutil.copy(file, tmp_path / "other" / "law.gguf")
    with pytest.raises(pyggml.InvalidParameterError, match=r"already an adapter 'law'.*lora= as NAME=FILE"):
        pyggml.load(shelf("llama"), **LOAD, lora=[file, same])
    forms: list[Any] = [
        [file, f"other={same}:0.5"],
        f"{file},other={same}:0.5",
        {str(file): 1, f"other={same}": 0.5},
    ]
    for lora in forms:
        with pyggml.load(shelf("llama"), **LOAD, lora=lora) as llm:
            assert dict(llm.default_adapters) == {"law": 1.0, "other": 0.5}


def test_closed_adapters_are_no_defaults(llm: pyggml.LLM, file: Path) -> None:
    law, tax = llm.load_adapter(file), llm.load_adapter(file, "tax")
    llm.default_adapters = {"law": 0.5, "tax": 1.0}
    law.close()
    assert dict(llm.default_adapters) == {"tax": 1.0}
    llm.load_adapter(file)  # another one of that name
    llm.default_adapters = {**llm.default_adapters, "law": 2.0}
    tax.close()
    assert dict(llm.default_adapters) == {"law": 2.0}


@pytest.mark.usefixtures("file")
def test_missing_files(llm: pyggml.LLM, tmp_path: Path) -> None:
    for name in ("none-at-all.gguf", "lew.gguf"):  # without a hint and with one
        with pytest.raises(pyggml.ModelNotFoundError, match="there is no adapter file at "):
            llm.load_adapter(tmp_path / name)


def test_coroutines(llm: pyggml.LLM, file: Path) -> None:
    async def use() -> list[int]:
        adapter = await llm.aload_adapter(file, "one", scale=0.5)
        assert (adapter.name, adapter.scale) == ("one", 0.5)
        done = await llm.agenerate(prompt(1, 9), adapter="one", max_tokens=3)
        await adapter.aclose()
        return list(done.token_ids)

    assert len(asyncio.run(use())) == 3
    assert llm.adapters == {}


def test_slots(shelf: Shelf, file: Path) -> None:
    """Cells belong to requests with the same adapters."""
    ids = prompt(7, 40)
    with pyggml.load(shelf("llama"), **LOAD, n_parallel=1, lora=file) as llm:
        for choice, other in ((None, {}), ("law", {"law": 0.5}), ({"law": 0.5}, "law"), ({}, None)):
            llm.reset()
            llm.generate(ids, max_tokens=1, adapter=choice, cache_salt="a")
            assert llm.slot_tokens(0, adapter=choice, cache_salt="a")[:40] == ids
            assert llm.slot_tokens(0, adapter=other, cache_salt="a") == llm.slot_tokens(0, adapter=choice) == []
            assert llm.erase_slot(0, adapter=other, cache_salt="a") == 0
            assert llm.erase_slot(0, adapter=choice, cache_salt="a") >= 40
        with pytest.raises(pyggml.InvalidParameterError, match="there is no adapter 'tax'"):
            llm.slot_tokens(0, adapter="tax")

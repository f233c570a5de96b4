"""LoRA adapters on the command line: ``convert --lora``, ``inspect`` and ``quantize --merge``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import adapters
from support.checkpoints.hf_llama import HFLlama
from support.command import called, fails

import pyggml as library
from pyggml.gguf import GGUFReader

LLAMA = HFLlama()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model as a directory and a GGUF file, and an adapter for it as PEFT saves it."""
    folder = tmp_path_factory.mktemp("adapters")
    LLAMA.write(folder / "base")
    library.convert(folder / "base", folder / "base.gguf", "f32")
    adapters.write_peft(folder / "peft", adapters.matrices(adapters.modules_of(LLAMA)))
    return folder


def test_from_a_directory_to_a_merged_model(folder: Path, tmp_path: Path) -> None:
    adapter, merged = tmp_path / "adapter.gguf", tmp_path / "merged.gguf"
    done = called("convert", "--lora", folder / "peft", adapter, "--base", folder / "base.gguf")
    assert done.code == 0
    assert done.out.startswith(f"{adapter}: llama, 7.42 thousand weights of 32 bits each, ")
    shown = called("inspect", adapter, "--base", folder / "base")
    assert shown.code == 0
    assert shown.out.startswith("peft\n")
    assert "  rank           4\n" in shown.out
    assert "  changes        14 weights\n" in shown.out
    done = called("quantize", "--merge", adapter, folder / "base.gguf", merged, "f32")
    assert f"note: merged {adapter} into 14 tensors" in done.out
    library.quantize(folder / "base.gguf", tmp_path / "expected.gguf", "f32", merge=folder / "peft")
    with GGUFReader(merged) as ours, GGUFReader(tmp_path / "expected.gguf") as theirs:
        for name in theirs.tensors:
            np.testing.assert_array_equal(ours.tensor(name), theirs.tensor(name))


def test_as_json(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "adapter.gguf"
    done = json.loads(called("convert", folder / "peft", out, "f16", "--base", folder / "base", "--json").out)
    assert (done["path"], done["types"]) == (str(out), {"F16": 28})
    report = json.loads(called("inspect", out, "--json").out)
    assert report["ranks"] == [4]
    assert report["targets"][0]["name"] == "blk.0.attn_q.weight"
    assert report["alpha"] == 8


def test_factors(folder: Path, tmp_path: Path) -> None:
    out, peft = tmp_path / "merged.gguf", folder / "peft"
    done = called("quantize", folder / "base.gguf", out, "f32", "--merge-scaled", peft, 0.5)
    assert f"note: merged {peft} into 14 tensors, times 0.5" in done.out
    twice = ("--merge", peft, "--merge-scaled", peft, 2)
    assert "an adapter was given twice" in fails(2, "quantize", folder / "base.gguf", out, "f32", "--force", *twice)


def test_mistakes(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert "is not a LoRA adapter" in fails(2, "convert", "--lora", folder / "base", out)
    assert "pass --base" in fails(1, "convert", "--lora", folder / "peft", out)
    assert "base is for LoRA adapters" in fails(1, "convert", folder / "base", out, "--base", folder / "base.gguf")
    assert "--base is for LoRA adapters" in fails(2, "inspect", folder / "base.gguf", "--base", folder / "base.gguf")
    assert "is not an adapter" in fails(
        1, "quantize", folder / "base.gguf", out, "f32", "--merge", folder / "base.gguf"
    )
    assert not out.exists()
    same = ("quantize", folder / "base.gguf", folder / "peft" / "adapter_model.safetensors", "f32")
    assert "exists: --force replaces it" in fails(1, *same)

"""Logits with adapters, against models with the same adapters merged into their weights."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import lora_files, models
from support.device_kinds import Logits, Shelf, prompt
from support.paths import TESTS

import pyggml
from pyggml.gguf import GGMLType

PROMPT = prompt(7)
OPTIONS: dict[str, Any] = {"n_ctx": 256, "n_threads": 2, "device": "cpu", "cache_type": "f32"}


def difference(a: Logits, b: Logits) -> float:
    """The root mean square of the difference, in standard deviations of the first.

    A relative change of the adapter's scale by 1e-7 makes up to 4e-5; single logits differ ten times as much.
    """
    return float(np.sqrt(((a - b) ** 2).mean()) / a.std())


def logits_with(model: Path, adapters: Sequence[tuple[Path, float]]) -> Logits:
    with pyggml.load(model, **OPTIONS) as llm:
        for number, (file, _) in enumerate(adapters):
            llm.load_adapter(file, f"{number}")
        return llm.logits(PROMPT, adapter={f"{number}": scale for number, (_, scale) in enumerate(adapters)})


def logits_merged(model: Path, adapters: Sequence[tuple[Path, float]], folder: Path) -> Logits:
    with pyggml.load(lora_files.merged(folder / "merged.gguf", model, adapters), **OPTIONS) as llm:
        return llm.logits(PROMPT)


# A mixture of experts chooses others where two are nearly equal.
@pytest.mark.slow_except("llama", "qwen3")
@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "qwen3", "gemma3", "phi3", "mixtral", "gpt-oss", "window", "jamba"]
)
def test_as_merged_into_the_weights(family: str, shelf: Shelf, tmp_path: Path) -> None:
    model = shelf(family)
    file = lora_files.write_adapter(tmp_path / "adapter.gguf", model)
    found = logits_with(model, [(file, 1.0)])
    assert difference(logits_merged(model, [(file, 1.0)], tmp_path), found) < 1e-4
    assert difference(logits_with(model, []), found) > 0.05


@pytest.mark.parametrize("type", [GGMLType.F16, GGMLType.BF16, GGMLType.F32], ids=["f16", "bf16", "f32"])
def test_types_ranks_and_scales(type: GGMLType, shelf: Shelf, tmp_path: Path) -> None:
    model = shelf("llama")
    one = lora_files.write_adapter(tmp_path / "one.gguf", model, rank=13, type=type)
    other = lora_files.write_adapter(tmp_path / "other.gguf", model, seed=2, rank=1, alpha=None, type=type)
    adapters = [(one, 0.5), (other, -1.25)]
    assert difference(logits_merged(model, adapters, tmp_path), logits_with(model, adapters)) < 1e-4


def test_output_weights(shelf: Shelf, tmp_path: Path) -> None:
    model = shelf("llama")
    file = lora_files.write_adapter(tmp_path / "adapter.gguf", model, chosen=lambda name: name == "output.weight")
    adapters = [(file, 1.0)]
    assert difference(logits_merged(model, adapters, tmp_path), logits_with(model, adapters)) < 1e-4


def embedded(shelf: Shelf, folder: Path) -> float:
    """Upstream adds what changes the embedding: our kernels compute only products."""
    model = shelf("llama")
    file = folder / "adapter.gguf"
    rng = np.random.default_rng(0)
    with pyggml.gguf.GGUFReader(model) as reader:
        n_vocab, n_embd = reader.tensors["token_embd.weight"].shape
        table = reader.dequantized("token_embd.weight")
        metadata = dict(reader.metadata)
        weights = {name: reader.dequantized(name) for name in reader.tensors}
    a, b = (rng.standard_normal((n, 3)).astype(np.float32) * 0.3 for n in (n_vocab, n_embd))
    facts = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    tensors = {"token_embd.weight.lora_a": a, "token_embd.weight.lora_b": b}
    lora_files.write_tensors(file, dict(facts), tensors, GGMLType.F32)
    merged = models.write(folder / "merged.gguf", metadata, weights | {"token_embd.weight": table + a @ b.T})
    with pyggml.load(merged, **OPTIONS) as llm:
        reference = llm.logits(PROMPT)
    return difference(reference, logits_with(model, [(file, 1.0)]))


def test_embedding(shelf: Shelf, tmp_path: Path) -> None:
    assert embedded(shelf, tmp_path) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("ftype", ["q8_0", "q4_k_m", "f16", "bf16"])
def test_quantised_base(ftype: str, shelf: Shelf, tmp_path: Path) -> None:
    """With an adapter, the error of quantised weights is what it is without: the low-rank part is exact."""
    model = shelf("llama")
    file = lora_files.write_adapter(tmp_path / "adapter.gguf", model)
    own = difference(logits_with(model, []), logits_with(shelf("llama", ftype), []))
    adapted = difference(
        logits_merged(model, [(file, 1.0)], tmp_path), logits_with(shelf("llama", ftype), [(file, 1.0)])
    )
    assert adapted < 2 * own + 1e-4


@pytest.mark.slow
def test_without_kernels() -> None:
    """Upstream computes the same: in groups, without our kernels."""
    code = (
        "import sys, tempfile, pathlib; from adapters import test_logits as t; from support.device_kinds import Shelf\n"
        "folder = pathlib.Path(tempfile.mkdtemp()); shelf = Shelf(folder); model = shelf('llama')\n"
        "files = [(t.lora_files.write_adapter(folder / f'{i}.gguf', model, seed=i), 0.5 + i) for i in (0, 1)]\n"
        "found = t.difference(t.logits_merged(model, files, folder), t.logits_with(model, files))\n"
        "sys.exit(0 if found < 1e-3 else f'{found}')"
    )
    env = os.environ | {"PYGGML_KERNELS": "off", "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Imported mixtures of experts: what they take, in every mixture of types, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import models
import pytest
import test_import_references as references

import pyggml
from pyggml import Context, Model

# One of each architecture that has experts.
MIXTURES = ("mixtral", "qwen2 moe", "qwen3 moe")


@pytest.mark.parametrize("outtype", ["q8_0", "q4_k_m"])
@pytest.mark.parametrize("name", MIXTURES)
def test_is_quantised_on_the_way(tmp_path: Path, name: str, outtype: str) -> None:
    model = references.write(tmp_path / "hf", name)
    report = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", outtype)
    # Small matrices are left at 16 bits where no block type divides their rows; experts are not among them.
    assert any(type.startswith("Q") for type in report.types)
    expected = references.RECORD[f"{name}/logits"]
    with (
        Model(tmp_path / "model.gguf", device="cpu") as loaded,
        Context(loaded, n_ctx=model["n_ctx"], n_threads=1) as context,
    ):
        context.decode(references.RECORD[f"{name}/prompt"].tolist())
        found = context.logits()[-1]
    # 4 bits turn the choice of an expert here and there; what is computed stays the same function.
    correlation = float(((found - found.mean()) * (expected[-1] - expected[-1].mean())).mean())
    assert correlation > 0.7 * float(found.std() * expected[-1].std())


@pytest.mark.parametrize("name", MIXTURES)
def test_memory_is_estimated_before_the_import(tmp_path: Path, name: str) -> None:
    references.write(tmp_path / "hf", name)
    estimate = pyggml.inspect(tmp_path / "hf").estimate(n_ctx=256)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert estimate.weights_bytes == pyggml.inspect(tmp_path / "model.gguf").estimate(n_ctx=256).weights_bytes


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("qwen2 moe", "norm_topk_prob", True),
        ("qwen2 moe", "mlp_only_layers", [0]),
        ("qwen3 moe", "norm_topk_prob", False),
        ("qwen3 moe", "decoder_sparse_step", 2),
    ],
)
def test_what_the_engine_computes_otherwise_is_refused_by_name(
    tmp_path: Path, name: str, key: str, value: object
) -> None:
    references.write(tmp_path / "hf", name)
    set_key(tmp_path / "hf", key, value)
    with pytest.raises(pyggml.UnsupportedArchitectureError, match=f"{key} is "):
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")


def test_a_window_of_qwen_limits_the_context(tmp_path: Path) -> None:
    """Dense Qwen has no window if max_window_layers is large; mixtures ignore that key."""
    references.write(tmp_path / "hf", "qwen3 moe")
    set_key(tmp_path / "hf", "use_sliding_window", True)
    set_key(tmp_path / "hf", "sliding_window", 100)
    set_key(tmp_path / "hf", "max_window_layers", 48)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert models.metadata_of(tmp_path / "model.gguf")["pyggml.context_limit"] == 100


def set_key(directory: Path, key: str, value: object) -> None:
    path = directory / "config.json"
    config: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps({**config, key: value}))

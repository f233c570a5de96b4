"""Import of mixtures of experts; see also test_references.py."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from importer import test_references as references
from support.checkpoints import checkpoints, models

import pyggml
from pyggml.gguf import GGUFReader

# Every E2M1 number, as https://arxiv.org/abs/2310.10537 gives them.
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def test_a_window_of_qwen_limits_the_context(tmp_path: Path) -> None:
    """Dense Qwen has no window if max_window_layers is large; mixtures ignore that key."""
    references.write(tmp_path / "hf", "qwen3 moe")
    change(tmp_path / "hf", use_sliding_window=True, sliding_window=100, max_window_layers=48)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert models.metadata_of(tmp_path / "model.gguf")["pyggml.context_limit"] == 100


@pytest.mark.parametrize(("first", "limit"), [(0, 100), (1, 100), (48, None)])
def test_a_window_of_dense_qwen_begins_at_a_layer(tmp_path: Path, first: int, limit: int | None) -> None:
    references.write(tmp_path / "hf", "qwen2")
    change(tmp_path / "hf", layer_types=None, use_sliding_window=True, sliding_window=100, max_window_layers=first)
    assert pyggml.inspect(tmp_path / "hf").plan.n_ctx_limit == limit


def test_mxfp4_stays_as_it_is(tmp_path: Path) -> None:
    model = references.write(tmp_path / "hf", "gpt-oss, mxfp4")
    report = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert report.types["MXFP4"] == 9
    with GGUFReader(tmp_path / "model.gguf") as reader:
        for i in range(3):
            both = dequantized(model, f"model.layers.{i}.mlp.experts.gate_up_proj")
            down = dequantized(model, f"model.layers.{i}.mlp.experts.down_proj")
            np.testing.assert_array_equal(reader.dequantized(f"blk.{i}.ffn_gate_exps.weight"), both[:, 0::2])
            np.testing.assert_array_equal(reader.dequantized(f"blk.{i}.ffn_up_exps.weight"), both[:, 1::2])
            np.testing.assert_array_equal(reader.dequantized(f"blk.{i}.ffn_down_exps.weight"), down)


def test_mxfp4_can_be_quantised_further_or_not_at_all(tmp_path: Path) -> None:
    references.write(tmp_path / "hf", "gpt-oss, mxfp4")
    assert "MXFP4" not in pyggml.convert(tmp_path / "hf", tmp_path / "q8.gguf", "q8_0").types
    assert set(pyggml.convert(tmp_path / "hf", tmp_path / "f32.gguf", "f32").types) == {"F32"}
    assert pyggml.convert(tmp_path / "hf", tmp_path / "mxfp4.gguf", "mxfp4_moe").types["MXFP4"] == 9


@pytest.mark.parametrize("name", ["gate_up_proj_blocks", "down_proj_scales"])
def test_mxfp4_of_another_shape_is_refused(tmp_path: Path, name: str) -> None:
    model = references.write(tmp_path / "hf", "gpt-oss, mxfp4")
    shapes = {tensor: tuple(shape) for tensor, shape in model["shapes"].items()}
    broken = f"model.layers.1.mlp.experts.{name}"
    shapes[broken] = (shapes[broken][0], shapes[broken][1] - 1, *shapes[broken][2:])
    checkpoints.write_shards(
        tmp_path / "hf", {tensor: checkpoints.drawn(tensor, shapes[tensor]) for tensor in shapes}, 2
    )
    with pytest.raises(pyggml.ModelLoadError, match=f"{broken}' has shape"):
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")


def test_bounds_that_the_engine_rounds_are_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Everything about gpt-oss equals transformers but the bounds of yarn, which the engine takes as whole columns."""
    config = references.write(tmp_path / "hf", "gpt-oss")["config"]
    pyggml.convert(tmp_path / "hf", tmp_path / "whole.gguf")
    change(tmp_path / "hf", rope_parameters={**config["rope_parameters"], "truncate": False})
    note, *_ = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf").notes
    assert note.startswith("the engine rounds the bounds")
    whole, rounded = (models.metadata_of(tmp_path / f"{name}.gguf") for name in ("whole", "model"))
    assert str(whole) == str(rounded)
    with caplog.at_level(logging.WARNING, "pyggml"), pyggml.load(tmp_path / "hf", n_ctx=64, n_threads=1):
        assert any(note in record.getMessage() for record in caplog.records)


def test_llama_4_as_it_was_published(tmp_path: Path) -> None:
    """Its first configurations had a number for a switch, and a key for another program."""
    config = references.write(tmp_path / "new", "llama 4 that sees")["config"]
    text = {key: value for key, value in config["text_config"].items() if key != "layer_types"}
    text |= {"attn_temperature_tuning": 4, "for_llm_compressor": False, "no_rope_layers": []}
    references.write(tmp_path / "old", "llama 4 that sees")
    change(tmp_path / "old", text_config=text)
    for directory in ("new", "old"):
        pyggml.convert(tmp_path / directory, tmp_path / f"{directory}.gguf")
    new, old = (models.metadata_of(tmp_path / f"{directory}.gguf") for directory in ("new", "old"))
    assert as_texts(new) == {**as_texts(old), "general.name": "new"}


@pytest.mark.slow
def test_experts_of_llama_4_may_be_stored_one_by_one(tmp_path: Path) -> None:
    """As quantised checkpoints have them: each a matrix of its own, with rows for outputs."""
    model = references.write(tmp_path / "stacked", "llama 4")
    references.write(tmp_path / "single", "llama 4")
    tensors: dict[str, Any] = {}
    for name, shape in model["shapes"].items():
        stored = checkpoints.drawn(name, tuple(shape))
        if len(shape) == 2 or not name.endswith("_proj"):
            tensors[name] = stored
            continue
        for expert, matrix in enumerate(np.swapaxes(stored.data, 1, 2)):
            parts = {"gate_proj": matrix[: len(matrix) // 2], "up_proj": matrix[len(matrix) // 2 :]}
            for part, rows in (parts if name.endswith("gate_up_proj") else {"down_proj": matrix}).items():
                module = name.rpartition(".")[0]
                tensors[f"{module}.{expert}.{part}.weight"] = checkpoints.Stored("BF16", np.ascontiguousarray(rows))
    checkpoints.write_shards(tmp_path / "single", tensors, 2)
    for form in ("stacked", "single"):
        pyggml.convert(tmp_path / form, tmp_path / f"{form}.gguf")
    with GGUFReader(tmp_path / "stacked.gguf") as stacked, GGUFReader(tmp_path / "single.gguf") as single:
        assert list(stacked.tensors) == list(single.tensors)
        for name in stacked.tensors:
            np.testing.assert_array_equal(stacked.tensor(name), single.tensor(name))


def as_texts(metadata: dict[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in metadata.items()}


def change(directory: Path, **keys: object) -> None:
    path = directory / "config.json"
    config: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **keys}))


def dequantized(model: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
    """A checkpoint's MXFP4 as the paper describes it: float32, (n_experts, n_rows, n_columns)."""
    shapes = model["shapes"]
    pairs, exponents = (
        np.asarray(checkpoints.drawn(each, tuple(shapes[each]))) for each in (f"{name}_blocks", f"{name}_scales")
    )
    numbers = E2M1[np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*pairs.shape[:-1], 32)]
    values = numbers * 2.0 ** (exponents.astype(np.float64)[..., None] - 127)
    return values.reshape(*pairs.shape[:2], -1).astype(np.float32)

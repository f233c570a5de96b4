"""Imported encoders give the vectors and scores of transformers with the same weights.

``tools/record_encoders.py`` wrote down what that was, with the configurations and tensor names that transformers gave.
The weights follow from the names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.checkpoints import checkpoints, models, tokenizer_files
from support.paths import DATA

import pyggml
from pyggml import Context, Model
from pyggml.options.embedding_profile import read_profile

RECORD = np.load(DATA / "encoders.npz")
MODELS: dict[str, dict[str, Any]] = {
    name.removesuffix("/model"): json.loads(str(RECORD[name])) for name in RECORD.files if name.endswith("/model")
}
RERANKERS = [name for name in MODELS if "reranker" in name]
EMBEDDERS = [name for name in MODELS if name not in RERANKERS]


def write(directory: Path, name: str, **changes: Any) -> dict[str, Any]:
    """Write a recorded case's directory, and return its configuration."""
    model = MODELS[name]
    directory.mkdir()
    tensors = {tensor: checkpoints.drawn(tensor, tuple(shape)) for tensor, shape in model["shapes"].items()}
    checkpoints.write(directory / "model.safetensors", tensors)
    config: dict[str, Any] = {**model["config"], **changes}
    (directory / "config.json").write_text(json.dumps(config))
    tokenizer_files.write_json(directory, models.byte_vocabulary())
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    return config


def token_vectors(path: Path, ids: list[int]) -> npt.NDArray[np.float32]:
    with (
        Model(path, device="cpu") as model,
        Context(
            model, n_ctx=256, n_batch=256, n_threads=1, flash_attn="off", embeddings=True, pooling="none"
        ) as context,
    ):
        context.decode(ids, output="all")
        return context.embeddings()


def scores(path: Path, pairs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    with (
        Model(path, device="cpu") as model,
        Context(
            model, n_ctx=256, n_batch=256, n_threads=1, flash_attn="off", embeddings=True, pooling="rank"
        ) as context,
    ):
        found = []
        for ids in pairs.tolist():
            if context.has_memory:
                context.memory_clear()
            context.decode(ids, output="all")
            found.append(context.embeddings_seq(0)[0])
        return np.array(found)


def metadata_of(path: Path) -> dict[str, str]:
    with Model(path, vocab_only=True) as model:
        return model.metadata


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    write(tmp_path / "hf", name)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    expected = RECORD[f"{name}/result"]
    found = token_vectors(tmp_path / "model.gguf", RECORD[f"{name}/ids"][0].tolist())
    assert found.shape == expected.shape
    cosine = (found * expected).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert cosine.min() >= 0.9999
    assert np.abs(found - expected).max() <= 2e-2 * expected.std()


@pytest.mark.parametrize("name", RERANKERS)
def test_scores_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    write(tmp_path / "hf", name)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    expected = RECORD[f"{name}/result"][:, 0]
    ids, types = RECORD[f"{name}/ids"], RECORD[f"{name}/types"].astype(np.int32)
    second = read_profile(metadata_of(tmp_path / "model.gguf")).second_text_ids or 0
    assert bool(second) == bool(types.any())
    found = scores(tmp_path / "model.gguf", ids + second * types)
    if MODELS[name]["config"]["model_type"] == "qwen3":  # the engine computes the probability
        found = np.log(found / (1 - found))
    assert np.abs(found - expected).max() <= 2e-3  # the engine approximates GELU

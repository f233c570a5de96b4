"""Imported adapters give the logits of transformers and peft, for models of several architectures.

``tools/compare_with_peft.py --record`` wrote down what those were, with the settings and tensor names of peft. The
weights follow from the names, and the base models are those of test_references.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import adapters, checkpoints, models, tokenizer_files
from support.paths import DATA

import pyggml

RECORD = np.load(DATA / "peft.npz")
BASES = np.load(DATA / "transformers.npz")
CASES = [name.removesuffix("/adapter") for name in RECORD.files if name.endswith("/adapter")]

#: Whose rows are reordered by sizes that a GGUF file does not state as a checkpoint does.
NEEDS_DIRECTORY = ("qwen3-next",)


def write_base(directory: Path, name: str) -> None:
    model = json.loads(str(BASES[f"{name}/model"]))
    directory.mkdir()
    tensors = {name: checkpoints.drawn(name, tuple(shape)) for name, shape in model["shapes"].items()}
    checkpoints.write(directory / "model.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps(model["config"]))
    tokenizer_files.write_json(directory, models.byte_vocabulary())


def drawn(name: str, shape: tuple[int, ...]) -> Any:
    """A tensor of an adapter: its own, or a copy of the base model's, which peft stores with an embedding's."""
    own = name.removeprefix(adapters.PREFIX)
    return checkpoints.drawn(name if "lora_" in name else own.replace(".base_layer", ""), shape)


@pytest.mark.slow_except("llama", "phi-3", "mixtral")
@pytest.mark.parametrize("name", CASES)
def test_computes_what_peft_did(tmp_path: Path, name: str) -> None:
    about = json.loads(str(RECORD[f"{name}/adapter"]))
    write_base(tmp_path / "base", about["base"])
    pyggml.convert(tmp_path / "base", tmp_path / "base.gguf", "f32")
    tensors = {key: drawn(key, tuple(shape)) for key, shape in about["shapes"].items()}
    directory = adapters.write_peft(tmp_path / "adapter", tensors, **about["config"])
    prompt, expected = RECORD[f"{name}/prompt"].tolist(), RECORD[f"{name}/logits"]
    for base in ("base", "base.gguf"):
        if base == "base.gguf" and name in NEEDS_DIRECTORY:
            with pytest.raises(pyggml.UnsupportedArchitectureError, match="give the directory of the base model"):
                pyggml.convert(directory, tmp_path / "adapter.gguf", base=tmp_path / base)
            continue
        pyggml.convert(directory, tmp_path / "adapter.gguf", base=tmp_path / base)
        pyggml.quantize(tmp_path / "base.gguf", tmp_path / "merged.gguf", "f32", merge=tmp_path / "adapter.gguf")
        with (
            pyggml.Model(tmp_path / "merged.gguf", device="cpu") as model,
            pyggml.Context(model, n_ctx=256, n_threads=1, flash_attn="off", cache_type="f32") as context,
        ):
            context.decode(prompt, output="all")
            found = context.logits()[-len(expected) :]
        assert np.abs(found - expected).max() <= 5e-3 * expected.std()

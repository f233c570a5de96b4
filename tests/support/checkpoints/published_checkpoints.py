"""Checkpoints with published configurations, and what the engine computes with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyggml import Context, Model
from support.checkpoints import checkpoints, models, tokenizer_files
from support.checkpoints.published import N_KEPT, N_VOCAB


def write(directory: Path, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """A checkpoint with a tokenizer of bytes."""
    directory.mkdir()
    checkpoints.write(directory / "model.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    return tokenizer_files.write_json(directory, models.byte_vocabulary("</s>", "<unk>")).parent


def logits_of(path: Path, prompt: list[int]) -> Any:
    """Return the engine's logits for the last positions, of the first tokens: (n_kept, n_vocab)."""
    with (
        Model(path, device="cpu") as loaded,
        Context(loaded, n_ctx=256, n_threads=1, flash_attn="off", cache_type="f32") as context,
    ):
        context.decode(prompt, output="all")
        return context.logits()[-N_KEPT:, :N_VOCAB]

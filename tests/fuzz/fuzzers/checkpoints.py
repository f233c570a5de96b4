"""Damaged checkpoints: each is imported, or refused by an InferError; nothing else happens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoints import checkpoints
from support.checkpoints.formats import FORMATS
from support.checkpoints.hf_llama import HFLlama

import pyggml
from fuzz.damage import with_changed_bytes, with_changed_value
from pyggml.errors import InferError

MAX_SECONDS = 30.0
MAX_MESSAGE = 2000

#: Formats that are tried, and further settings in their configurations.
BESIDES: dict[str, dict[str, Any]] = {
    "w8a8": {},
    "mixed": {
        "sparsity_config": {"format": "dense"},
        "transform_config": {"config_groups": {"R1": {"apply": [{"location": "weight_input"}]}}},
    },
    "nvfp4": {},
    "fp8": {"modules_to_not_convert": ["lm_head"], "ignored_layers": ["lm_head"]},
    "gptq": {"dynamic": {"+:.*q_proj": {"bits": 4}, "-:nothing": {}}},
    "awq": {"modules_to_not_convert": ["lm_head"]},
    "auto-round": {"extra_config": {"lm_head": {"bits": 16}}},
}


def make_plain(directory: Path) -> Path:
    """A small checkpoint that has everything that can be damaged."""
    return llama().write(directory, stored="BF16", n_shards=2)


def llama() -> HFLlama:
    small = HFLlama(n_embd=32, n_head=2, n_head_kv=1, head_dim=16, n_ff=32, n_layer=1)
    small.config |= {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "attention_bias": False}
    return small


def make_quantized(directory: Path, name: str) -> Path:
    """The same, quantised in a format, and with what its configuration can say besides."""
    model, format = llama(), FORMATS[name]
    tensors: dict[str, Any] = dict(model.weights)
    for weight in [weight for weight in tensors if weight.endswith("_proj.weight")]:
        layer, _ = format.layer(weight.removesuffix(".weight"), tensors.pop(weight))
        tensors |= {weight.removesuffix("weight") + suffix: data for suffix, data in layer.items()}
    settings: dict[str, Any] = {**format.config["quantization_config"], **BESIDES.get(name, {})}
    model.config["quantization_config"] = settings
    return model.write_tensors(directory, tensors, n_shards=2)


def damage(directory: Path, random: np.random.Generator) -> str:
    """Damages one file, and says how."""
    file = random.choice(sorted(path for path in directory.iterdir() if path.is_file()))
    content = file.read_bytes()
    n_head = 8 + int.from_bytes(content[:8], "little") if file.suffix == ".safetensors" else len(content)
    kind = random.choice(["bytes", "cut", "value", "key"])
    if kind == "cut":
        file.write_bytes(content[: int(random.integers(len(content)))])
    elif kind == "bytes":
        file.write_bytes(with_changed_bytes(content[:n_head], random) + content[n_head:])
    elif file.suffix == ".safetensors":
        entries = with_changed_value(json.loads(content[8:n_head]), random, kind == "key")
        file.write_bytes(checkpoints.file(entries, content[n_head:]))
    else:
        file.write_text(json.dumps(with_changed_value(json.loads(content), random, kind == "key")))
    return f"{kind} of {file.name}"


def prepare(folder: Path) -> list[Path]:
    quantized = [make_quantized(folder / name, name) for name in BESIDES]
    plain = make_plain(folder / "good")
    return [directory for each in quantized for directory in (plain, each)]


def make(random: np.random.Generator) -> list[Any]:
    """Choose a checkpoint, and the seed of the damage to it."""
    return [["checkpoint", int(random.integers(1 << 20))], ["damage", int(random.integers(1 << 30))]]


def run(prepared: list[Path], parts: list[Any], folder: Path) -> str:
    which = next((number for kind, number in parts if kind == "checkpoint"), 0)
    directory = Path(shutil.copytree(prepared[which % len(prepared)], folder / "hf"))
    for seed in [number for kind, number in parts if kind == "damage"]:
        damage(directory, np.random.default_rng(seed))
    outcome = outcome_of(directory, folder / "out.gguf")
    assert outcome != "InvalidParameterError"  # no argument was wrong
    shutil.rmtree(directory)
    left = [path.name for path in folder.iterdir()]
    assert not left, f"something is left: {left}"
    return outcome


def outcome_of(directory: Path, out: Path) -> str:
    """Imports, and loads what came of it."""
    try:
        pyggml.convert(directory, out, n_threads=1)
    except InferError as error:
        if len(str(error)) > MAX_MESSAGE:
            raise
        return type(error).__name__
    try:
        with pyggml.Model(out, device="cpu"):
            return "imported"
    except InferError as error:
        return f"imported, and then {type(error).__name__}"
    finally:
        out.unlink()

"""LoRA adapters, good and broken: PEFT directories and GGUF files, and what they change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.gguf import GGMLType, GGUFWriter, ValueType
from support.checkpoints import checkpoints
from support.checkpoints.hf_llama import HFLlama

Floats = npt.NDArray[np.float32]

PREFIX = "base_model.model."
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def matrices(
    shapes: Mapping[str, tuple[int, int]], rank: int | Mapping[str, int] = 4, seed: int = 0
) -> dict[str, Floats]:
    """Random lora_A and lora_B for modules of these shapes, by the names that PEFT gives them.

    Args:
        shapes: module -> (n_out, n_in).
        rank: of all modules, or of each.
        seed: of the values.
    """
    random = np.random.default_rng(seed)
    found = {}
    for module, (n_out, n_in) in shapes.items():
        r = rank if isinstance(rank, int) else rank[module]
        found[f"{PREFIX}{module}.lora_A.weight"] = (random.standard_normal((r, n_in)) / np.sqrt(n_in)).astype(
            np.float32
        )
        found[f"{PREFIX}{module}.lora_B.weight"] = random.standard_normal((n_out, r)).astype(np.float32)
    return found


def modules_of(llama: HFLlama, names: Iterable[str] = LINEAR) -> dict[str, tuple[int, int]]:
    """The linear modules of a Llama with these names, in every block, and their shapes."""
    found: dict[str, tuple[int, int]] = {}
    for name, weight in llama.weights.items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] in names:
            n_out, n_in = weight.shape
            found[module] = (n_out, n_in)
    return found


def write_peft(directory: Path, tensors: Mapping[str, Any], **config: Any) -> Path:
    """A PEFT directory with these tensors; ``config`` replaces settings, and None removes them."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "made/base",
        "r": 4,
        "lora_alpha": 8,
        "lora_dropout": 0.05,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "target_modules": list(LINEAR),
        **config,
    }
    settings = {key: value for key, value in settings.items() if value is not None}
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    checkpoints.write(directory / "adapter_model.safetensors", tensors)
    return directory


def write_gguf(
    path: Path,
    tensors: Mapping[str, npt.NDArray[Any]],
    types: Mapping[str, GGMLType] | None = None,
    **metadata: Any,
) -> Path:
    """A GGUF adapter with these tensors, F32 unless they have another type.

    ``metadata`` replaces keys, with ``__`` for dots, and None removes them; a value may be a pair of value and type.
    """
    pairs: dict[str, Any] = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "general.name": "made adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": 8.0,
        **{key.replace("__", "."): value for key, value in metadata.items()},
    }
    with GGUFWriter(path) as writer:
        for key, value in pairs.items():
            if value is not None:
                value, type = value if isinstance(value, tuple) else (value, None)
                writer.set(key, value, type)
        for name, data in tensors.items():
            type = (types or {}).get(name, GGMLType.F32)
            shape = data.shape if data.dtype != np.uint8 else _unpacked(data.shape, type)
            writer.add_tensor(name, shape, type)
        for name, data in tensors.items():
            writer.write_tensor(name, data)
    return path


def _unpacked(shape: tuple[int, ...], type: GGMLType) -> tuple[int, ...]:
    return (*shape[:-1], shape[-1] // type.block_bytes * type.block_size)


def tokens(*ids: int) -> tuple[list[int], ValueType]:
    """Invocation tokens of an activated LoRA, for :func:`write_gguf`."""
    return list(ids), ValueType.UINT32


def with_adapter(llama: HFLlama, tensors: Mapping[str, Floats], scale: Any) -> HFLlama:
    """The same Llama with an adapter merged into its weights, by the definition: W + scale * B @ A.

    Args:
        llama: the model.
        tensors: the adapter, as :func:`matrices` returns it.
        scale: of all modules, or a function of the module's name.
    """
    merged = HFLlama(**{name: getattr(llama, name) for name in _SIZES})
    merged.config = dict(llama.config)
    merged.weights = dict(llama.weights)
    for name, a in tensors.items():
        if name.endswith(".lora_A.weight"):
            module = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
            b = tensors[f"{PREFIX}{module}.lora_B.weight"].astype(np.float64)
            factor = scale(module) if callable(scale) else scale
            change = factor * (b @ a.astype(np.float64))
            merged.weights[f"{module}.weight"] = (merged.weights[f"{module}.weight"] + change).astype(np.float32)
    return merged


_SIZES = ("n_embd", "n_head", "n_head_kv", "head_dim", "n_ff", "n_layer", "seed", "n_vocab")

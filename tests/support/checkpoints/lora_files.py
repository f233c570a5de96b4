"""LoRA adapters as GGUF files, made by numpy for a model's file, and models with adapters merged into their weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml.gguf import GGMLType, GGUFReader, GGUFWriter
from support.checkpoints import models

Floats = npt.NDArray[np.float32]

#: Weights of products that adapters change, by the end of their names; not the embedding, norms and biases.
PRODUCTS = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_down_exps",
)

_NUMPY = {GGMLType.F32: np.float32, GGMLType.F16: np.float16}


def is_product(name: str) -> bool:
    """True for the weights of a product in a layer."""
    return name.startswith("blk.") and name.removesuffix(".weight").partition(".")[2].partition(".")[2] in PRODUCTS


def write_adapter(
    path: Path,
    model: Path,
    *,
    seed: int = 1,
    rank: int = 4,
    alpha: float | None = 8.0,
    type: GGMLType = GGMLType.F32,
    size: float = 0.3,
    chosen: Callable[[str], bool] = is_product,
    **metadata: object,
) -> Path:
    """A random adapter.

    Args:
        path: the file to write.
        model: the file of its model.
        seed: of its values.
        rank: of its products.
        alpha: numerator of their scale; None: the file has none.
        type: of its tensors.
        size: standard deviation of its products relative to that of the weights, about.
        chosen: True for names of weights that it changes.
        metadata: more keys, with ``__`` for dots; None leaves a key out.
    """
    rng = np.random.default_rng(seed)
    with GGUFReader(model) as reader:
        architecture = reader.metadata["general.architecture"]
        shapes = {name: info.shape for name, info in reader.tensors.items() if chosen(name)}
    scale = 1.0 if alpha is None else alpha / rank
    tensors: dict[str, Floats] = {}
    for name, (*experts, n_out, n_in) in shapes.items():
        a = rng.standard_normal((*experts, rank, n_in)) / np.sqrt(n_in)
        b = rng.standard_normal((*experts, n_out, rank)) * size / np.sqrt(rank) / abs(scale)
        tensors |= {f"{name}.lora_a": a.astype(np.float32), f"{name}.lora_b": b.astype(np.float32)}
    facts: dict[str, object] = {
        "general.type": "adapter",
        "general.architecture": architecture,
        "adapter.type": "lora",
        "adapter.lora.alpha": None if alpha is None else np.float32(alpha),
    }
    facts |= {key.replace("__", "."): value for key, value in metadata.items()}
    return write_tensors(path, facts, tensors, type)


def write_embedding_adapter(path: Path, model: Path, *, seed: int) -> Path:
    """A random adapter of a llama's embedding, which is no product."""
    rng = np.random.default_rng(seed)
    with GGUFReader(model) as reader:
        n_vocab, n_embd = reader.tensors["token_embd.weight"].shape
    a, b = (rng.standard_normal((n, 3)).astype(np.float32) * 0.3 for n in (n_vocab, n_embd))
    facts: dict[str, object] = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    tensors = {"token_embd.weight.lora_a": a, "token_embd.weight.lora_b": b}
    return write_tensors(path, facts, tensors, GGMLType.F32)


def write_tensors(path: Path, facts: dict[str, object], tensors: dict[str, Floats], type: GGMLType) -> Path:
    """A GGUF file of metadata and tensors, all of one type."""
    with GGUFWriter(path) as writer:
        for key, value in facts.items():
            if value is not None:
                writer.set(key, value)
        for name, data in tensors.items():
            writer.add_tensor(name, data.shape, type)
        for name, data in tensors.items():
            writer.write_tensor(name, _stored(data, type))
    return path


def _stored(data: Floats, type: GGMLType) -> npt.NDArray[np.generic]:
    if type == GGMLType.BF16:
        return (np.ascontiguousarray(data).view(np.uint32) >> 16).astype(np.uint16)
    return data.astype(_NUMPY[type])


def merged(path: Path, model: Path, adapters: Sequence[tuple[Path, float]]) -> Path:
    """A copy of a model of 32-bit floats with adapters in its weights, each with a scale."""
    with GGUFReader(model) as reader:
        metadata = dict(reader.metadata)
        weights = {name: reader.dequantized(name).astype(np.float64) for name in reader.tensors}
    for file, scale in adapters:
        with GGUFReader(file) as reader:
            alpha = reader.metadata.get("adapter.lora.alpha")
            for name in reader.tensors:
                if name.endswith(".lora_a"):
                    target = name.removesuffix(".lora_a")
                    a, b = (reader.dequantized(f"{target}.lora_{each}").astype(np.float64) for each in "ab")
                    *experts, n_out, n_in = weights[target].shape
                    a = a.reshape(*experts, -1, n_in)  # the file does not tell a rank of 1
                    b = b.reshape(*experts, n_out, -1)
                    factor = scale if alpha is None else scale * float(alpha) / b.shape[-1]  # type: ignore[arg-type]
                    weights[target] += factor * (b @ a)
    return models.write(path, metadata, {name: each.astype(np.float32) for name, each in weights.items()})

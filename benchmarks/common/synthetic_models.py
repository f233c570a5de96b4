"""Models for measuring: random weights in the shapes of real ones, with real vocabularies, as Q4_K_M unless asked.

    python benchmarks/common/synthetic_models.py   make all SHAPES (a few minutes, 2 GB; 2.5 GB more while it works)

They are made once, in a scratch folder, from the vocabularies in the vendored engine. The weights mean nothing, but
take the time and memory of the real models. Those of LARGE are for GPUs: the same few rows over and over, which take
seconds to make where billions of random weights would take minutes. Those of TINY are for what is not computing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml import ffi, lib
from pyggml.gguf import GGUFReader, GGUFWriter, ValueType
from pyggml.quant import GGMLType, quantize

ROOT = Path(__file__).resolve().parents[2]
VOCABULARIES = ROOT / "vendor" / "llama.cpp" / "models"
SCRATCH = ROOT / "build" / "models"

_ROWS_AT_ONCE = 8192
_REPEATED_ROWS = 512


@dataclass(frozen=True)
class Shape:
    """The hyper-parameters of a dense transformer as its ``config.json`` states them."""

    name: str
    architecture: str  # in GGUF's terms
    vocabulary: str  # one of the vendored ggml-vocab-*.gguf files: the model's own, or one of the same kind and size
    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ctx: int
    rope_freq_base: float
    norm_eps: float
    tied: bool
    head_norms: bool = False  # an RMS norm on each head's query and key


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("smollm2-135m", "llama", "starcoder", 576, 30, 1536, 9, 3, 64, 8192, 1e5, 1e-5, tied=True),
        Shape("tinyllama-1.1b", "llama", "llama-spm", 2048, 22, 5632, 32, 4, 64, 2048, 1e4, 1e-5, tied=False),
        Shape("qwen3-0.6b", "qwen3", "qwen2", 1024, 28, 3072, 16, 8, 128, 40960, 1e6, 1e-6, tied=True, head_norms=True),
        Shape("llama-3.2-1b", "llama", "llama-bpe", 2048, 16, 8192, 32, 8, 64, 131072, 5e5, 1e-5, tied=True),
    )
}


LARGE = {
    shape.name: shape
    for shape in (
        Shape("llama-3.1-8b", "llama", "llama-bpe", 4096, 32, 14336, 32, 8, 128, 131072, 5e5, 1e-5, tied=False),
    )
}

#: Of no real model: next to nothing to compute, and a large vocabulary.
TINY = {
    shape.name: shape
    for shape in (
        Shape("llama-3-vocabulary", "llama", "llama-bpe", 128, 4, 256, 4, 2, 32, 131072, 5e5, 1e-5, tied=False),
    )
}


def model_file(name: str, ftype: str = "q4_k_m") -> Path:
    """Path of one of SHAPES, LARGE or TINY with its weights in a type, made on the first call.

    Types are "f16", "q8_0", "q4_0" ..., of LARGE and TINY only "q4_k_m", "q8_0" and "f16".
    """
    path = SCRATCH / f"{name}-{ftype}.gguf"
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        if name not in SHAPES:
            _write_repeated(path, (LARGE | TINY)[name], ftype)
            return path
        full = SCRATCH / f"{name}-f16.gguf"
        is_kept = full.exists() or ftype == "f16"
        if not full.exists():
            _write(full, SHAPES[name])
        if ftype != "f16":
            _quantize(full, path, ftype)
        if not is_kept:
            full.unlink()
    return path


def checkpoint_settings(shape: Shape) -> dict[str, object]:
    """The ``config.json`` of the same shape, for a peer that makes up the weights itself."""
    return {
        "model_type": shape.architecture,
        "architectures": [{"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[shape.architecture]],
        "hidden_size": shape.n_embd,
        "intermediate_size": shape.n_ff,
        "num_hidden_layers": shape.n_layer,
        "num_attention_heads": shape.n_head,
        "num_key_value_heads": shape.n_head_kv,
        "head_dim": shape.head_dim,
        "vocab_size": _n_vocab(shape),
        "max_position_embeddings": shape.n_ctx,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_freq_base,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def _n_vocab(shape: Shape) -> int:
    with GGUFReader(VOCABULARIES / f"ggml-vocab-{shape.vocabulary}.gguf") as vocabulary:
        tokens = vocabulary.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        return len(tokens)


def _write(path: Path, shape: Shape) -> None:
    with (
        GGUFReader(VOCABULARIES / f"ggml-vocab-{shape.vocabulary}.gguf") as vocabulary,
        GGUFWriter(path) as writer,
    ):
        _write_metadata(writer, shape, vocabulary)
        tokens = vocabulary.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        rng = np.random.default_rng(0)
        tensors = _tensor_shapes(shape, len(tokens))
        for name, dims in tensors.items():
            writer.add_tensor(name, dims, GGMLType.F32 if len(dims) == 1 else GGMLType.F16)
        for name, dims in tensors.items():
            writer.write_tensor(name, np.ones(dims, np.float32) if len(dims) == 1 else _random(rng, dims))


def _random(rng: np.random.Generator, dims: tuple[int, ...]) -> npt.NDArray[np.float16]:
    """Weights from a normal distribution, (rows, columns); block by block, because float32 takes twice the memory."""
    weights = np.empty(dims, np.float16)
    for row in range(0, dims[0], _ROWS_AT_ONCE):
        block = weights[row : row + _ROWS_AT_ONCE]
        block[:] = rng.standard_normal(block.shape, np.float32) * np.float32(0.02)
    return weights


def _write_repeated(path: Path, shape: Shape, ftype: str) -> None:
    partial = path.with_suffix(".partial")
    rng = np.random.default_rng(0)
    rows: dict[tuple[GGMLType, int], npt.NDArray[np.uint8]] = {}
    with (
        GGUFReader(VOCABULARIES / f"ggml-vocab-{shape.vocabulary}.gguf") as vocabulary,
        GGUFWriter(partial) as writer,
    ):
        _write_metadata(writer, shape, vocabulary)
        tensors = _tensor_shapes(shape, _n_vocab(shape))
        types = {name: _type_in(ftype, name, dims, shape.n_layer) for name, dims in tensors.items()}
        for name, dims in tensors.items():
            writer.add_tensor(name, dims, types[name])
        for name, dims in tensors.items():
            if len(dims) == 1:
                writer.write_tensor(name, np.ones(dims, np.float32))
                continue
            key = (types[name], dims[1])
            if key not in rows:
                rows[key] = quantize(_random(rng, (_REPEATED_ROWS, dims[1])), types[name]).reshape(_REPEATED_ROWS, -1)
            starts = range(0, dims[0], _REPEATED_ROWS)
            writer.write_tensor_parts(name, (rows[key][: dims[0] - start] for start in starts))
    partial.rename(path)


def _type_in(ftype: str, name: str, dims: tuple[int, ...], n_layer: int) -> GGMLType:
    """The type that upstream's quantiser would choose for a tensor of a dense Llama."""
    if len(dims) == 1:
        return GGMLType.F32
    if ftype != "q4_k_m":
        return {"q8_0": GGMLType.Q8_0, "f16": GGMLType.F16}[ftype]
    if name == "output.weight":
        return GGMLType.Q6_K
    if name.endswith(("attn_v.weight", "ffn_down.weight")):
        layer, eighth = int(name.split(".")[1]), n_layer // 8
        if layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2:
            return GGMLType.Q6_K
    return GGMLType.Q4_K


def _write_metadata(writer: GGUFWriter, shape: Shape, vocabulary: GGUFReader) -> None:
    writer.set("general.architecture", shape.architecture)
    writer.set("general.name", f"{shape.name} with random weights")
    for key, value in {
        "context_length": shape.n_ctx,
        "embedding_length": shape.n_embd,
        "block_count": shape.n_layer,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "rope.dimension_count": shape.head_dim,
    }.items():
        writer.set(f"{shape.architecture}.{key}", value, ValueType.UINT32)
    writer.set(f"{shape.architecture}.attention.layer_norm_rms_epsilon", shape.norm_eps, ValueType.FLOAT32)
    writer.set(f"{shape.architecture}.rope.freq_base", shape.rope_freq_base, ValueType.FLOAT32)
    for key, text in vocabulary.metadata.items():
        if key.startswith("tokenizer."):
            writer.set(key, text, vocabulary.value_type(key))


def _tensor_shapes(shape: Shape, n_vocab: int) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape, outermost dimension first."""
    n_q, n_kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, shape.n_embd)}
    for layer in range(shape.n_layer):
        block = f"blk.{layer}."
        tensors |= {
            block + "attn_norm.weight": (shape.n_embd,),
            block + "attn_q.weight": (n_q, shape.n_embd),
            block + "attn_k.weight": (n_kv, shape.n_embd),
            block + "attn_v.weight": (n_kv, shape.n_embd),
            block + "attn_output.weight": (shape.n_embd, n_q),
            block + "ffn_norm.weight": (shape.n_embd,),
            block + "ffn_gate.weight": (shape.n_ff, shape.n_embd),
            block + "ffn_up.weight": (shape.n_ff, shape.n_embd),
            block + "ffn_down.weight": (shape.n_embd, shape.n_ff),
        }
        if shape.head_norms:
            tensors |= {
                block + "attn_q_norm.weight": (shape.head_dim,),
                block + "attn_k_norm.weight": (shape.head_dim,),
            }
    tensors["output_norm.weight"] = (shape.n_embd,)
    if not shape.tied:
        tensors["output.weight"] = (n_vocab, shape.n_embd)
    return tensors


def _quantize(source: Path, destination: Path, ftype: str) -> None:
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{ftype.upper()}")
    partial = destination.with_suffix(".partial")
    if lib.llama_model_quantize(os.fsencode(source), os.fsencode(partial), params) != 0:
        raise RuntimeError(f"the engine could not quantize {source}")
    partial.rename(destination)


if __name__ == "__main__":
    for each in SHAPES:
        print(model_file(each))

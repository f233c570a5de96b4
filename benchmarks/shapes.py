"""Models for measuring: random weights in the shapes of real ones, with real vocabularies, as Q4_K_M.

Made once into a scratch folder, from the vocabularies in the vendored engine. The weights mean nothing; the time
and memory they take are those of the real thing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyggml import ffi, lib
from pyggml.gguf import GGUFReader, GGUFWriter, ValueType
from pyggml.quant import GGMLType

ROOT = Path(__file__).resolve().parent.parent
VOCABULARIES = ROOT / "vendor" / "llama.cpp" / "models"
SCRATCH = ROOT / "build" / "models"


@dataclass(frozen=True)
class Shape:
    """A Llama-architecture model's hyper-parameters."""

    name: str
    vocabulary: str  # of the vendored ggml-vocab-*.gguf files, the one of the same kind and nearest size
    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_ctx: int
    rope_freq_base: float
    tied: bool


SMOLLM2_135M = Shape("smollm2-135m", "starcoder", 576, 30, 1536, 9, 3, 8192, 100000.0, tied=True)


def smollm2_135m() -> Path:
    """Path of a SmolLM2-135M-shaped Q4_K_M file."""
    return _made(SMOLLM2_135M)


def _made(shape: Shape) -> Path:
    path = SCRATCH / f"{shape.name}-q4_k_m.gguf"
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        full = SCRATCH / f"{shape.name}-f16.gguf"
        _write(full, shape)
        _quantize(full, path)
        full.unlink()
    return path


def _write(path: Path, shape: Shape) -> None:
    with (
        GGUFReader(VOCABULARIES / f"ggml-vocab-{shape.vocabulary}.gguf") as vocabulary,
        GGUFWriter(path) as writer,
    ):
        _write_metadata(writer, shape, vocabulary)
        tokens = vocabulary.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        n_vocab = len(tokens)
        rng = np.random.default_rng(0)
        shapes = _tensor_shapes(shape, n_vocab)
        for name, dims in shapes.items():
            writer.add_tensor(name, dims, GGMLType.F32 if len(dims) == 1 else GGMLType.F16)
        for name, dims in shapes.items():
            if len(dims) == 1:
                writer.write_tensor(name, np.ones(dims, np.float32))
            else:
                writer.write_tensor(name, (rng.standard_normal(dims, np.float32) * 0.02).astype(np.float16))


def _write_metadata(writer: GGUFWriter, shape: Shape, vocabulary: GGUFReader) -> None:
    writer.set("general.architecture", "llama")
    writer.set("general.name", f"{shape.name} with random weights")
    head = shape.n_embd // shape.n_head
    for key, value in {
        "context_length": shape.n_ctx,
        "embedding_length": shape.n_embd,
        "block_count": shape.n_layer,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "rope.dimension_count": head,
    }.items():
        writer.set(f"llama.{key}", value, ValueType.UINT32)
    writer.set("llama.attention.layer_norm_rms_epsilon", 1e-5, ValueType.FLOAT32)
    writer.set("llama.rope.freq_base", shape.rope_freq_base, ValueType.FLOAT32)
    for key, text in vocabulary.metadata.items():
        if key.startswith("tokenizer."):
            writer.set(key, text, vocabulary.value_type(key))


def _tensor_shapes(shape: Shape, n_vocab: int) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape, outermost dimension first."""
    n_kv = shape.n_embd // shape.n_head * shape.n_head_kv
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, shape.n_embd)}
    for layer in range(shape.n_layer):
        block = f"blk.{layer}."
        tensors |= {
            block + "attn_norm.weight": (shape.n_embd,),
            block + "attn_q.weight": (shape.n_embd, shape.n_embd),
            block + "attn_k.weight": (n_kv, shape.n_embd),
            block + "attn_v.weight": (n_kv, shape.n_embd),
            block + "attn_output.weight": (shape.n_embd, shape.n_embd),
            block + "ffn_norm.weight": (shape.n_embd,),
            block + "ffn_gate.weight": (shape.n_ff, shape.n_embd),
            block + "ffn_up.weight": (shape.n_ff, shape.n_embd),
            block + "ffn_down.weight": (shape.n_embd, shape.n_ff),
        }
    tensors["output_norm.weight"] = (shape.n_embd,)
    if not shape.tied:
        tensors["output.weight"] = (n_vocab, shape.n_embd)
    return tensors


def _quantize(source: Path, destination: Path) -> None:
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    params.ftype = lib.LLAMA_FTYPE_MOSTLY_Q4_K_M
    partial = destination.with_suffix(".partial")
    if lib.llama_model_quantize(os.fsencode(source), os.fsencode(partial), params) != 0:
        raise RuntimeError(f"the engine could not quantize {source}")
    partial.rename(destination)

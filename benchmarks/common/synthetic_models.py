"""Models for measuring: random weights in the shapes of real ones, with real vocabularies, as Q4_K_M unless asked.

    python benchmarks/common/synthetic_models.py   make all SHAPES (a few minutes, 2 GB; 2.5 GB more while it works)

They are made once, in a scratch folder, from the vocabularies in the vendored engine. The weights mean nothing, but
take the time and memory of the real models. large_models.py has those for GPUs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml import ffi, lib
from pyggml.gguf import GGUFReader, GGUFWriter, ValueType
from pyggml.quant import GGMLType

ROOT = Path(__file__).resolve().parents[2]
#: The engine's, or those that llama_cpp_programs.py --pack has put next to upstream's programs.
VOCABULARIES = (ROOT / "vendor" / "llama.cpp" / "models", ROOT / "build" / "upstream" / "carried" / "models")
SCRATCH = ROOT / "build" / "models"

#: Tokens in a block of :func:`counting_model_file`.
COUNT = 256

#: Share of the tokens of :func:`counting_draft_file` that are followed by the right one.
AGREEMENT = 0.8

_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class Shape:
    """The hyper-parameters of a transformer as its ``config.json`` states them; ``n_ff`` is an expert's, if any."""

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
    n_expert: int = 0
    n_expert_used: int = 0


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("smollm2-135m", "llama", "starcoder", 576, 30, 1536, 9, 3, 64, 8192, 1e5, 1e-5, tied=True),
        Shape("tinyllama-1.1b", "llama", "llama-spm", 2048, 22, 5632, 32, 4, 64, 2048, 1e4, 1e-5, tied=False),
        Shape("qwen3-0.6b", "qwen3", "qwen2", 1024, 28, 3072, 16, 8, 128, 40960, 1e6, 1e-6, tied=True, head_norms=True),
        Shape("llama-3.2-1b", "llama", "llama-bpe", 2048, 16, 8192, 32, 8, 64, 131072, 5e5, 1e-5, tied=True),
    )
}


def model_file(name: str, ftype: str = "q4_k_m") -> Path:
    """Path of one of SHAPES with its weights in a type ("f16", "q8_0", "q4_0" ...), made on the first call."""
    path = SCRATCH / f"{name}-{ftype}.gguf"
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        full = SCRATCH / f"{name}-f16.gguf"
        is_kept = full.exists() or ftype == "f16"
        if not full.exists():
            _write(full, SHAPES[name])
        if ftype != "f16":
            _quantize(full, path, ftype)
        if not is_kept:
            full.unlink()
    return path


def counting_model_file(name: str) -> Path:
    """Path of one of SHAPES, not tied, in Q4_K_M, whose layers add nothing and whose next token is known.

    The token after t is t + 1, and after the last one of a block of COUNT tokens its first. Its logit is about 20,
    the others' are about 0.
    """
    path = SCRATCH / f"{name}-counting-q4_k_m.gguf"
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        full = SCRATCH / f"{name}-counting-f16.gguf"
        _write(full, SHAPES[name], counts=True)
        _quantize(full, path, "q4_k_m")
        full.unlink()
    return path


def counting_draft_file(name: str) -> Path:
    """Path of a draft for :func:`counting_model_file`: one of its layers, and AGREEMENT of its tokens right."""
    path = SCRATCH / f"{name}-counting-draft-q4_k_m.gguf"
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        full = SCRATCH / f"{name}-counting-draft-f16.gguf"
        _write(full, replace(SHAPES[name], n_layer=1), counts=True, agreement=AGREEMENT)
        _quantize(full, path, "q4_k_m")
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
        "vocab_size": n_vocab(shape),
        "max_position_embeddings": shape.n_ctx,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_freq_base,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def vocabulary_file(shape: Shape) -> Path:
    """Path of the GGUF file with the vocabulary of a shape."""
    paths = [folder / f"ggml-vocab-{shape.vocabulary}.gguf" for folder in VOCABULARIES]
    return next((path for path in paths if path.exists()), paths[0])


def n_vocab(shape: Shape) -> int:
    with GGUFReader(vocabulary_file(shape)) as vocabulary:
        tokens = vocabulary.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        return len(tokens)


def _write(path: Path, shape: Shape, *, counts: bool = False, agreement: float = 1.0) -> None:
    with (
        GGUFReader(vocabulary_file(shape)) as vocabulary,
        GGUFWriter(path) as writer,
    ):
        write_metadata(writer, shape, vocabulary)
        tokens = vocabulary.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, tuple)
        rng = np.random.default_rng(0)
        tensors = tensor_shapes(shape, len(tokens))
        for name, dims in tensors.items():
            writer.add_tensor(name, dims, GGMLType.F32 if len(dims) == 1 else GGMLType.F16)
        embeddings: npt.NDArray[Any] = np.empty(0)
        for name, dims in tensors.items():
            weights = np.ones(dims, np.float32) if len(dims) == 1 else random_weights(rng, dims)
            if name == "token_embd.weight":
                embeddings = weights
            if counts and name.endswith(("attn_output.weight", "ffn_down.weight")):
                weights[:] = 0
            if counts and name == "output.weight":
                ids = np.arange(dims[0])
                following = ids - ids % COUNT + (ids + 1) % COUNT
                wrong = ids[np.random.default_rng(1).random(dims[0]) >= agreement]
                following[wrong] = np.roll(following[wrong], 1)
                known = following < dims[0]
                weights[following[known]] = embeddings[ids[known]] / 2
            writer.write_tensor(name, weights)


def random_weights(rng: np.random.Generator, dims: tuple[int, ...]) -> npt.NDArray[np.float16]:
    """Weights from a normal distribution, (rows, columns); block by block, because float32 takes twice the memory."""
    weights = np.empty(dims, np.float16)
    for row in range(0, dims[0], _ROWS_AT_ONCE):
        block = weights[row : row + _ROWS_AT_ONCE]
        block[:] = rng.standard_normal(block.shape, np.float32) * np.float32(0.02)
    return weights


def write_metadata(writer: GGUFWriter, shape: Shape, vocabulary: GGUFReader) -> None:
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
        **_expert_counts(shape),
    }.items():
        writer.set(f"{shape.architecture}.{key}", value, ValueType.UINT32)
    writer.set(f"{shape.architecture}.attention.layer_norm_rms_epsilon", shape.norm_eps, ValueType.FLOAT32)
    writer.set(f"{shape.architecture}.rope.freq_base", shape.rope_freq_base, ValueType.FLOAT32)
    for key, text in vocabulary.metadata.items():
        if key.startswith("tokenizer."):
            writer.set(key, text, vocabulary.value_type(key))


def _expert_counts(shape: Shape) -> dict[str, int]:
    if not shape.n_expert:
        return {}
    return {
        "expert_count": shape.n_expert,
        "expert_used_count": shape.n_expert_used,
        "expert_feed_forward_length": shape.n_ff,
    }


def tensor_shapes(shape: Shape, n_vocab: int) -> dict[str, tuple[int, ...]]:
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
        }
        tensors |= _feed_forward(shape, block)
        if shape.head_norms:
            tensors |= {
                block + "attn_q_norm.weight": (shape.head_dim,),
                block + "attn_k_norm.weight": (shape.head_dim,),
            }
    tensors["output_norm.weight"] = (shape.n_embd,)
    if not shape.tied:
        tensors["output.weight"] = (n_vocab, shape.n_embd)
    return tensors


def _feed_forward(shape: Shape, block: str) -> dict[str, tuple[int, ...]]:
    if not shape.n_expert:
        return {
            block + "ffn_gate.weight": (shape.n_ff, shape.n_embd),
            block + "ffn_up.weight": (shape.n_ff, shape.n_embd),
            block + "ffn_down.weight": (shape.n_embd, shape.n_ff),
        }
    return {
        block + "ffn_gate_inp.weight": (shape.n_expert, shape.n_embd),
        block + "ffn_gate_exps.weight": (shape.n_expert, shape.n_ff, shape.n_embd),
        block + "ffn_up_exps.weight": (shape.n_expert, shape.n_ff, shape.n_embd),
        block + "ffn_down_exps.weight": (shape.n_expert, shape.n_embd, shape.n_ff),
    }


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

"""Models in the shapes of large ones, which take seconds to make where billions of random weights would take minutes.

A few rows of random weights are quantised, and cut into segments of 256 columns; every row of a matrix is put together
from segments drawn at random. So all rows differ, and products with them are as spread as those of random weights.

The last norm is scaled: logits are then as spread as those of a real model, where a few tokens share most of the
probability. Random weights alone give every token almost the same probability, so that ``top_p=0.95`` would keep most
of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import synthetic_models
from synthetic_models import SCRATCH, SHAPES, Shape

from pyggml.gguf import GGUFReader, GGUFWriter
from pyggml.quant import GGMLType, quantize

_LLAMA = Shape("llama-3.1-8b", "llama", "llama-bpe", 4096, 32, 14336, 32, 8, 128, 131072, 5e5, 1e-5, tied=False)
_QWEN3_MOE = Shape(
    "qwen3-30b-a3b",
    "qwen3moe",
    "qwen2",
    n_embd=2048,
    n_layer=48,
    n_ff=768,
    n_head=32,
    n_head_kv=4,
    head_dim=128,
    n_ctx=40960,
    rope_freq_base=1e6,
    norm_eps=1e-6,
    tied=False,
    head_norms=True,
    n_expert=128,
    n_expert_used=8,
)
#: For trying what is measured with the other one.
_TINY_MOE = replace(
    _QWEN3_MOE,
    name="tiny-moe",
    vocabulary="starcoder",
    n_embd=512,
    n_layer=2,
    n_ff=256,
    n_head=4,
    n_head_kv=2,
    head_dim=64,
    n_expert=8,
    n_expert_used=2,
)
#: Next to nothing to compute, and a large vocabulary: for what is not computing.
_VOCABULARY = Shape("llama-3-vocabulary", "llama", "llama-bpe", 128, 4, 256, 4, 2, 32, 131072, 5e5, 1e-5, tied=False)
LARGE = {shape.name: shape for shape in (_LLAMA, _QWEN3_MOE, _TINY_MOE, _VOCABULARY)}

#: Standard deviation of the logits. At temperature 0.8 the mean entropy of the next token is then 2.5 nats (the average
#: over 100 rows of 128,256 independent normal logits; a tenth of them have less than 1.1, a tenth more than 3.8).
LOGIT_SPREAD = 4.7

_SEGMENT = 256  # columns
_SOURCE_ROWS = 512
_BYTES_AT_ONCE = 32 << 20
_WEIGHT_SPREAD = 0.02  # of synthetic_models.random_weights


def shape_of(name: str, n_layer: int | None = None) -> Shape:
    """A shape by name, also one of synthetic_models.SHAPES, with its own or another number of layers."""
    shape = (SHAPES | LARGE)[name]
    return shape if n_layer is None else replace(shape, n_layer=min(n_layer, shape.n_layer))


def model_file(shape: Shape, ftype: str = "q4_k_m") -> Path:
    """Path of a model with its weights in a type, made on the first call.

    Types are those of synthetic_models.model_file; for LARGE only "q4_k_m", "q8_0" and "f16".
    """
    if shape.name in SHAPES:
        return synthetic_models.model_file(shape.name, ftype)
    path = SCRATCH / f"{shape.name}-{shape.n_layer}-layers-{ftype}.gguf"
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        _write(path, shape, ftype)
    return path


def _write(path: Path, shape: Shape, ftype: str) -> None:
    rng = np.random.default_rng(0)
    segments: dict[GGMLType, npt.NDArray[np.void]] = {}
    with GGUFReader(synthetic_models.vocabulary_file(shape)) as vocabulary, GGUFWriter(path) as writer:
        synthetic_models.write_metadata(writer, shape, vocabulary)
        tensors = synthetic_models.tensor_shapes(shape, synthetic_models.n_vocab(shape))
        types = {name: _type_in(ftype, name, dims, shape.n_layer) for name, dims in tensors.items()}
        for name, dims in tensors.items():
            writer.add_tensor(name, dims, types[name])
        for name, dims in tensors.items():
            if len(dims) == 1:
                writer.write_tensor(name, np.full(dims, _norm_of(name, shape), np.float32))
                continue
            if types[name] not in segments:
                segments[types[name]] = _segments(rng, types[name])
            writer.write_tensor_parts(name, _drawn(rng, segments[types[name]], math.prod(dims) // _SEGMENT))


def _norm_of(name: str, shape: Shape) -> float:
    """The weight of a norm. A row of the output layer times a normalised vector has sqrt(n_embd) times its spread."""
    return LOGIT_SPREAD / (_WEIGHT_SPREAD * math.sqrt(shape.n_embd)) if name == "output_norm.weight" else 1.0


def _segments(rng: np.random.Generator, type: GGMLType) -> npt.NDArray[np.void]:
    """Random weights in a type, one element for each segment."""
    weights = synthetic_models.random_weights(rng, (_SOURCE_ROWS, 16 * _SEGMENT)).astype(np.float32)
    whole = weights if type == GGMLType.F32 else quantize(weights, type)
    n_segments = weights.size // _SEGMENT
    return np.frombuffer(np.ascontiguousarray(whole).tobytes(), np.dtype((np.void, whole.nbytes // n_segments)))


def _drawn(rng: np.random.Generator, segments: npt.NDArray[np.void], n: int) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of ``n`` random segments, in parts."""
    n_at_once = _BYTES_AT_ONCE // segments.itemsize
    for start in range(0, n, n_at_once):
        chosen = rng.integers(0, len(segments), min(n_at_once, n - start))
        yield np.take(segments, chosen).view(np.uint8)


def _type_in(ftype: str, name: str, dims: tuple[int, ...], n_layer: int) -> GGMLType:
    """The type that upstream's quantiser would choose for a tensor of a Llama or of a Qwen3 MoE."""
    if len(dims) == 1 or name.endswith("ffn_gate_inp.weight"):
        return GGMLType.F32
    if ftype != "q4_k_m":
        return {"q8_0": GGMLType.Q8_0, "f16": GGMLType.F16}[ftype]
    if name == "output.weight":
        return GGMLType.Q6_K
    if name.endswith(("attn_v.weight", "ffn_down.weight", "ffn_down_exps.weight")):
        layer, eighth = int(name.split(".")[1]), n_layer // 8
        if layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2:
            return GGMLType.Q6_K
    return GGMLType.Q4_K

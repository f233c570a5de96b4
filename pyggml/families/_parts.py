"""Parts that several architectures share: tensors of a block, and transforms of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families._layout import Sizes, Tensor, Transform
from pyggml.files.config import Config
from pyggml.files.weights import Elementwise, Reordered, Weight

#: Prefixes of a language model's tensors in a multimodal one, by any version of transformers -> those on its own.
LANGUAGE_MODEL = {
    "language_model.model.": "model.",
    "model.language_model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "language_model.": "model.",
}

#: The rotations that the engine supports for the architecture "llama".
LLAMA_ROPE = frozenset({"factors", "longrope"})

#: Products that the engine's graphs multiply with a factor: for some architectures all of them.
ATTENTION_FACTORS = frozenset({"attn_q", "attn_k", "attn_v", "attn_output"})
DENSE_FACTORS = ATTENTION_FACTORS | {"ffn_gate", "ffn_up", "ffn_down"}
EXPERT_FACTORS = ATTENTION_FACTORS | {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}


def paired_queries(weight: Weight, sizes: Sizes) -> Weight:
    """Put query rows into the order of the engine's rotation for Llama; see :func:`_paired`."""
    return _paired(weight, sizes.n_head, sizes.head_dim)


def paired_keys(weight: Weight, sizes: Sizes) -> Weight:
    """Put key rows into the same order."""
    return _paired(weight, sizes.n_head_kv, sizes.head_dim)


def _paired(weight: Weight, n_head: int, head_dim: int) -> Weight:
    """Put rows that are rotated together next to each other.

    Hugging Face rotates column j of a head with column j + head_dim / 2; the engine, like Meta, 2j with 2j + 1.
    """
    order = np.arange(n_head * head_dim).reshape(n_head, 2, head_dim // 2).swapaxes(1, 2).reshape(-1)
    return Reordered(weight, order)


def plus_one(weight: Weight, _sizes: Sizes) -> Weight:
    """Add 1 to norms that are stored as their difference from 1."""
    return Elementwise(weight, lambda values: values + np.float32(1))


def upper_half(weight: Weight, sizes: Sizes) -> Weight:
    """Keep the first half of the rows of each expert: the gate, where gate and up projection are one matrix."""
    return _part(weight, sizes.n_expert, slice(0, 1))


def lower_half(weight: Weight, sizes: Sizes) -> Weight:
    """Keep the second half: the up projection."""
    return _part(weight, sizes.n_expert, slice(1, 2))


def _part(weight: Weight, n_expert: int, halves: slice) -> Weight:
    return Reordered(weight, np.arange(weight.n_rows).reshape(n_expert, 2, -1)[:, halves].reshape(-1))


def block(target: str, source: str, *shape: str | Literal[1], **properties: Any) -> Tensor:
    """Return a tensor of every block, by the parts of its names that differ from other tensors'."""
    return Tensor(f"blk.{{i}}.{target}.weight", f"model.layers.{{i}}.{source}.weight", shape, **properties)


def with_bias(tensor: Tensor, when: str | None = None) -> tuple[Tensor, Tensor]:
    """Return a matrix and its bias, which exists if the switch ``when`` is on; None: if the matrix exists."""
    target, source = (name.replace(".weight", ".bias") for name in (tensor.target, tensor.source))
    return tensor, Tensor(target, source, tensor.shape[:1], tensor.transform, when=when or tensor.when)


def attention(
    *, queries: Transform | None = None, keys: Transform | None = None, qkv_bias: str | None, out_bias: str | None
) -> tuple[Tensor, ...]:
    """Return separate attention projections with the usual names.

    ``queries`` and ``keys`` transform their rows; the others are the switches for biases, None if there are none.
    """
    q = block("attn_q", "self_attn.q_proj", "n_q", "n_embd", transform=queries)
    k = block("attn_k", "self_attn.k_proj", "n_kv", "n_embd", transform=keys)
    v = block("attn_v", "self_attn.v_proj", "n_kv", "n_embd")
    out = block("attn_output", "self_attn.o_proj", "n_embd", "n_q")
    return (
        *(each for part in (q, k, v) for each in (with_bias(part, qkv_bias) if qkv_bias else (part,))),
        *(with_bias(out, out_bias) if out_bias else (out,)),
    )


def gated_feed_forward(
    bias: str | None = None, *, module: str = "model.layers.{i}.mlp", when: str | None = None
) -> tuple[Tensor, ...]:
    """Return gate, up and down projections with the usual names."""
    parts = _gate_up_down("", module, "n_ff", when=when)
    return tuple(each for part in parts for each in (with_bias(part, bias) if bias else (part,)))


def _gate_up_down(
    target: str,
    module: str,
    n_ff: str,
    *stack: str,
    names: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
    **properties: Any,
) -> tuple[Tensor, ...]:
    """Return gate, up and down projections of inner width ``n_ff``; ``names`` are theirs in the checkpoint."""
    shapes = ((n_ff, "n_embd"), (n_ff, "n_embd"), ("n_embd", n_ff))
    return tuple(
        Tensor(f"blk.{{i}}.ffn_{ours}{target}.weight", f"{module}.{theirs}.weight", (*stack, *shape), **properties)
        for ours, theirs, shape in zip(("gate", "up", "down"), names, shapes, strict=True)
    )


def router(source: str) -> Tensor:
    """Return the matrix of the router of experts."""
    return Tensor("blk.{i}.ffn_gate_inp.weight", source, ("n_expert", "n_embd"), is_float=True)


def experts(
    module: str, *, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj", n_ff: str = "n_ff_exp"
) -> tuple[Tensor, ...]:
    """Return the projections of experts that are stored one by one, in the list ``module``."""
    when = f"no {STACKED} and no {SWITCHED}"
    return _gate_up_down("_exps", f"{module}.{{e}}", n_ff, names=(gate, up, down), each="n_expert", when=when)


def stacked_experts(module: str, *, n_ff: str = "n_ff_exp", is_transposed: bool = False) -> tuple[Tensor, ...]:
    """Return the projections of experts that are stored together, gate above up, as in transformers 5."""
    both = ("n_expert", f"2*{n_ff}", "n_embd")
    parts = (
        Tensor("blk.{i}.ffn_gate_exps.weight", f"{module}.gate_up_proj", both, upper_half),
        Tensor("blk.{i}.ffn_up_exps.weight", f"{module}.gate_up_proj", both, lower_half),
        Tensor("blk.{i}.ffn_down_exps.weight", f"{module}.down_proj", ("n_expert", "n_embd", n_ff)),
    )
    return tuple(replace(part, when=STACKED, is_transposed=is_transposed) for part in parts)


def switched_experts(module: str, *, n_ff: str = "n_ff_exp") -> tuple[Tensor, ...]:
    """Return the projections of experts that are stored together, with separate gate and up, as in MLX."""
    return _gate_up_down("_exps", module, n_ff, "n_expert", when=SWITCHED)


def shared_expert(module: str, n_ff: str) -> tuple[Tensor, ...]:
    """Return gate, up and down projections of the shared expert."""
    return _gate_up_down("_shexp", module, n_ff)


def expert_sizes(config: Config) -> Mapping[str, int]:
    """Read the inner width of experts."""
    return {"n_ff_exp": config.integer("moe_intermediate_size")}


def expert_metadata(_config: Config, sizes: Sizes) -> Mapping[str, Any]:
    """Return the inner width of experts as the engine names it."""
    return {"expert_feed_forward_length": sizes.of("n_ff_exp")}


def only_when(switch: str, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return tensors that need a further switch to exist."""
    return tuple(replace(each, when=f"{switch} and {each.when}" if each.when else switch) for each in tensors)


#: The form of checkpoints that stack the experts.
STACKED = "stacked experts"
#: The form of checkpoints that MLX has converted.
SWITCHED = "stacks of MLX"

#: The embedding, and the output layer, which shares the embedding's weights in many models.
EMBEDDING = Tensor("token_embd.weight", "model.embed_tokens.weight", ("n_vocab", "n_embd"))
OUTPUT = Tensor("output.weight", "lm_head.weight", ("n_vocab", "n_embd"), when="no tie_word_embeddings")
#: For architectures whose graph in the engine cannot share them: the embedding is written twice.
TIED_OUTPUT = Tensor("output.weight", "model.embed_tokens.weight", ("n_vocab", "n_embd"), when="tie_word_embeddings")

#: The norms before attention and feed-forward layers, and after the last block.
NORMS = (
    Tensor("output_norm.weight", "model.norm.weight", ("n_embd",)),
    block("attn_norm", "input_layernorm", "n_embd"),
    block("ffn_norm", "post_attention_layernorm", "n_embd"),
)
#: The tensors around the layers of attention and feed-forward networks, as in Llama.
COMMON = (EMBEDDING, OUTPUT, *NORMS)


def require_unrotated_fourths(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    """Reject models unless exactly every fourth layer is without rotations, as the engine assumes; no metadata."""
    engine = [int((i + 1) % 4 != 0) for i in range(sizes.n_layer)]
    every = config.integer("no_rope_layer_interval", 4)
    # Its name notwithstanding, the key lists the layers with rotations.
    is_rotated = config.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(sizes.n_layer)]
    if is_rotated != engine:
        raise UnsupportedArchitectureError(
            f"{config.path}: no_rope_layers is {is_rotated!r:.100}; the engine only supports models of which every "
            "layer but each 4th is rotated"
        )
    return {}

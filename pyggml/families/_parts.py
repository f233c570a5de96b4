"""Parts that several architectures share: tensors of a block, and transforms of their rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families._layout import Sizes, Tensor, Transform
from pyggml.files.config import Config
from pyggml.files.weights import Columns, Elementwise, Reordered, Weight

#: Tables of rotations and masks that older versions of transformers saved with the weights.
SAVED_TABLES = (r"(.*\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)", r"(.*\.)?(attn|attention)\.(masked_bias|bias)")

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


def even_rows(weight: Weight, _sizes: Sizes) -> Weight:
    """Keep the even rows: the gate, where rows of gate and up projection alternate."""
    return Reordered(weight, np.arange(0, weight.n_rows, 2))


def odd_rows(weight: Weight, _sizes: Sizes) -> Weight:
    """Keep the odd rows: the up projection."""
    return Reordered(weight, np.arange(1, weight.n_rows, 2))


def even_columns(weight: Weight, _sizes: Sizes) -> Weight:
    """Keep the even columns, such as the gate's in a stack of biases."""
    return Columns(weight, slice(0, None, 2))


def odd_columns(weight: Weight, _sizes: Sizes) -> Weight:
    """Keep the odd columns."""
    return Columns(weight, slice(1, None, 2))


def with_bias(tensor: Tensor, when: str | None) -> tuple[Tensor, Tensor]:
    """Return a matrix and its bias, which exists if the switch ``when`` is on; None: always."""
    bias = Tensor(
        tensor.target.replace(".weight", ".bias"),
        tensor.source.replace(".weight", ".bias"),
        tensor.shape[:1],
        tensor.transform,
        when=when,
    )
    return tensor, bias


def attention(
    *, queries: Transform | None = None, keys: Transform | None = None, qkv_bias: str | None, out_bias: str | None
) -> tuple[Tensor, ...]:
    """Return separate attention projections with the usual names.

    Args:
        queries: transform of the query rows.
        keys: transform of the key rows.
        qkv_bias: switch for the biases of queries, keys and values; None: there are none.
        out_bias: switch for the bias of the output; None: there is none.
    """
    q = Tensor("blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight", ("n_q", "n_embd"), queries)
    k = Tensor("blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight", ("n_kv", "n_embd"), keys)
    v = Tensor("blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight", ("n_kv", "n_embd"))
    out = Tensor("blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight", ("n_embd", "n_q"))
    return (
        *(each for part in (q, k, v) for each in (with_bias(part, qkv_bias) if qkv_bias else (part,))),
        *(with_bias(out, out_bias) if out_bias else (out,)),
    )


def gated_feed_forward(
    bias: str | None = None, *, module: str = "model.layers.{i}.mlp", when: str | None = None
) -> tuple[Tensor, ...]:
    """Return gate, up and down projections with the usual names."""
    parts = (
        Tensor("blk.{i}.ffn_gate.weight", f"{module}.gate_proj.weight", ("n_ff", "n_embd"), when=when),
        Tensor("blk.{i}.ffn_up.weight", f"{module}.up_proj.weight", ("n_ff", "n_embd"), when=when),
        Tensor("blk.{i}.ffn_down.weight", f"{module}.down_proj.weight", ("n_embd", "n_ff"), when=when),
    )
    return tuple(each for part in parts for each in (with_bias(part, bias) if bias else (part,)))


def router(source: str) -> Tensor:
    """Return the matrix of the router of experts."""
    return Tensor("blk.{i}.ffn_gate_inp.weight", source, ("n_expert", "n_embd"), is_float=True)


def experts(
    module: str, *, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj", n_ff: str = "n_ff_exp"
) -> tuple[Tensor, ...]:
    """Return gate, up and down projections of experts that are stored one by one.

    Args:
        module: name of the list of experts.
        gate: name of an expert's gate projection.
        up: name of its up projection.
        down: name of its down projection.
        n_ff: an expert's inner width.
    """
    return tuple(
        Tensor(
            f"blk.{{i}}.ffn_{target}_exps.weight",
            f"{module}.{{e}}.{source}.weight",
            shape,
            each="n_expert",
            when=f"no {STACKED} and no {SWITCHED}",
        )
        for target, source, shape in (
            ("gate", gate, (n_ff, "n_embd")),
            ("up", up, (n_ff, "n_embd")),
            ("down", down, ("n_embd", n_ff)),
        )
    )


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
    return tuple(
        Tensor(f"blk.{{i}}.ffn_{name}_exps.weight", f"{module}.{name}_proj.weight", ("n_expert", *shape), when=SWITCHED)
        for name, shape in (("gate", (n_ff, "n_embd")), ("up", (n_ff, "n_embd")), ("down", ("n_embd", n_ff)))
    )


def shared_expert(module: str, n_ff: str) -> tuple[Tensor, ...]:
    """Return gate, up and down projections of the shared expert."""
    return (
        Tensor("blk.{i}.ffn_gate_shexp.weight", f"{module}.gate_proj.weight", (n_ff, "n_embd")),
        Tensor("blk.{i}.ffn_up_shexp.weight", f"{module}.up_proj.weight", (n_ff, "n_embd")),
        Tensor("blk.{i}.ffn_down_shexp.weight", f"{module}.down_proj.weight", ("n_embd", n_ff)),
    )


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
    Tensor("blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight", ("n_embd",)),
    Tensor("blk.{i}.ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight", ("n_embd",)),
)


def require_unrotated_fourths(config: Config, sizes: Sizes) -> None:
    """Reject models unless exactly every fourth layer is without rotations, as the engine assumes.

    Raises:
        UnsupportedArchitectureError: other layers are.
    """
    engine = [int((i + 1) % 4 != 0) for i in range(sizes.n_layer)]
    every = config.integer("no_rope_layer_interval", 4)
    is_rotated = config.get("no_rope_layers")  # its name notwithstanding
    if not is_rotated:
        is_rotated = [int((i + 1) % every != 0) for i in range(sizes.n_layer)]
    if is_rotated != engine:
        raise UnsupportedArchitectureError(
            f"{config.path}: no_rope_layers is {is_rotated!r:.100}; the engine only supports models of which every "
            "layer but each 4th is rotated"
        )

"""Qwen3-Next: most layers have linear attention (a gated delta net) instead of attention with keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import _parts, qwen2
from pyggml.families._layout import SAVED_TABLES, Layout, Sizes, Tensor
from pyggml.files.config import Config
from pyggml.files.weights import Elementwise, Reordered, Weight


def _is_linear(config: Config, n_layer: int) -> Sequence[bool]:
    types = config.get("layer_types")
    if types is None:
        every = config.integer("full_attention_interval", 4)
        return [bool((i + 1) % every) for i in range(n_layer)]
    if not isinstance(types, list) or len(types) != n_layer:
        raise config.error("layer_types", f"a list of {n_layer}")
    config.require_each("layer_types", ("full_attention", "linear_attention"))
    return [each == "linear_attention" for each in types]


def _sizes(config: Config) -> Mapping[str, int]:
    n_key_head, n_value_head = config.integer("linear_num_key_heads"), config.integer("linear_num_value_heads")
    key_dim, value_dim = config.integer("linear_key_head_dim"), config.integer("linear_value_head_dim")
    if key_dim != value_dim or n_value_head % n_key_head:
        raise UnsupportedArchitectureError(
            f"{config.path}: linear attention has {n_key_head} key heads of {key_dim} columns and {n_value_head} value "
            f"heads of {value_dim}; the engine only supports equal widths, and the same number of value heads for each "
            "key head"
        )
    n_key, n_value = n_key_head * key_dim, n_value_head * value_dim
    return {
        **qwen2.expert_sizes(config),
        "n_key_head": n_key_head,
        "n_value_head": n_value_head,
        "linear_head_dim": key_dim,
        "n_linear_v": n_value,
        "n_linear_qkv": 2 * n_key + n_value,
        "n_linear_qkvz": 2 * (n_key + n_value),
        "n_kernel": config.integer("linear_conv_kernel_dim"),
    }


def _metadata(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    return {
        **qwen2.expert_metadata(config, sizes),
        "ssm.conv_kernel": sizes.of("n_kernel"),
        "ssm.state_size": sizes.of("linear_head_dim"),
        "ssm.group_count": sizes.of("n_key_head"),
        "ssm.time_step_rank": sizes.of("n_value_head"),
        "ssm.inner_size": sizes.of("n_linear_v"),
        "attention.recurrent_layers": list(sizes.blocks["linear"]),
    }


def _by_key_head(sizes: Sizes) -> list[np.ndarray[Any, np.dtype[np.intp]]]:
    """Rows of queries, keys, values and gates, each (n_key_head, n): the checkpoint has them key head by key head."""
    width, n_key_head = sizes.of("linear_head_dim"), sizes.of("n_key_head")
    n_values = sizes.of("n_linear_v") // n_key_head
    rows = np.arange(sizes.of("n_linear_qkvz")).reshape(n_key_head, -1)
    return np.split(rows, np.cumsum([width, width, n_values]), axis=1)


def _queries_keys_values(weight: Weight, sizes: Sizes) -> Weight:
    return Reordered(weight, np.concatenate([rows.reshape(-1) for rows in _by_key_head(sizes)[:3]]))


def _gates(weight: Weight, sizes: Sizes) -> Weight:
    return Reordered(weight, _by_key_head(sizes)[3].reshape(-1))


def _minus_exp(weight: Weight, _sizes: Sizes) -> Weight:
    return Elementwise(weight, lambda logarithms: -np.exp(logarithms))


def _norm(target: str, source: str, width: str = "n_embd", when: str | None = None) -> Tensor:
    return _parts.block(target, source, width, transform=_parts.plus_one, when=when)


_FULL = "no linear"
_LINEAR = "model.layers.{i}.linear_attn."
_QKVZ = ("n_linear_qkvz", "n_embd")

QWEN3_NEXT = Layout(
    "qwen3next",
    model_types=("qwen3_next",),
    hf_architectures=("Qwen3NextForCausalLM",),
    name="Qwen3-Next",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        Tensor("output_norm.weight", "model.norm.weight", ("n_embd",), _parts.plus_one),
        _norm("attn_norm", "input_layernorm"),
        _norm("post_attention_norm", "post_attention_layernorm"),
        # queries and their gates, head by head
        _parts.block("attn_q", "self_attn.q_proj", "2*n_q", "n_embd", when=_FULL),
        _parts.block("attn_k", "self_attn.k_proj", "n_kv", "n_embd", when=_FULL),
        _parts.block("attn_v", "self_attn.v_proj", "n_kv", "n_embd", when=_FULL),
        _parts.block("attn_output", "self_attn.o_proj", "n_embd", "n_q", when=_FULL),
        _norm("attn_q_norm", "self_attn.q_norm", "head_dim", _FULL),
        _norm("attn_k_norm", "self_attn.k_norm", "head_dim", _FULL),
        *_parts.only_when(
            "linear",
            (
                _parts.block("attn_qkv", "linear_attn.in_proj_qkvz", *_QKVZ, transform=_queries_keys_values),
                _parts.block("attn_gate", "linear_attn.in_proj_qkvz", *_QKVZ, transform=_gates),
                _parts.block("ssm_ba", "linear_attn.in_proj_ba", "2*n_value_head", "n_embd"),
                _parts.block(
                    "ssm_conv1d",
                    "linear_attn.conv1d",
                    "n_linear_qkv",
                    1,
                    "n_kernel",
                    is_float=True,
                ),
                Tensor("blk.{i}.ssm_a", f"{_LINEAR}A_log", ("n_value_head",), _minus_exp),
                Tensor("blk.{i}.ssm_dt.bias", f"{_LINEAR}dt_bias", ("n_value_head",)),
                _parts.block("ssm_norm", "linear_attn.norm", "linear_head_dim"),
                _parts.block("ssm_out", "linear_attn.out_proj", "n_embd", "n_linear_v"),
            ),
        ),
        *qwen2.EXPERTS,
        *qwen2.SHARED_EXPERT,
    ),
    ignored=(*SAVED_TABLES, r"mtp\..*"),  # a draft of the token after the next
    required={"hidden_act": ("silu",), "attention_bias": (False,), "norm_topk_prob": (True,), **qwen2.EVERY_BLOCK},
    rename_keys=qwen2.rename_moe_keys,
    switches={"tie_word_embeddings": False},
    blocks={"linear": _is_linear},
    forms={_parts.STACKED: qwen2.EXPERT_FORMS[_parts.STACKED]},  # MLX changes more than the experts
    n_expert="num_experts",
    sizes=_sizes,
    extra=_metadata,
)

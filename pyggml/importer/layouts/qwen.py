"""Qwen1.5, Qwen2, Qwen2.5 and Qwen3, without experts."""

from dataclasses import replace

from pyggml.importer.layout import Layout, Tensor
from pyggml.importer.layouts import _parts

QWEN2 = Layout(
    name="Qwen2",
    architecture="qwen2",
    model_types=("qwen2",),
    hf_architectures=("Qwen2ForCausalLM",),
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        *_parts.NORMS,
        *_parts.attention(qkv_bias="always", out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    ignored=_parts.SAVED_TABLES,
    required={"hidden_act": ("silu",)},
    defaults={"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
    switches={"tie_word_embeddings": False},
    is_head_dim_fixed=True,
    window="limit",
)

QWEN3 = replace(
    QWEN2,
    name="Qwen3",
    architecture="qwen3",
    model_types=("qwen3",),
    hf_architectures=("Qwen3ForCausalLM",),
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        *_parts.NORMS,
        *_parts.attention(qkv_bias="attention_bias", out_bias=None),
        Tensor("blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.q_norm.weight", ("head_dim",)),
        Tensor("blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.k_norm.weight", ("head_dim",)),
        *_parts.gated_feed_forward(),
    ),
    required={"hidden_act": ("silu",), "attention_bias": (False,)},
    defaults={**QWEN2.defaults, "head_dim": 128},
    is_head_dim_fixed=False,
)

"""Qwen3, dense and mixture of experts."""

from dataclasses import replace

from pyggml.families import _parts, qwen2
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Architecture, Tensor

QWEN3 = replace(
    qwen2.QWEN2,
    architecture="qwen3",
    model_types=("qwen3",),
    hf_architectures=("Qwen3ForCausalLM",),
    name="Qwen3",
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
    defaults={**qwen2.QWEN2.defaults, "head_dim": 128},
    is_head_dim_fixed=False,
)

FAMILY = Family(
    name="qwen3",
    title="Qwen3",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    builds=(QWEN3, Architecture("qwen3moe", ("qwen3_moe",), ("Qwen3MoeForCausalLM",))),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    classes=("Qwen3",),
    variants=(
        Variant("Qwen3 mixture of experts", ("qwen3 30b", "qwen3 235b"), {"architecture": ("qwen3moe",)}),
        Variant("Qwen3", ("qwen3", "qwen 3"), {"architecture": ("qwen3",)}),
    ),
)

"""Qwen3, dense and mixture of experts, and Qwen3-Next."""

from dataclasses import replace

from pyggml.families import _parts, qwen2
from pyggml.families._family import Family, Variant
from pyggml.families._qwen3_next import QWEN3_NEXT

_ATTENTION = (
    *_parts.attention(qkv_bias=None, out_bias=None),
    _parts.block("attn_q_norm", "self_attn.q_norm", "head_dim"),
    _parts.block("attn_k_norm", "self_attn.k_norm", "head_dim"),
)

QWEN3 = replace(
    qwen2.QWEN2,
    architecture="qwen3",
    model_types=("qwen3",),
    hf_architectures=("Qwen3ForCausalLM",),
    name="Qwen3",
    tensors=(*_parts.COMMON, *_ATTENTION, *_parts.gated_feed_forward()),
    required={"hidden_act": ("silu",), "attention_bias": (False,)},
    is_head_dim_fixed=False,
    factors=_parts.DENSE_FACTORS,
)


QWEN3_MOE = replace(
    QWEN3,
    architecture="qwen3moe",
    model_types=("qwen3_moe",),
    hf_architectures=("Qwen3MoeForCausalLM",),
    name="Qwen3 mixture of experts",
    tensors=(*_parts.COMMON, *_ATTENTION, *qwen2.EXPERTS),
    required={**QWEN3.required, "norm_topk_prob": (True,), **qwen2.EVERY_BLOCK},
    rename_keys=qwen2.rename_moe_keys,
    forms=qwen2.EXPERT_FORMS,
    n_expert="num_experts",
    factors=_parts.EXPERT_FACTORS,
    sizes=_parts.expert_sizes,
    extra=_parts.expert_metadata,
)

FAMILY = Family(
    name="qwen3",
    title="Qwen3",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    more_stop_tokens=("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
    builds=(QWEN3, QWEN3_MOE, QWEN3_NEXT),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    classes=("Qwen3",),
    variants=(
        Variant("Qwen3-Coder", ("qwen3 coder",)),
        Variant("Qwen3-Next", ("qwen3 next",), {"architecture": ("qwen3next",)}),
        Variant("Qwen3 mixture of experts", ("qwen3 30b", "qwen3 235b"), {"architecture": ("qwen3moe",)}),
        Variant("Qwen3", ("qwen3", "qwen 3"), {"architecture": ("qwen3",)}),
    ),
)

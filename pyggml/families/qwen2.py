"""Qwen1.5, Qwen2 and Qwen2.5, dense and mixture of experts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Layout, Sizes, Tensor
from pyggml.files.config import Config

QWEN2 = Layout(
    "qwen2",
    model_types=("qwen2",),
    hf_architectures=("Qwen2ForCausalLM", "Qwen2Model"),
    name="Qwen2",
    tensors=(
        *_parts.COMMON,
        *_parts.attention(qkv_bias="always", out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    required={"hidden_act": ("silu",)},
    switches={"tie_word_embeddings": False},
    is_head_dim_fixed=True,
    window="limit",
)

_MIXTURE = "model.layers.{i}.mlp"

#: The MoE layers of Qwen2, Qwen3 and Qwen3-Next.
EXPERTS = (
    _parts.router(f"{_MIXTURE}.gate.weight"),
    *_parts.experts(f"{_MIXTURE}.experts"),
    *_parts.stacked_experts(f"{_MIXTURE}.experts"),
    *_parts.switched_experts(f"{_MIXTURE}.switch_mlp"),
)
EXPERT_FORMS = {
    _parts.STACKED: f"{_MIXTURE}.experts.gate_up_proj",
    _parts.SWITCHED: f"{_MIXTURE}.switch_mlp.gate_proj.weight",
}

#: The shared expert, and the gate of its result.
SHARED_EXPERT = (
    Tensor("blk.{i}.ffn_gate_inp_shexp.weight", f"{_MIXTURE}.shared_expert_gate.weight", (1, "n_embd")),
    *_parts.shared_expert(f"{_MIXTURE}.shared_expert", "n_ff_shexp"),
)

#: Required by the engine: an MoE layer in every block.
EVERY_BLOCK = {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)}


def rename_moe_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rename the keys of transformers 5, and drop a key that has another meaning for dense models."""
    names = {"num_local_experts": "num_experts"}
    return {names.get(key, key): value for key, value in values.items() if key != "max_window_layers"}


def expert_sizes(config: Config) -> Mapping[str, int]:
    """Read the inner widths of the experts and of the shared one."""
    return {**_parts.expert_sizes(config), "n_ff_shexp": config.integer("shared_expert_intermediate_size")}


def expert_metadata(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    """Return these widths as the engine names them."""
    return {**_parts.expert_metadata(config, sizes), "expert_shared_feed_forward_length": sizes.of("n_ff_shexp")}


QWEN2_MOE = replace(
    QWEN2,
    architecture="qwen2moe",
    model_types=("qwen2_moe",),
    hf_architectures=("Qwen2MoeForCausalLM",),
    name="Qwen2 mixture of experts",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        _parts.TIED_OUTPUT,
        *_parts.NORMS,
        *_parts.attention(qkv_bias="qkv_bias", out_bias=None),
        *EXPERTS,
        *SHARED_EXPERT,
    ),
    required={"hidden_act": ("silu",), "norm_topk_prob": (False,), **EVERY_BLOCK},
    rename_keys=rename_moe_keys,
    switches={"tie_word_embeddings": False, "qkv_bias": True},
    forms=EXPERT_FORMS,
    n_expert="num_experts",
    sizes=expert_sizes,
    extra=expert_metadata,
)

FAMILY = Family(
    name="qwen2",
    title="Qwen1.5, 2 or 2.5",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    more_stop_tokens=("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
    builds=(QWEN2, QWEN2_MOE),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    classes=("Qwen2",),
    variants=(
        Variant("Qwen2.5", ("qwen2 5", "qwen 2 5"), template="You are Qwen, created by Alibaba Cloud"),
        Variant("QwQ", ("qwq",)),
        Variant("Qwen2", ("qwen2", "qwen 2"), {"is_grouped": (True,), "n_expert": (0,)}),
        Variant("Qwen1.5", ("qwen1 5", "qwen 1 5"), {"is_grouped": (False,)}),
    ),
)

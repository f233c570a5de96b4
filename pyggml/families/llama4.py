"""Llama 4, of which the language model is imported."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import _parts
from pyggml.families._family import Family, Signs, Variant
from pyggml.families._layout import SAVED_TABLES, Layout, Sizes
from pyggml.files.config import Config

_FEED_FORWARD = "model.layers.{i}.feed_forward"
# The engine recognises Maverick by its number of experts, and skips the normalisation of queries and keys there.
_N_EXPERT_MAVERICK = 128


def _rename_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rename the width of dense blocks to the usual key, which Llama 4 uses for the experts' width."""
    names = {"intermediate_size": "moe_intermediate_size", "intermediate_size_mlp": "intermediate_size"}
    return {names.get(key, key): value for key, value in values.items()}


def _has_experts(config: Config, n_layer: int) -> Sequence[bool]:
    every = config.integer("interleave_moe_layer_step")
    engine = [(i + 1) % every == 0 for i in range(n_layer)]
    blocks = config.get("moe_layers")
    if blocks is not None and blocks != [i for i in range(n_layer) if engine[i]]:
        raise UnsupportedArchitectureError(
            f"{config.path}: moe_layers is {blocks!r:.100}; the engine only supports an MoE layer in each block whose "
            f"number is a multiple of interleave_moe_layer_step, {every}"
        )
    return engine


def _metadata(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    _parts.require_unrotated_fourths(config, sizes)
    if sizes.n_layer < 4:
        raise UnsupportedArchitectureError(
            f"{config.path}: num_hidden_layers is {sizes.n_layer}; of Llama 4, the engine needs at least 4 layers"
        )
    config.require("use_qk_norm", (sizes.n_expert != _N_EXPERT_MAVERICK,))
    types = ["chunked_attention" if (i + 1) % 4 else "full_attention" for i in range(sizes.n_layer)]
    config.require("layer_types", (types,))
    return {
        **_parts.expert_metadata(config, sizes),
        "interleave_moe_layer_step": config.integer("interleave_moe_layer_step"),
    }


LLAMA4 = Layout(
    "llama4",
    model_types=("llama4", "llama4_text"),
    hf_architectures=("Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
    name="Llama 4",
    tensors=(
        *_parts.COMMON,
        *_parts.attention(qkv_bias=None, out_bias=None),
        *_parts.gated_feed_forward(module=_FEED_FORWARD, when="no moe"),
        *_parts.only_when(
            "moe",
            (
                _parts.router(f"{_FEED_FORWARD}.router.weight"),
                *_parts.experts(f"{_FEED_FORWARD}.experts"),
                *_parts.stacked_experts(f"{_FEED_FORWARD}.experts", is_transposed=True),
                *_parts.shared_expert(f"{_FEED_FORWARD}.shared_expert", "n_ff_exp"),
            ),
        ),
    ),
    ignored=(*SAVED_TABLES, r"(model\.)?(vision_model|multi_modal_projector)\..*"),
    required={
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "attention_chunk_size": (8192,),
        "attn_temperature_tuning": (True, 4),  # a number in early files, of which it only mattered that it is not 0
        "floor_scale": (8192,),
        "attn_scale": (0.1,),
    },
    rename_keys=_rename_keys,
    switches={"tie_word_embeddings": False},
    blocks={"moe": _has_experts},
    forms={_parts.STACKED: f"{_FEED_FORWARD}.experts.gate_up_proj"},
    n_expert="num_local_experts",
    sizes=_parts.expert_sizes,
    rope=frozenset({"factors"}),
    text_config="text_config",
    prefixes=_parts.LANGUAGE_MODEL,
    extra=_metadata,
)

FAMILY = Family(
    name="llama4",
    title="Llama 4",
    stop_tokens=("<|eot|>", "<|end_of_text|>", "<|eom|>"),
    builds=(LLAMA4,),
    required_tokens=("<|eot|>", "<|end_of_text|>", "<|eom|>"),
    signs=Signs(tokens=("<|header_start|>", "<|header_end|>"), names=("llama 4",), template=("<|header_start|>",)),
    classes=("Llama4",),
    variants=(
        Variant("Llama 4 Maverick", ("llama 4 maverick", "maverick"), {"n_expert": (128,)}),
        Variant("Llama 4 Scout", ("llama 4 scout", "scout"), {"n_expert": (16,)}),
    ),
    variant_kind="meta",
)

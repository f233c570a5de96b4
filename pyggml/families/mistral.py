"""Mistral, Mixtral, Ministral and their siblings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyggml.families import _parts, llama2
from pyggml.families._family import Family, Signs, Variant
from pyggml.families._layout import SAVED_TABLES
from pyggml.families._meta import META

MISTRAL = replace(
    llama2.LLAMA,
    model_types=("mistral",),
    hf_architectures=("MistralForCausalLM",),
    name="Mistral",
    window="limit",
)

MINISTRAL = replace(MISTRAL, model_types=("ministral",), hf_architectures=("MinistralForCausalLM",), name="Ministral")

#: The rotations of a Ministral 3 without a description of them, as in transformers.
_ROTATIONS = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16_384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def _with_defaults(values: Mapping[str, Any]) -> Mapping[str, Any]:
    if values.get("model_type") != "ministral3" or values.get("rope_parameters") or values.get("rope_scaling"):
        return values
    return {**values, "rope_parameters": _ROTATIONS}


#: Ministral 3, and Mistral Small 3.1 and later, multimodal models around a Mistral or a Ministral 3.
MISTRAL3 = replace(
    MISTRAL,
    architecture="mistral3",
    model_types=("mistral3", "ministral3"),
    hf_architectures=("Mistral3ForConditionalGeneration", "Ministral3ForCausalLM"),
    name="Mistral 3 or Ministral 3",
    ignored=(*SAVED_TABLES, r"(model\.)?(vision_tower|multi_modal_projector)\..*"),
    required={"hidden_act": ("silu",), "model_type": ("mistral", "ministral3")},
    rename_keys=_with_defaults,
    rope=_parts.LLAMA_ROPE | {"temperature"},
    text_config="text_config",
    prefixes=_parts.LANGUAGE_MODEL,
)

_BLOCK = "model.layers.{i}"

MIXTRAL = replace(
    MISTRAL,
    model_types=("mixtral",),
    hf_architectures=("MixtralForCausalLM",),
    name="Mixtral",
    tensors=(
        *_parts.COMMON,
        *_parts.attention(queries=_parts.paired_queries, keys=_parts.paired_keys, qkv_bias=None, out_bias=None),
        replace(_parts.router(f"{_BLOCK}.block_sparse_moe.gate.weight"), when=f"no {_parts.STACKED}"),
        *_parts.experts(f"{_BLOCK}.block_sparse_moe.experts", gate="w1", down="w2", up="w3", n_ff="n_ff"),
        *_parts.switched_experts(f"{_BLOCK}.block_sparse_moe.switch_mlp", n_ff="n_ff"),
        replace(_parts.router(f"{_BLOCK}.mlp.gate.weight"), when=_parts.STACKED),
        *_parts.stacked_experts(f"{_BLOCK}.mlp.experts", n_ff="n_ff"),
    ),
    switches={"tie_word_embeddings": False},
    forms={
        _parts.STACKED: f"{_BLOCK}.mlp.experts.gate_up_proj",
        _parts.SWITCHED: f"{_BLOCK}.block_sparse_moe.switch_mlp.gate_proj.weight",
    },
    n_expert="num_local_experts",
    factors=_parts.EXPERT_FACTORS,
)

FAMILY = Family(
    name="mistral",
    title="Mistral or Mixtral",
    stop_tokens=("</s>",),
    builds=(MISTRAL, MIXTRAL, META, MINISTRAL, MISTRAL3),
    required_tokens=("</s>",),
    signs=Signs(
        tokens=("[INST]", "[/INST]"),
        names=("mistral", "mistralai", "mixtral", "ministral", "mathstral", "codestral", "devstral", "magistral"),
        template=("[INST]",),
        n_vocab=(32000, 32768, 131072),
    ),
    classes=("Mistral",),
    variants=(
        Variant("Mixtral", ("mixtral",), {"n_expert": (8,)}),
        Variant("Ministral 3", ("ministral 3",), {"architecture": ("mistral3",)}),
        Variant("Ministral", ("ministral",)),
        Variant("Codestral", ("codestral",)),
        Variant("Mathstral", ("mathstral",)),
        Variant("Devstral", ("devstral",)),
        Variant("Magistral", ("magistral",)),
        Variant("Mistral Nemo", ("mistral nemo",), {"n_embd": (5120,), "n_ctx": (131072, 1024000)}),
        Variant("Mistral Small", ("mistral small",), {"n_embd": (5120, 6144), "n_ctx": (32768,)}),
        Variant("Mistral Large", ("mistral large",), {"n_embd": (12288,)}),
        Variant("Mistral 7B", ("mistral 7b",), {"n_embd": (4096,), "n_layer": (32,), "n_expert": (0,)}),
    ),
)

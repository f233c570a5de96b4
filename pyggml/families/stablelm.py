"""StableLM 3B, StableLM 2 and StableLM Zephyr."""

from collections.abc import Mapping
from typing import Any

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Architecture, Layout, Tensor

_NAMES = {"norm_eps": "layer_norm_eps", "rope_pct": "partial_rotary_factor"}


def _rename_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rename the keys of the first checkpoints, whose model type is "stablelm_epoch"."""
    if values.get("model_type") == "stablelm":
        return values
    return {_NAMES.get(key, key): value for key, value in values.items()}


STABLELM = Layout(
    "stablelm",
    model_types=("stablelm", "stablelm_epoch"),
    hf_architectures=("StableLmForCausalLM", "StableLMEpochForCausalLM"),
    name="StableLM",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        _parts.TIED_OUTPUT,
        *_parts.with_bias(Tensor("output_norm.weight", "model.norm.weight", ("n_embd",))),
        *_parts.with_bias(_parts.block("attn_norm", "input_layernorm", "n_embd")),
        *_parts.with_bias(
            _parts.block("ffn_norm", "post_attention_layernorm", "n_embd", when="no use_parallel_residual")
        ),
        *_parts.attention(qkv_bias="use_qkv_bias", out_bias=None),
        *(
            _parts.block(
                f"attn_{letter}_norm",
                f"self_attn.{letter}_layernorm.norms.{{e}}",
                "head_dim",
                when="qk_layernorm",
                each=each,
                is_float=True,
            )
            for letter, each in (("q", "n_head"), ("k", "n_head_kv"))
        ),
        *_parts.gated_feed_forward(),
    ),
    norm="layer",
    norm_eps="layer_norm_eps",
    required={"hidden_act": ("silu",), "rotary_scaling_factor": (1.0, 1)},
    inert=frozenset({"num_heads"}),  # repeats num_attention_heads
    defaults={"partial_rotary_factor": 0.25, "layer_norm_eps": 1e-5},
    switches={
        "tie_word_embeddings": False,
        "use_qkv_bias": False,
        "qk_layernorm": False,
        "use_parallel_residual": False,
    },
    is_head_dim_fixed=True,
    rename_keys=_rename_keys,
)

FAMILY = Family(
    name="stablelm",
    title="StableLM",
    stop_tokens=("<|endoftext|>",),
    builds=(STABLELM, Architecture("stablelm", hf_architectures=("LlavaStableLMEpochForCausalLM",))),
    required_tokens=("<|endoftext|>",),
    classes=("StableLM",),
    variants=(
        Variant("StableLM Zephyr", ("stablelm zephyr", "stablelm 2 zephyr")),
        Variant("StableLM 2", ("stablelm 2",), {"n_vocab": (100352,)}),
        Variant("StableLM 3B", ("stablelm 3b",), {"n_vocab": (50304,), "n_embd": (2560,)}),
    ),
)

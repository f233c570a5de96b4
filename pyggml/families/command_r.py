"""Command-R, Command-R+, Command-R7B, Command A and Aya Expanse: parallel attention and feed-forward layers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Layout, Sizes, Tensor
from pyggml.files.config import Config

# From this many blocks on, the engine assumes Command-R+, which normalises queries and keys.
_N_LAYER_PLUS = 64


def _cohere(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    is_plus = sizes.n_layer >= _N_LAYER_PLUS
    if is_plus != ("use_qk_norm" in sizes.flags):
        raise UnsupportedArchitectureError(
            f"{config.path}: use_qk_norm is {not is_plus}; for a model of {sizes.n_layer} blocks, the engine only "
            f"supports {is_plus}"
        )
    return _cohere2(config, sizes)


def _cohere2(config: Config, _sizes: Sizes) -> Mapping[str, Any]:
    return {"logit_scale": config.number("logit_scale")}


COHERE2 = Layout(
    "cohere2",
    model_types=("cohere2",),
    hf_architectures=("Cohere2ForCausalLM",),
    name="Command-R7B",
    tensors=(
        _parts.EMBEDDING,
        Tensor("output_norm.weight", "model.norm.weight", ("n_embd",)),
        _parts.block("attn_norm", "input_layernorm", "n_embd"),
        # transformers rotates neighbouring columns, as the engine does here.
        *_parts.attention(qkv_bias=None, out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    norm="layer",
    norm_eps="layer_norm_eps",
    required={"hidden_act": ("silu",), "attention_bias": (False,), "tie_word_embeddings": (True,)},
    switches={"tie_word_embeddings": True},
    is_head_dim_fixed=True,
    window="needed",
    extra=_cohere2,
)

COHERE = replace(
    COHERE2,
    architecture="command-r",
    model_types=("cohere",),
    hf_architectures=("CohereForCausalLM",),
    name="Command-R",
    tensors=(
        *COHERE2.tensors,
        *(
            _parts.block(f"attn_{x}_norm", f"self_attn.{x}_norm", n, "head_dim", when="use_qk_norm", is_float=True)
            for x, n in (("q", "n_head"), ("k", "n_head_kv"))
        ),
    ),
    switches={"tie_word_embeddings": True, "use_qk_norm": False},
    window="none",
    extra=_cohere,
)

FAMILY = Family(
    name="command-r",
    title="Command-R or Aya Expanse",
    stop_tokens=("<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>"),
    builds=(COHERE, COHERE2),
    required_tokens=("<|END_OF_TURN_TOKEN|>",),
    classes=("CommandR",),
    variants=(
        Variant("Command-R7B", ("c4ai command r7b", "command r7b"), {"architecture": ("cohere2",), "n_layer": (32,)}),
        Variant("Command A", ("c4ai command a", "command a"), {"architecture": ("cohere2",), "n_layer": (64,)}),
        Variant("Aya Expanse", ("aya expanse",)),
        Variant("Command-R+", ("c4ai command r plus",), {"architecture": ("command-r",), "n_layer": (64,)}),
        Variant("Command-R", ("c4ai command r",), {"architecture": ("command-r",), "n_layer": (40,)}),
    ),
)

"""The language model of Gemma 3n.

It has alternating updates (AltUp), learned augmented residuals (Laurel), embeddings for each layer, keys and values
that the upper layers take from the lower ones, and sparse activations.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import _parts
from pyggml.families._layout import SAVED_TABLES, Layout, Sizes, Tensor
from pyggml.files.config import Config
from pyggml.files.weights import Reordered, Weight

# What the engine assumes of every Gemma 3n.
_N_ALTUP = 4
_N_LAUREL = 64
_N_PER_LAYER = 256
_N_LAYER_KV = 20  # the layers from this one on take keys and values from the last two before it
_N_LAYER_SPARSE = 10
_SPARSITY = 0.95

_SHARED = "shared_keys"


def _rename_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace a list of equal feed-forward widths by one width."""
    widths = values.get("intermediate_size")
    if isinstance(widths, list) and widths and all(width == widths[0] for width in widths):
        return {**values, "intermediate_size": widths[0]}
    return values


def _sizes(config: Config) -> Mapping[str, int]:
    n_layer = config.integer("num_hidden_layers")
    return {
        "n_altup": _N_ALTUP,
        "n_altup_others": _N_ALTUP - 1,
        "n_altup_coefs": _N_ALTUP**2,
        "n_laurel": _N_LAUREL,
        "n_per_layer": _N_PER_LAYER,
        "n_per_layers": _N_PER_LAYER * n_layer,
        "n_vocab_per_layer": config.integer("vocab_size_per_layer_input"),
    }


def _shares(_config: Config, n_layer: int) -> list[bool]:
    return [i >= _N_LAYER_KV for i in range(n_layer)]


def _all_tokens(weight: Weight, sizes: Sizes) -> Weight:
    """Pad the table of per-layer embeddings with its first row, as transformers does."""
    order = np.arange(sizes.n_vocab)
    return Reordered(weight, np.where(order < sizes.own["n_vocab_per_layer"], order, 0))


def _sharing_and_sparsity(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    """Reject models whose layer sharing or sparsity differs from the engine's."""
    n_shared = config.get("num_kv_shared_layers")
    if n_shared != sizes.n_layer - _N_LAYER_KV:
        raise UnsupportedArchitectureError(
            f"{config.path}: num_kv_shared_layers is {n_shared!r:.80} of {sizes.n_layer}; the engine only supports "
            f"models of which {_N_LAYER_KV} layers have keys and values of their own"
        )
    types = config.get("layer_types")
    if isinstance(types, list) and types[_N_LAYER_KV - 2 : _N_LAYER_KV] != ["sliding_attention", "full_attention"]:
        raise UnsupportedArchitectureError(
            f"{config.path}: layer_types has {types[_N_LAYER_KV - 2 : _N_LAYER_KV]} as the layers whose keys and "
            "values the upper layers share; the engine only supports a sliding_attention and a full_attention one"
        )
    sparsity = config.get("activation_sparsity_pattern")
    n_sparse = min(_N_LAYER_SPARSE, sizes.n_layer)
    engine = [_SPARSITY] * n_sparse + [0.0] * (sizes.n_layer - n_sparse)
    if sparsity is not None and sparsity != engine:
        raise UnsupportedArchitectureError(
            f"{config.path}: activation_sparsity_pattern is {sparsity!r:.80}; the engine only supports {_SPARSITY} in "
            f"the first {_N_LAYER_SPARSE} layers and 0 in the others"
        )
    return {}


GEMMA3N = Layout(
    "gemma3n",
    model_types=("gemma3n", "gemma3n_text"),
    hf_architectures=("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
    name="Gemma 3n",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        Tensor(
            "per_layer_token_embd.weight",
            "model.embed_tokens_per_layer.weight",
            ("n_vocab_per_layer", "n_per_layers"),
            _all_tokens,
        ),
        Tensor("per_layer_model_proj.weight", "model.per_layer_model_projection.weight", ("n_per_layers", "n_embd")),
        Tensor("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", ("n_per_layer",)),
        *(
            Tensor(target, f"model.{source}.{{e}}.weight", ("n_embd", "n_embd"), each="n_altup_others")
            for target, source in (
                ("altup_proj.weight", "altup_projections"),
                ("altup_unembd_proj.weight", "altup_unembed_projections"),
            )
        ),
        Tensor("output_norm.weight", "model.norm.weight", ("n_embd",)),
        _parts.block("attn_norm", "input_layernorm", "n_embd"),
        _parts.block("attn_q", "self_attn.q_proj", "n_q", "n_embd"),
        _parts.block("attn_q_norm", "self_attn.q_norm", "head_dim"),
        *(
            tensor
            for target, source, shape in (
                ("attn_k", "self_attn.k_proj", ("n_kv", "n_embd")),
                ("attn_v", "self_attn.v_proj", ("n_kv", "n_embd")),
                ("attn_k_norm", "self_attn.k_norm", ("head_dim",)),
            )
            for tensor in (
                _parts.block(target, source, *shape, when=f"no {_SHARED}"),
                # The engine requires them in every layer, and does not use these.
                Tensor(f"blk.{{i}}.{target}.weight", f"model.layers.0.{source}.weight", shape, when=_SHARED),
            )
        ),
        _parts.block("attn_output", "self_attn.o_proj", "n_embd", "n_q"),
        _parts.block("post_attention_norm", "post_attention_layernorm", "n_embd"),
        _parts.block("ffn_norm", "pre_feedforward_layernorm", "n_embd"),
        *_parts.gated_feed_forward(),
        _parts.block("post_ffw_norm", "post_feedforward_layernorm", "n_embd"),
        _parts.block("inp_gate", "per_layer_input_gate", "n_per_layer", "n_embd"),
        _parts.block("proj", "per_layer_projection", "n_embd", "n_per_layer"),
        _parts.block("post_norm", "post_per_layer_input_norm", "n_embd"),
        _parts.block("altup_correct_coef", "altup.correction_coefs", "n_altup", "n_altup", is_float=True),
        Tensor("blk.{i}.altup_correct_scale.weight", "model.layers.{i}.altup.correct_output_scale", ("n_embd",)),
        _parts.block("altup_predict_coef", "altup.prediction_coefs", "n_altup_coefs", "n_altup", is_float=True),
        _parts.block("altup_router", "altup.modality_router", "n_altup", "n_embd", is_float=True),
        _parts.block("altup_router_norm", "altup.router_norm", "n_embd"),
        _parts.block("laurel_l", "laurel.linear_left", "n_laurel", "n_embd"),
        _parts.block("laurel_r", "laurel.linear_right", "n_embd", "n_laurel"),
        _parts.block("laurel_post_norm", "laurel.post_laurel_norm", "n_embd"),
    ),
    ignored=(
        *SAVED_TABLES,
        r"(model\.)?(vision_tower|audio_tower|embed_vision|embed_audio)\..*",
        # Published checkpoints hold keys and values of the layers that share those of others.
        rf"model\.layers\.({_N_LAYER_KV // 10}|[3-9]|\d\d)\d\.self_attn\.(k_proj|v_proj|k_norm)\.weight",
    ),
    required={
        "hidden_activation": ("gelu_pytorch_tanh",),
        "attention_bias": (False,),
        "final_logit_softcapping": (30.0, 30),
        "altup_active_idx": (0,),
        "altup_num_inputs": (_N_ALTUP,),
        "altup_correct_scale": (True,),
        "laurel_rank": (_N_LAUREL,),
        "hidden_size_per_layer_input": (_N_PER_LAYER,),
    },
    defaults={"sliding_window_pattern": 5},
    rename_keys=_rename_keys,
    sizes=_sizes,
    switches={"tie_word_embeddings": True},
    blocks={_SHARED: _shares},
    rope=frozenset({"local"}),
    window="needed",
    text_config="text_config",
    prefixes=_parts.LANGUAGE_MODEL,
    extra=_sharing_and_sparsity,
)

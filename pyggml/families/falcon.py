"""Falcon 7B, 11B, 40B and 180B."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyggml.families import _parts
from pyggml.families._family import Family
from pyggml.families._layout import Layout, Sizes, Tensor
from pyggml.files.weights import Reordered, Weight

_BLOCK = "transformer.h.{i}."


def _rename_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rename Falcon's keys to the usual ones, and derive the number of key heads from three keys."""
    renamed = dict(values)
    for ours, theirs in (
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("n_head_kv", "num_kv_heads"),
    ):
        if ours in renamed:
            renamed.setdefault(theirs, renamed.pop(ours))
    n_head = renamed.get("num_attention_heads")
    # The first configurations of the 40B name only the code, which has no other decoder.
    is_new = bool(renamed.setdefault("new_decoder_architecture", renamed.get("model_type") == "RefinedWeb"))
    multi_query = 1 if renamed.get("multi_query", True) else n_head
    n_head_kv = renamed.pop("num_kv_heads", None)
    renamed["num_key_value_heads"] = (n_head if n_head_kv is None else n_head_kv) if is_new else multi_query
    n_embd, n_ff = renamed.get("hidden_size"), renamed.pop("ffn_hidden_size", None)
    renamed["intermediate_size"] = 4 * n_embd if n_ff is None and isinstance(n_embd, int) else n_ff
    n_norms = renamed.get("num_ln_in_parallel_attn")
    renamed["two_norms"] = is_new and n_norms in (None, 2)
    return renamed


def _ungrouped(weight: Weight, sizes: Sizes) -> Weight:
    """Put all queries first, then all keys, then all values; Falcon stores them grouped by key and value head."""
    n_queries = sizes.n_head // sizes.n_head_kv
    heads = np.arange(sizes.n_qkv).reshape(sizes.n_head_kv, n_queries + 2, sizes.head_dim)
    parts = (heads[:, :n_queries], heads[:, n_queries], heads[:, n_queries + 1])
    return Reordered(weight, np.concatenate([part.reshape(-1) for part in parts]))


FALCON = Layout(
    "falcon",
    model_types=("falcon", "RefinedWeb", "RefinedWebModel"),
    hf_architectures=("FalconForCausalLM", "RWForCausalLM"),
    name="Falcon",
    tensors=(
        Tensor("token_embd.weight", "transformer.word_embeddings.weight", ("n_vocab", "n_embd")),
        _parts.OUTPUT,
        *_parts.with_bias(Tensor("output_norm.weight", "transformer.ln_f.weight", ("n_embd",))),
        *(
            each
            for target, source, when in (
                ("attn_norm", "input_layernorm", "no two_norms"),
                ("attn_norm", "ln_mlp", "two_norms"),
                ("attn_norm_2", "ln_attn", "two_norms"),
            )
            for each in _parts.with_bias(
                Tensor(f"blk.{{i}}.{target}.weight", f"{_BLOCK}{source}.weight", ("n_embd",), when=when)
            )
        ),
        Tensor(
            "blk.{i}.attn_qkv.weight",
            f"{_BLOCK}self_attention.query_key_value.weight",
            ("n_qkv", "n_embd"),
            _ungrouped,
        ),
        Tensor("blk.{i}.attn_output.weight", f"{_BLOCK}self_attention.dense.weight", ("n_embd", "n_q")),
        Tensor("blk.{i}.ffn_up.weight", f"{_BLOCK}mlp.dense_h_to_4h.weight", ("n_ff", "n_embd")),
        Tensor("blk.{i}.ffn_down.weight", f"{_BLOCK}mlp.dense_4h_to_h.weight", ("n_embd", "n_ff")),
    ),
    norm="layer",
    norm_eps="layer_norm_epsilon",
    required={
        # the engine computes the usual approximation
        "activation": ("gelu",),
        "alibi": (False,),
        "bias": (False,),
        "multi_query": (True, False),
        "parallel_attn": (True,),
        "apply_residual_connection_post_layernorm": (False,),
        "num_ln_in_parallel_attn": (None, 1, 2),
        "new_decoder_architecture": (False, True),
    },
    defaults={"max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5},
    switches={"tie_word_embeddings": True, "two_norms": False},
    is_head_dim_fixed=True,
    base="transformer.",
    rename_keys=_rename_keys,
)

FAMILY = Family(
    name="falcon",
    title="Falcon",
    stop_tokens=("<|endoftext|>",),
    builds=(FALCON,),
    required_tokens=("<|endoftext|>",),
    classes=("Falcon",),
)

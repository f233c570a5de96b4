"""gpt-oss, which responds in channels: `<|end|>` ends a message, and the response continues in the next channel."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pyggml.families import _parts
from pyggml.families._family import Family, Signs, Variant
from pyggml.families._layout import Layout, Sizes, Tensor, Transform
from pyggml.files.config import Config
from pyggml.files.weights import Columns, Reordered

_EXPERTS = "model.layers.{i}.mlp.experts."
_BOTH = ("n_expert", "2*n_ff", "n_embd")  # rows of gate and up projection alternate


def _rows_from(first: int) -> Transform:
    """Keep every second row: those of the gate from 0, those of the up projection from 1."""
    return lambda weight, _sizes: Reordered(weight, np.arange(first, weight.n_rows, 2))


def _columns_from(first: int) -> Transform:
    """Keep every second column, of a stack of biases."""
    return lambda weight, _sizes: Columns(weight, slice(first, None, 2))


def _metadata(_config: Config, sizes: Sizes) -> Mapping[str, Any]:
    return {"expert_feed_forward_length": sizes.n_ff}


GPT_OSS = Layout(
    "gpt-oss",
    model_types=("gpt_oss",),
    hf_architectures=("GptOssForCausalLM",),
    name="gpt-oss",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        _parts.TIED_OUTPUT,
        Tensor("output_norm.weight", "model.norm.weight", ("n_embd",)),
        _parts.block("attn_norm", "input_layernorm", "n_embd"),
        _parts.block("post_attention_norm", "post_attention_layernorm", "n_embd"),
        *_parts.attention(qkv_bias="always", out_bias="always"),
        Tensor("blk.{i}.attn_sinks.weight", "model.layers.{i}.self_attn.sinks", ("n_head",)),
        *_parts.with_bias(_parts.router("model.layers.{i}.mlp.router.weight")),
        Tensor("blk.{i}.ffn_gate_exps.weight", f"{_EXPERTS}gate_up_proj", _BOTH, _rows_from(0), is_transposed=True),
        Tensor("blk.{i}.ffn_up_exps.weight", f"{_EXPERTS}gate_up_proj", _BOTH, _rows_from(1), is_transposed=True),
        Tensor(
            "blk.{i}.ffn_down_exps.weight", f"{_EXPERTS}down_proj", ("n_expert", "n_embd", "n_ff"), is_transposed=True
        ),
        *(
            Tensor(f"blk.{{i}}.ffn_{target}_exps.bias", f"{_EXPERTS}{source}_bias", shape, transform, is_float=True)
            for target, source, shape, transform in (
                ("gate", "gate_up_proj", ("n_expert", "2*n_ff"), _columns_from(0)),
                ("up", "gate_up_proj", ("n_expert", "2*n_ff"), _columns_from(1)),
                ("down", "down_proj", ("n_expert", "n_embd"), None),
            )
        ),
    ),
    required={"hidden_act": ("silu",), "attention_bias": (True,), "swiglu_alpha": (1.702,), "swiglu_limit": (7.0,)},
    defaults={
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "sliding_window_pattern": 2,
    },
    switches={"tie_word_embeddings": False},
    rope=frozenset({"rounded"}),
    window="needed",
    n_expert="num_local_experts",
    extra=_metadata,
)

FAMILY = Family(
    name="gpt-oss",
    title="gpt-oss",
    stop_tokens=("<|return|>", "<|call|>", "<|endoftext|>"),
    builds=(GPT_OSS,),
    required_tokens=("<|return|>", "<|call|>"),
    signs=Signs(
        tokens=("<|channel|>", "<|message|>"), names=("gpt oss",), template=("<|channel|>",), n_vocab=(201_088,)
    ),
    text_tokens=("<|end|>",),
    classes=("GptOss",),
    variants=(
        Variant("gpt-oss-20b", ("gpt oss 20b",), {"n_layer": (24,)}),
        Variant("gpt-oss-120b", ("gpt oss 120b",), {"n_layer": (36,)}),
    ),
)

"""gpt-oss, which responds in channels: `<|end|>` ends a message, and the response continues in the next channel."""

from collections.abc import Mapping
from typing import Any

from pyggml.families import _parts
from pyggml.families._family import Family, Signs, Variant
from pyggml.families._layout import Layout, Sizes, Tensor
from pyggml.files.config import Config

_BLOCK = "model.layers.{i}."
_EXPERTS = f"{_BLOCK}mlp.experts."
_BOTH = ("n_expert", "2*n_ff", "n_embd")  # rows of gate and up projection alternate


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
        Tensor("blk.{i}.attn_norm.weight", f"{_BLOCK}input_layernorm.weight", ("n_embd",)),
        Tensor("blk.{i}.post_attention_norm.weight", f"{_BLOCK}post_attention_layernorm.weight", ("n_embd",)),
        *_parts.attention(qkv_bias="always", out_bias="always"),
        Tensor("blk.{i}.attn_sinks.weight", f"{_BLOCK}self_attn.sinks", ("n_head",)),
        *_parts.with_bias(_parts.router(f"{_BLOCK}mlp.router.weight"), None),
        Tensor("blk.{i}.ffn_gate_exps.weight", f"{_EXPERTS}gate_up_proj", _BOTH, _parts.even_rows, is_transposed=True),
        Tensor("blk.{i}.ffn_up_exps.weight", f"{_EXPERTS}gate_up_proj", _BOTH, _parts.odd_rows, is_transposed=True),
        Tensor(
            "blk.{i}.ffn_down_exps.weight", f"{_EXPERTS}down_proj", ("n_expert", "n_embd", "n_ff"), is_transposed=True
        ),
        *(
            Tensor(f"blk.{{i}}.ffn_{target}_exps.bias", f"{_EXPERTS}{source}_bias", shape, transform, is_float=True)
            for target, source, shape, transform in (
                ("gate", "gate_up_proj", ("n_expert", "2*n_ff"), _parts.even_columns),
                ("up", "gate_up_proj", ("n_expert", "2*n_ff"), _parts.odd_columns),
                ("down", "down_proj", ("n_expert", "n_embd"), None),
            )
        ),
    ),
    ignored=_parts.SAVED_TABLES,
    required={
        "hidden_act": ("silu",),
        "attention_bias": (True,),
        "swiglu_alpha": (1.702,),
        "swiglu_limit": (7.0,),
    },
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

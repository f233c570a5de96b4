"""StableLM 3B, StableLM 2 and StableLM Zephyr."""

from pyggml.importer.layout import Layout, Tensor
from pyggml.importer.layouts import _parts

_BLOCK = "model.layers.{i}."


STABLELM = Layout(
    name="StableLM",
    architecture="stablelm",
    model_types=("stablelm", "stablelm_epoch"),
    hf_architectures=("StableLmForCausalLM", "StableLMEpochForCausalLM"),
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        _parts.TIED_OUTPUT,
        *_parts.with_bias(Tensor("output_norm.weight", "model.norm.weight", ("n_embd",)), None),
        *_parts.with_bias(Tensor("blk.{i}.attn_norm.weight", f"{_BLOCK}input_layernorm.weight", ("n_embd",)), None),
        *_parts.with_bias(
            Tensor(
                "blk.{i}.ffn_norm.weight",
                f"{_BLOCK}post_attention_layernorm.weight",
                ("n_embd",),
                when="no use_parallel_residual",
            ),
            "no use_parallel_residual",
        ),
        *_parts.attention(qkv_bias="use_qkv_bias", out_bias=None),
        *(
            Tensor(
                f"blk.{{i}}.attn_{letter}_norm.weight",
                f"{_BLOCK}self_attn.{letter}_layernorm.norms.{{e}}.weight",
                ("head_dim",),
                when="qk_layernorm",
                each=each,
                is_float=True,
            )
            for letter, each in (("q", "n_head"), ("k", "n_head_kv"))
        ),
        *_parts.gated_feed_forward(),
    ),
    ignored=_parts.SAVED_TABLES,
    norm="layer",
    norm_eps="layer_norm_eps",
    required={"hidden_act": ("silu",)},
    defaults={"partial_rotary_factor": 0.25, "layer_norm_eps": 1e-5},
    switches={
        "tie_word_embeddings": False,
        "use_qkv_bias": False,
        "qk_layernorm": False,
        "use_parallel_residual": False,
    },
    is_head_dim_fixed=True,
)

"""Phi-1, Phi-1.5 and Phi-2; Phi-3, Phi-3.5, Phi-4-mini and Phi-4."""

from pyggml.importer.layout import Layout, Tensor
from pyggml.importer.layouts import _parts

_ATTENTION = "model.layers.{i}.self_attn."
_FEED_FORWARD = "model.layers.{i}.mlp."

PHI2 = Layout(
    name="Phi-1, Phi-1.5 or Phi-2",
    architecture="phi2",
    model_types=("phi",),
    hf_architectures=("PhiForCausalLM",),
    tensors=(
        *tuple(
            each
            for tensor in (
                Tensor("output.weight", "lm_head.weight", ("n_vocab", "n_embd")),
                Tensor("output_norm.weight", "model.final_layernorm.weight", ("n_embd",)),
                Tensor("blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight", ("n_embd",)),
                Tensor("blk.{i}.attn_q.weight", f"{_ATTENTION}q_proj.weight", ("n_q", "n_embd")),
                Tensor("blk.{i}.attn_k.weight", f"{_ATTENTION}k_proj.weight", ("n_kv", "n_embd")),
                Tensor("blk.{i}.attn_v.weight", f"{_ATTENTION}v_proj.weight", ("n_kv", "n_embd")),
                Tensor("blk.{i}.attn_output.weight", f"{_ATTENTION}dense.weight", ("n_embd", "n_q")),
                Tensor("blk.{i}.ffn_up.weight", f"{_FEED_FORWARD}fc1.weight", ("n_ff", "n_embd")),
                Tensor("blk.{i}.ffn_down.weight", f"{_FEED_FORWARD}fc2.weight", ("n_embd", "n_ff")),
            )
            for each in _parts.with_bias(tensor, None)
        ),
        _parts.EMBEDDING,
    ),
    ignored=_parts.SAVED_TABLES,
    norm="layer",
    norm_eps="layer_norm_eps",
    required={"hidden_act": ("gelu_new",), "qk_layernorm": (False,), "tie_word_embeddings": (False,)},
    defaults={"partial_rotary_factor": 0.5},
    is_head_dim_fixed=True,
)

PHI3 = Layout(
    name="Phi-3 or Phi-4",
    architecture="phi3",
    model_types=("phi3",),
    hf_architectures=("Phi3ForCausalLM",),
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        *_parts.NORMS,
        Tensor("blk.{i}.attn_qkv.weight", f"{_ATTENTION}qkv_proj.weight", ("n_qkv", "n_embd")),
        Tensor("blk.{i}.attn_output.weight", f"{_ATTENTION}o_proj.weight", ("n_embd", "n_q")),
        Tensor("blk.{i}.ffn_up.weight", f"{_FEED_FORWARD}gate_up_proj.weight", ("n_ff2", "n_embd")),
        Tensor("blk.{i}.ffn_down.weight", f"{_FEED_FORWARD}down_proj.weight", ("n_embd", "n_ff")),
    ),
    ignored=_parts.SAVED_TABLES,
    required={
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "lm_head_bias": (False,),
        "full_attn_mod": (1,),
        "interpolate_factor": (1,),
    },
    switches={"tie_word_embeddings": False},
    is_head_dim_fixed=True,
    rope=frozenset({"longrope"}),
    window="limit",
)

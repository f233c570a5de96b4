"""Phi-1, Phi-1.5 and Phi-2."""

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Architecture, Layout, Tensor

_BLOCK = "model.layers.{i}."

PHI2 = Layout(
    "phi2",
    model_types=("phi",),
    hf_architectures=("PhiForCausalLM",),
    name="Phi-1, Phi-1.5 or Phi-2",
    tensors=(
        *(
            each
            for tensor in (
                Tensor("output.weight", "lm_head.weight", ("n_vocab", "n_embd")),
                Tensor("output_norm.weight", "model.final_layernorm.weight", ("n_embd",)),
                Tensor("blk.{i}.attn_norm.weight", f"{_BLOCK}input_layernorm.weight", ("n_embd",)),
                Tensor("blk.{i}.attn_q.weight", f"{_BLOCK}self_attn.q_proj.weight", ("n_q", "n_embd")),
                Tensor("blk.{i}.attn_k.weight", f"{_BLOCK}self_attn.k_proj.weight", ("n_kv", "n_embd")),
                Tensor("blk.{i}.attn_v.weight", f"{_BLOCK}self_attn.v_proj.weight", ("n_kv", "n_embd")),
                Tensor("blk.{i}.attn_output.weight", f"{_BLOCK}self_attn.dense.weight", ("n_embd", "n_q")),
                Tensor("blk.{i}.ffn_up.weight", f"{_BLOCK}mlp.fc1.weight", ("n_ff", "n_embd")),
                Tensor("blk.{i}.ffn_down.weight", f"{_BLOCK}mlp.fc2.weight", ("n_embd", "n_ff")),
            )
            for each in _parts.with_bias(tensor, None)
        ),
        _parts.EMBEDDING,
    ),
    ignored=_parts.SAVED_TABLES,
    norm="layer",
    norm_eps="layer_norm_eps",
    required={"hidden_act": ("gelu_new",), "qk_layernorm": (False,), "tie_word_embeddings": (False,)},
    is_head_dim_fixed=True,
)

FAMILY = Family(
    name="phi2",
    title="Phi-1, 1.5 or 2",
    stop_tokens=("<|endoftext|>",),
    builds=(PHI2, Architecture("phi2", ("phi-msft", "mixformer-sequential"), ("MixFormerSequentialForCausalLM",))),
    required_tokens=("<|endoftext|>",),
    classes=("Phi",),
    variants=(
        Variant("Phi-1.5", ("phi 1 5",)),
        Variant("Phi-1", ("phi 1",)),
        Variant("Phi-2", ("phi 2", "phi2"), {"n_embd": (2560,)}),
        Variant("Phi-1 or 1.5", (), {"n_embd": (2048,)}),
    ),
)

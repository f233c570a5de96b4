"""Phi-1, Phi-1.5 and Phi-2."""

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Architecture, Layout, Tensor

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
                _parts.block("attn_norm", "input_layernorm", "n_embd"),
                _parts.block("attn_q", "self_attn.q_proj", "n_q", "n_embd"),
                _parts.block("attn_k", "self_attn.k_proj", "n_kv", "n_embd"),
                _parts.block("attn_v", "self_attn.v_proj", "n_kv", "n_embd"),
                _parts.block("attn_output", "self_attn.dense", "n_embd", "n_q"),
                _parts.block("ffn_up", "mlp.fc1", "n_ff", "n_embd"),
                _parts.block("ffn_down", "mlp.fc2", "n_embd", "n_ff"),
            )
            for each in _parts.with_bias(tensor)
        ),
        _parts.EMBEDDING,
    ),
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

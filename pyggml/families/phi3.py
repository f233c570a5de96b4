"""Phi-3 and Phi-3.5; and Phi-4-mini, which has their architecture and chat format, but another vocabulary."""

from dataclasses import replace

from pyggml.families import _parts
from pyggml.families._family import Family, Signs, Variant
from pyggml.families._layout import Architecture, Layout

#: Also the layout of Phi-4.
PHI3 = Layout(
    "phi3",
    model_types=("phi3",),
    hf_architectures=("Phi3ForCausalLM",),
    name="Phi-3 or Phi-4",
    tensors=(
        *_parts.COMMON,
        _parts.block("attn_qkv", "self_attn.qkv_proj", "n_qkv", "n_embd"),
        _parts.block("attn_output", "self_attn.o_proj", "n_embd", "n_q"),
        _parts.block("ffn_up", "mlp.gate_up_proj", "2*n_ff", "n_embd"),
        _parts.block("ffn_down", "mlp.down_proj", "n_embd", "n_ff"),
    ),
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

#: On tiny random models either difference costs most of the logits (rms 0.7 to 0.9 of their deviation); without both,
#: they are equal to 1e-5.
PHIMOE = Architecture(
    "phimoe",
    ("phimoe",),
    ("PhiMoEForCausalLM", "PhimoeForCausalLM"),
    refusal="the engine computes it otherwise than transformers: it makes the weights of the two experts add up to "
    "one, where the model takes nearly all of both (sparsemixer), and leaves the mean in what its norms take (RMSNorm "
    "for LayerNorm). A GGUF file of the model loads, with the same differences",
)

FAMILY = Family(
    name="phi3",
    title="Phi-3 or 3.5",
    stop_tokens=("<|end|>", "<|endoftext|>"),
    builds=(PHI3, PHIMOE),
    required_tokens=("<|end|>",),
    signs=Signs(names=("phi 3", "phi3"), n_vocab=(32064,)),
    precedence=1,  # the architecture is named after Phi-3, and a Phi-4-mini's name also matches Phi-4
    classes=("Phi3",),
    variants=(
        Variant("Phi-3.5-MoE", ("phi 3 5 moe",), {"architecture": ("phimoe",)}),
        Variant("Phi-3.5-mini", ("phi 3 5",)),
        Variant("Phi-3-medium", ("phi 3 medium",), {"n_embd": (5120,)}),
        Variant("Phi-3-mini", ("phi 3 mini",), {"n_embd": (3072,), "n_ctx": (4096,)}),
        Variant("Phi-3-mini or 3.5-mini", (), {"n_embd": (3072,), "n_ctx": (131072,)}),
    ),
)

PHI4_MINI = replace(
    FAMILY,
    name="phi4-mini",
    title="Phi-4-mini",
    builds=(PHI3,),
    signs=Signs(names=("phi 4 mini", "phi4 mini"), n_vocab=(200064,)),
    needs_sign=True,
    classes=("Phi3", "Phi4"),
    variants=(Variant("Phi-4-mini", ("phi 4 mini", "phi4 mini"), {"n_embd": (3072,)}),),
)

"""OLMo 2 and 3, which normalise what attention and feed-forward layers give, instead of what they take."""

from dataclasses import replace

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Layout, Tensor

OLMO2 = Layout(
    "olmo2",
    model_types=("olmo2",),
    hf_architectures=("Olmo2ForCausalLM",),
    name="OLMo 2",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        _parts.TIED_OUTPUT,
        Tensor("output_norm.weight", "model.norm.weight", ("n_embd",)),
        *_parts.attention(qkv_bias=None, out_bias=None),
        _parts.block("attn_q_norm", "self_attn.q_norm", "n_q"),
        _parts.block("attn_k_norm", "self_attn.k_norm", "n_kv"),
        _parts.block("post_attention_norm", "post_attention_layernorm", "n_embd"),
        *_parts.gated_feed_forward(),
        _parts.block("post_ffw_norm", "post_feedforward_layernorm", "n_embd"),
    ),
    required={"hidden_act": ("silu",), "attention_bias": (False,)},
    switches={"tie_word_embeddings": False},
    is_head_dim_fixed=True,
)

OLMO3 = replace(
    OLMO2,
    model_types=("olmo3",),
    hf_architectures=("Olmo3ForCausalLM",),
    name="OLMo 3",
    defaults={"sliding_window_pattern": 4},
    rope=frozenset({"unscaled"}),
    window="layers",
)

FAMILY = Family(
    name="olmo2",
    title="OLMo 2 or 3",
    stop_tokens=("<|endoftext|>", "<|im_end|>"),
    builds=(OLMO2, OLMO3),
    required_tokens=("<|endoftext|>",),
    classes=("OLMo2",),
    variants=(
        Variant("OLMo 3", ("olmo 3",)),
        Variant("OLMo 2 1B", ("olmo 2 0425 1b",)),
        Variant("OLMo 2 7B", ("olmo 2 1124 7b",)),
        Variant("OLMo 2 13B", ("olmo 2 1124 13b",)),
        Variant("OLMo 2 32B", ("olmo 2 0325 32b",)),
    ),
)

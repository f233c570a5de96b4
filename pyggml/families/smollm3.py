"""SmolLM3: Llama's layout, in which every fourth layer has no rotations."""

from dataclasses import replace

from pyggml.families import _parts, llama2
from pyggml.families._family import Family, Variant

SMOLLM3 = replace(
    llama2.LLAMA,
    architecture="smollm3",
    model_types=("smollm3",),
    hf_architectures=("SmolLM3ForCausalLM",),
    name="SmolLM3",
    factors=_parts.ATTENTION_FACTORS,
    tensors=(
        *_parts.COMMON,
        *_parts.attention(queries=_parts.paired_queries, keys=_parts.paired_keys, qkv_bias=None, out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    required={"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)},
    switches={"tie_word_embeddings": True},
    rope=frozenset(),
    window="limit",
    extra=_parts.require_unrotated_fourths,
)

FAMILY = Family(
    name="smollm3",
    title="SmolLM3",
    stop_tokens=("<|im_end|>", "<|end_of_text|>"),
    builds=(SMOLLM3,),
    required_tokens=("<|im_end|>", "<|end_of_text|>"),
    classes=("SmolLM3",),
    variants=(Variant("SmolLM3", ("smollm3",)),),
)

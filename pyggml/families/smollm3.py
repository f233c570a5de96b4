"""SmolLM3: Llama's layout, in which every fourth layer has no rotations."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyggml.errors import UnsupportedArchitectureError
from pyggml.families import _parts, llama2
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Sizes
from pyggml.files.config import Config

_EVERY = 4  # which the engine assumes


def _unrotated_layers(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    """Refuses models whose layers without rotations are others than the engine's."""
    engine = [int((i + 1) % _EVERY != 0) for i in range(sizes.n_layer)]
    every = config.integer("no_rope_layer_interval", _EVERY)
    is_rotated = config.get("no_rope_layers")  # its name notwithstanding
    if is_rotated is None:
        is_rotated = [int((i + 1) % every != 0) for i in range(sizes.n_layer)]
    if is_rotated != engine:
        raise UnsupportedArchitectureError(
            f"{config.path}: no_rope_layers is {is_rotated!r:.100}; the engine only supports models of which every "
            f"layer but each {_EVERY}th is rotated"
        )
    return {}


SMOLLM3 = replace(
    llama2.LLAMA,
    architecture="smollm3",
    model_types=("smollm3",),
    hf_architectures=("SmolLM3ForCausalLM",),
    name="SmolLM3",
    tensors=(
        _parts.EMBEDDING,
        _parts.OUTPUT,
        *_parts.NORMS,
        *_parts.attention(queries=_parts.paired_queries, keys=_parts.paired_keys, qkv_bias=None, out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    required={"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)},
    switches={"tie_word_embeddings": True},
    rope=frozenset(),
    window="limit",
    extra=_unrotated_layers,
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

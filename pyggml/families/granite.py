"""Granite 3: Llama's layout with four multipliers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyggml.families import _parts, llama2
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Sizes
from pyggml.files.config import Config


def _multipliers(config: Config, _sizes: Sizes) -> Mapping[str, Any]:
    return {
        "embedding_scale": config.number("embedding_multiplier", 1.0),
        "residual_scale": config.number("residual_multiplier", 1.0),
        "attention.scale": config.number("attention_multiplier", 1.0),
        "logit_scale": config.number("logits_scaling", 1.0),  # both divide by it
    }


GRANITE = replace(
    llama2.LLAMA,
    architecture="granite",
    model_types=("granite",),
    hf_architectures=("GraniteForCausalLM",),
    name="Granite",
    factors=_parts.ATTENTION_FACTORS,
    extra=_multipliers,
)

FAMILY = Family(
    name="granite",
    title="Granite 3",
    stop_tokens=("<|end_of_text|>",),
    builds=(GRANITE,),
    required_tokens=("<|end_of_text|>",),
    classes=("Granite",),
    variants=(
        Variant("Granite 3.3", ("granite 3 3",)),
        Variant("Granite 3.2", ("granite 3 2",)),
        Variant("Granite 3.1", ("granite 3 1",)),
        Variant("Granite 3.0", ("granite 3 0",)),
    ),
)

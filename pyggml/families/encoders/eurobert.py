"""EuroBERT: Llama's blocks with attention in both directions."""

from __future__ import annotations

from pyggml.families import _parts as decoder_parts
from pyggml.families._family import Family, Signs
from pyggml.families._layout import SAVED_TABLES, Layout
from pyggml.families.encoders import _parts

EUROBERT = Layout(
    "eurobert",
    model_types=("eurobert",),
    hf_architectures=("EuroBertModel", "EuroBertForMaskedLM"),  # the engine has no classifier's head for it
    name="EuroBERT",
    is_encoder=True,
    tensors=(
        decoder_parts.EMBEDDING,
        *decoder_parts.NORMS,
        *decoder_parts.attention(qkv_bias=None, out_bias=None),
        *decoder_parts.gated_feed_forward(),
    ),
    ignored=(*SAVED_TABLES, r"lm_head\..*"),
    required={"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)},
    switches=_parts.SWITCHES,
    is_head_dim_fixed=True,
    rename_keys=_parts.renaming(),
    extra=_parts.metadata,
)

FAMILY = Family(
    name="eurobert",
    title="EuroBERT",
    is_encoder=True,
    stop_tokens=("<|end_of_text|>",),
    builds=(EUROBERT,),
    required_tokens=("<|end_of_text|>",),
    signs=Signs(names=("eurobert",)),
)

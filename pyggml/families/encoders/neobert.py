"""NeoBERT: rotations of neighbouring columns, RMS norms before layers, a gate with SiLU."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyggml.families._family import Family, Signs
from pyggml.families._layout import SAVED_TABLES, Layout, Sizes, Tensor
from pyggml.families.encoders import _parts
from pyggml.files.weights import Reordered, Weight

_LAYER = "transformer_encoder.{i}"


def _rename_keys(values: dict[str, Any]) -> None:
    """Add what the model's code does not read from keys, and the width that its gate leaves."""
    n_ff = values.get("intermediate_size")
    if type(n_ff) is int:
        values["intermediate_size"] = 2 * n_ff // 3 + -(2 * n_ff // 3) % 8  # rounded up to a multiple of 8
    if "max_length" in values:
        values.setdefault("max_position_embeddings", values["max_length"])


def _ungrouped(weight: Weight, sizes: Sizes) -> Weight:
    """Put all queries first, then all keys, then all values; NeoBERT stores them head by head."""
    heads = np.arange(weight.n_rows).reshape(sizes.n_head, 3, sizes.head_dim)
    return Reordered(weight, heads.swapaxes(0, 1).reshape(-1))


NEO_BERT = Layout(
    "neo-bert",
    model_types=("neobert",),
    hf_architectures=("NeoBERT", "NeoBERTLMHead"),
    name="NeoBERT",
    is_encoder=True,
    tensors=(
        Tensor("token_embd.weight", "encoder.weight", ("n_vocab", "n_embd")),
        Tensor("enc.output_norm.weight", "layer_norm.weight", ("n_embd",)),
        _parts.matrix("attn_norm", f"{_LAYER}.attention_norm", "n_embd"),
        Tensor("blk.{i}.attn_qkv.weight", f"{_LAYER}.qkv.weight", ("n_qkv", "n_embd"), _ungrouped),
        _parts.matrix("attn_output", f"{_LAYER}.wo", "n_embd", "n_q"),
        _parts.matrix("ffn_norm", f"{_LAYER}.ffn_norm", "n_embd"),
        _parts.matrix("ffn_up", f"{_LAYER}.ffn.w12", "2*n_ff", "n_embd"),
        _parts.matrix("ffn_down", f"{_LAYER}.ffn.w3", "n_embd", "n_ff"),
    ),
    ignored=(*SAVED_TABLES, r"decoder\..*", r"freqs_cis"),
    norm_eps="norm_eps",
    defaults={"norm_eps": 1e-6, "max_position_embeddings": 4096},
    required={"hidden_act": ("swiglu", "SwiGLU")},
    switches=_parts.SWITCHES,
    is_head_dim_fixed=True,
    inert=frozenset(
        {"embedding_init_range", "decoder_init_range", "classifier_init_range", "max_length", "dim_head", "kwargs"}
    ),
    prefixes={"model.": ""},
    base="",
    rename_keys=_parts.renaming(_rename_keys),
    extra=_parts.metadata,
)

FAMILY = Family(
    name="neobert",
    title="NeoBERT",
    is_encoder=True,
    stop_tokens=("[SEP]",),
    builds=(NEO_BERT,),
    required_tokens=("[SEP]", "[CLS]"),
    signs=Signs(names=("neobert",)),
)

"""DistilBERT: BERT without token types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyggml.families._family import Family, Signs
from pyggml.families.encoders import _parts
from pyggml.families.encoders.bert import BERT

_LAYER = "distilbert.transformer.layer.{i}"
_NAMES = {
    "dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
}


def _rename_keys(values: dict[str, Any]) -> None:
    """Rename DistilBERT's keys, and add the epsilon of its norms, which no key changes."""
    for theirs, usual in _NAMES.items():
        if theirs in values:
            values[usual] = values.pop(theirs)
    values["layer_norm_eps"] = 1e-12


DISTILBERT = replace(
    BERT,
    model_types=("distilbert",),
    hf_architectures=("DistilBertModel", "DistilBertForMaskedLM"),  # the engine has no head with ReLU
    name="DistilBERT",
    tensors=(
        *_parts.embeddings("distilbert.embeddings", positions=True, types=False),
        *_parts.linear("attn_q", f"{_LAYER}.attention.q_lin", "n_embd", "n_embd"),
        *_parts.linear("attn_k", f"{_LAYER}.attention.k_lin", "n_embd", "n_embd"),
        *_parts.linear("attn_v", f"{_LAYER}.attention.v_lin", "n_embd", "n_embd"),
        *_parts.linear("attn_output", f"{_LAYER}.attention.out_lin", "n_embd", "n_embd"),
        *_parts.linear("attn_output_norm", f"{_LAYER}.sa_layer_norm", "n_embd"),
        *_parts.linear("ffn_up", f"{_LAYER}.ffn.lin1", "n_ff", "n_embd"),
        *_parts.linear("ffn_down", f"{_LAYER}.ffn.lin2", "n_embd", "n_ff"),
        *_parts.linear("layer_output_norm", f"{_LAYER}.output_layer_norm", "n_embd"),
    ),
    ignored=(r"vocab_(transform|layer_norm|projector)\..*", r"(distilbert\.)?embeddings\.position_ids"),
    required={"hidden_act": _parts.GELU},
    base="distilbert.",
    rename_keys=_parts.renaming(_rename_keys),
)

FAMILY = Family(
    name="distilbert",
    title="DistilBERT",
    is_encoder=True,
    stop_tokens=("[SEP]",),
    builds=(DISTILBERT,),
    required_tokens=("[SEP]", "[CLS]"),
    signs=Signs(names=("distilbert", "distiluse")),
    needs_sign=True,
)

"""ModernBERT: rotations, norms before layers, a sliding window in two of three layers, a gate with GELU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyggml.families import _parts as decoder_parts
from pyggml.families._family import Family, Signs
from pyggml.families._heads import CLASSIFIER, N_LABELS
from pyggml.families._layout import SAVED_TABLES, Layout, Sizes, Tensor
from pyggml.families.encoders import _parts
from pyggml.files.config import Config

_LAYER = "model.layers.{i}"
#: The switch of blocks that have a norm before the attention: all but the first.
_NORMED = "norm before attention"
_POOLINGS = {"mean": 1, "cls": 2}


def _rename_keys(values: dict[str, Any]) -> None:
    values["sliding_window"] = values.pop("local_attention", 128)
    for theirs, usual in (("global_rope_theta", "rope_theta"), ("local_rope_theta", "rope_local_base_freq")):
        if values.get(theirs) is not None:
            values[usual] = values.pop(theirs)
    every, n = values.pop("global_attn_every_n_layers", 3), values.get("num_hidden_layers")
    if values.get("layer_types") is None and type(every) is int and every > 0 and type(n) is int and 0 < n < 1000:
        values["layer_types"] = ["sliding_attention" if i % every else "full_attention" for i in range(n)]


def _metadata(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    found = dict(_parts.metadata(config, sizes))
    config.require("hidden_activation", ("gelu", "silu"))
    found["hidden_activation"] = config.get("hidden_activation") or "gelu"
    if CLASSIFIER in sizes.flags:
        config.require("classifier_pooling", tuple(_POOLINGS))
        config.require("classifier_activation", ("gelu", "silu", "tanh"))
        found["classifier.pooling_type"] = _POOLINGS[config.get("classifier_pooling") or "cls"]
        found["classifier.activation"] = config.get("classifier_activation") or "gelu"
    else:
        config.get("classifier_pooling"), config.get("classifier_activation")
    return found


MODERN_BERT = Layout(
    "modern-bert",
    model_types=("modernbert",),
    hf_architectures=("ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"),
    name="ModernBERT",
    is_encoder=True,
    tensors=(
        Tensor("token_embd.weight", "model.embeddings.tok_embeddings.weight", ("n_vocab", "n_embd")),
        Tensor("token_embd_norm.weight", "model.embeddings.norm.weight", ("n_embd",)),
        Tensor("output_norm.weight", "model.final_norm.weight", ("n_embd",)),
        _parts.matrix("attn_norm", f"{_LAYER}.attn_norm", "n_embd", when=_NORMED),
        _parts.matrix("attn_qkv", f"{_LAYER}.attn.Wqkv", "n_qkv", "n_embd"),
        _parts.matrix("attn_output", f"{_LAYER}.attn.Wo", "n_embd", "n_q"),
        _parts.matrix("ffn_norm", f"{_LAYER}.mlp_norm", "n_embd"),
        _parts.matrix("ffn_up", f"{_LAYER}.mlp.Wi", "2*n_ff", "n_embd"),
        _parts.matrix("ffn_down", f"{_LAYER}.mlp.Wo", "n_embd", "n_ff"),
        Tensor("cls.weight", "head.dense.weight", ("n_embd", "n_embd"), when=CLASSIFIER),
        Tensor("cls.norm.weight", "head.norm.weight", ("n_embd",), when=CLASSIFIER),
        *_parts.with_bias(Tensor("cls.output.weight", "classifier.weight", (N_LABELS, "n_embd"), when=CLASSIFIER)),
    ),
    ignored=(*SAVED_TABLES, r"head\..*", r"decoder\..*"),
    norm="layer",
    norm_eps="norm_eps",
    required={
        "norm_bias": (False,),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "classifier_bias": (False,),
    },
    switches=_parts.SWITCHES,
    blocks={_NORMED: lambda _config, n_layer: [i > 0 for i in range(n_layer)]},
    sizes=_parts.sizes,
    is_head_dim_fixed=True,
    rope=frozenset({"local"}),
    window="layers",
    prefixes=decoder_parts.LANGUAGE_MODEL,
    rename_keys=_parts.renaming(_rename_keys),
    extra=_metadata,
)

FAMILY = Family(
    name="modernbert",
    title="ModernBERT",
    is_encoder=True,
    stop_tokens=("[SEP]",),
    builds=(MODERN_BERT,),
    required_tokens=("[SEP]", "[CLS]"),
    signs=Signs(names=("modernbert",)),
)

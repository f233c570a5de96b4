"""Nomic BERT: rotations, a gate with SiLU, no biases. In the form of its own code, or in that of transformers."""

from __future__ import annotations

from typing import Any

from pyggml.families._family import Family, Signs
from pyggml.families._layout import SAVED_TABLES, Layout, Tensor
from pyggml.families.encoders import _parts

#: The form of checkpoints that came with code of their own.
_OWN = "fused projections"
_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
    "activation_function": "hidden_act",
}


def _rename_keys(values: dict[str, Any]) -> None:
    """Rename the keys of the first code to those of transformers."""
    if "n_embd" not in values:
        return
    for theirs, usual in _NAMES.items():
        if theirs in values:
            values[usual] = values.pop(theirs)
    # Beyond the context of the training, the code would scale the rotations with the length of a text.
    values["max_position_embeddings"] = values.pop("max_trained_positions", None) or 2048
    values.pop("n_positions", None)
    values.pop("pad_vocab_size_multiple", None)  # the size of the vocabulary is padded already


def _projections() -> tuple[Tensor, ...]:
    parts = tuple(
        _parts.matrix(f"attn_{name}", f"layers.{{i}}.self_attn.{name}_proj", "n_q", "n_embd", when=f"no {_OWN}")
        for name in "qkv"
    )
    return (*parts, _parts.matrix("attn_qkv", "encoder.layers.{i}.attn.Wqkv", "n_qkv", "n_embd", when=_OWN))


def _in_both_forms(target: str, own: str, usual: str, *shape: str, biased: bool = False) -> tuple[Tensor, ...]:
    parts = (
        _parts.matrix(target, f"encoder.layers.{{i}}.{own}", *shape, when=_OWN),
        _parts.matrix(target, f"layers.{{i}}.{usual}", *shape, when=f"no {_OWN}"),
    )
    return tuple(each for part in parts for each in (_parts.with_bias(part) if biased else (part,)))


def _embedding_norm() -> tuple[Tensor, ...]:
    own = Tensor("token_embd_norm.weight", "emb_ln.weight", ("n_embd",), when=_OWN)
    usual = Tensor("token_embd_norm.weight", "embeddings.LayerNorm.weight", ("n_embd",), when=f"no {_OWN}")
    return (*_parts.with_bias(own), *_parts.with_bias(usual))


NOMIC_BERT = Layout(
    "nomic-bert",
    model_types=("nomic_bert",),
    hf_architectures=("NomicBertModel", "NomicBertForMaskedLM"),
    name="Nomic BERT",
    is_encoder=True,
    tensors=(
        *_parts.words_and_types("embeddings"),
        *_embedding_norm(),
        *_projections(),
        *_in_both_forms("attn_output", "attn.out_proj", "self_attn.o_proj", "n_embd", "n_embd"),
        *_in_both_forms("attn_output_norm", "norm1", "post_attention_layernorm", "n_embd", biased=True),
        *_in_both_forms("ffn_up", "mlp.fc11", "mlp.up_proj", "n_ff", "n_embd"),
        *_in_both_forms("ffn_gate", "mlp.fc12", "mlp.gate_proj", "n_ff", "n_embd"),
        *_in_both_forms("ffn_down", "mlp.fc2", "mlp.down_proj", "n_embd", "n_ff"),
        *_in_both_forms("layer_output_norm", "norm2", "post_mlp_layernorm", "n_embd", biased=True),
    ),
    ignored=(*SAVED_TABLES, r"pooler\..*", r"(cls|lm_head)\..*"),
    norm="layer",
    norm_eps="layer_norm_eps",
    required={
        "hidden_act": ("silu", "swiglu"),
        # of the first code
        "prenorm": (False,),
        "causal": (False,),
        "qkv_proj_bias": (False,),
        "mlp_fc1_bias": (False,),
        "mlp_fc2_bias": (False,),
        "use_rms_norm": (False, None),
        "parallel_block": (False,),
        "moe_every_n_layers": (None, 0),
        "rotary_emb_fraction": (1.0, 1),
        "rotary_emb_interleaved": (False,),
        "rotary_emb_scale_base": (None,),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
    },
    switches=_parts.SWITCHES,
    forms={_OWN: "encoder.layers.{i}.attn.Wqkv.weight"},
    sizes=_parts.sizes,
    is_head_dim_fixed=True,
    prefixes={"nomic_bert.": "", "bert.": ""},
    base="",
    rename_keys=_parts.renaming(_rename_keys),
    extra=_parts.metadata,
)

FAMILY = Family(
    name="nomic-bert",
    title="Nomic BERT",
    is_encoder=True,
    stop_tokens=("[SEP]",),
    builds=(NOMIC_BERT,),
    required_tokens=("[SEP]", "[CLS]"),
    signs=Signs(names=("nomic",)),
)

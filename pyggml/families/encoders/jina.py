"""Jina's embedding models: version 2 (a bias of the scores with distance) and version 3 (rotations)."""

from __future__ import annotations

from dataclasses import replace

from pyggml.families._family import Family, Signs
from pyggml.families._layout import SAVED_TABLES, Layout, Tensor
from pyggml.families.encoders import _parts
from pyggml.families.encoders.bert import BERT

_V2 = "bert.encoder.layer.{i}"
_V3 = "encoder.layers.{i}"


JINA_BERT_V2 = replace(
    BERT,
    architecture="jina-bert-v2",
    model_types=("bert",),  # as its configurations say
    told_by={"position_embedding_type": "alibi"},
    hf_architectures=("JinaBertModel", "JinaBertForMaskedLM"),  # the engine has no layer before a head's scores
    name="Jina BERT v2",
    positions="alibi",
    tensors=(
        *_parts.embeddings("bert.embeddings", positions=False, types=True),
        *_parts.linear("attn_q", f"{_V2}.attention.self.query", "n_embd", "n_embd"),
        *_parts.linear("attn_k", f"{_V2}.attention.self.key", "n_embd", "n_embd"),
        *_parts.linear("attn_v", f"{_V2}.attention.self.value", "n_embd", "n_embd"),
        *_parts.linear("attn_output", f"{_V2}.attention.output.dense", "n_embd", "n_embd"),
        *_parts.linear("attn_output_norm", f"{_V2}.attention.output.LayerNorm", "n_embd"),
        _parts.matrix("ffn_up", f"{_V2}.mlp.gated_layers", "2*n_ff", "n_embd"),
        *_parts.linear("ffn_down", f"{_V2}.mlp.wo", "n_embd", "n_ff"),
        *_parts.linear("layer_output_norm", f"{_V2}.mlp.layernorm", "n_embd"),
    ),
    required={
        "hidden_act": _parts.GELU,
        "position_embedding_type": ("alibi",),
        "feed_forward_type": ("geglu",),
        **_parts.NO_DECODER,
    },
    suffixes={},
    rename_keys=_parts.renaming(),
)

JINA_BERT_V3 = Layout(
    "jina-bert-v3",
    model_types=("jina_embeddings_v3",),
    hf_architectures=("JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM"),
    name="Jina embeddings v3",
    is_encoder=True,
    tensors=(
        *_parts.words_and_types("embeddings"),
        *_parts.with_bias(Tensor("token_embd_norm.weight", "emb_ln.weight", ("n_embd",))),
        *_parts.linear("attn_qkv", f"{_V3}.mixer.Wqkv", "n_qkv", "n_embd"),
        *_parts.linear("attn_output", f"{_V3}.mixer.out_proj", "n_embd", "n_q"),
        *_parts.linear("attn_output_norm", f"{_V3}.norm1", "n_embd"),
        *_parts.linear("ffn_up", f"{_V3}.mlp.fc1", "n_ff", "n_embd"),
        *_parts.linear("ffn_down", f"{_V3}.mlp.fc2", "n_embd", "n_ff"),
        *_parts.linear("layer_output_norm", f"{_V3}.norm2", "n_embd"),
    ),
    ignored=(*SAVED_TABLES, r"pooler\..*", r"lm_head\..*"),
    norm="layer",
    norm_eps="layer_norm_eps",
    required={"hidden_act": _parts.GELU},
    switches=_parts.SWITCHES,
    sizes=_parts.sizes,
    is_head_dim_fixed=True,
    prefixes={"roberta.": "", "model.": "", "jina_embeddings_v3.": ""},
    base="",
    rename_keys=_parts.renaming(),
    extra=_parts.metadata,
)

FAMILY = Family(
    name="jina",
    title="Jina embeddings v2 or v3",
    is_encoder=True,
    stop_tokens=("[SEP]", "</s>"),
    builds=(JINA_BERT_V2, JINA_BERT_V3),
    required_tokens=("[SEP]",),
    signs=Signs(names=("jina",)),
)

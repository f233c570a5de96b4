"""BERT, and the embedding models and rerankers derived from it: MiniLM, BGE, E5, GTE (without rotations), MS MARCO."""

from __future__ import annotations

from pyggml.families._family import Family, Signs
from pyggml.families._layout import Layout
from pyggml.families.encoders import _parts

#: Heads that are not computed: those of pre-training, and the layer on the first token without a classifier after it.
UNUSED_HEADS = (
    r"(bert\.)?pooler\..*",
    r"cls\.(predictions|seq_relationship)\..*",
    r"(bert\.)?embeddings\.position_ids",
)

BERT = Layout(
    "bert",
    model_types=("bert",),
    hf_architectures=("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"),
    name="BERT",
    is_encoder=True,
    positions="learned",
    tensors=(
        *_parts.embeddings("bert.embeddings", positions=True, types=True),
        *_parts.bert_block("bert.encoder.layer.{i}"),
        *_parts.head("bert.pooler.dense", "classifier"),
    ),
    ignored=UNUSED_HEADS,
    norm="layer",
    norm_eps="layer_norm_eps",
    required={"hidden_act": _parts.GELU, "position_embedding_type": ("absolute",), **_parts.NO_DECODER},
    switches=_parts.SWITCHES,
    sizes=_parts.sizes,
    is_head_dim_fixed=True,
    base="bert.",
    suffixes=_parts.OLD_NORMS,
    rename_keys=_parts.renaming(segments=True),
    extra=_parts.metadata,
)

FAMILY = Family(
    name="bert",
    title="BERT",
    is_encoder=True,
    stop_tokens=("[SEP]",),
    builds=(BERT,),
    required_tokens=("[SEP]", "[CLS]"),
    signs=Signs(names=("bert", "minilm", "bge", "e5", "gte", "marco")),
    precedence=1,  # of the families with these tokens, the most likely without a sign
)

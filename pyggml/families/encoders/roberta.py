"""RoBERTa and CamemBERT: BERT's blocks, positions that begin after padding, and tokenizers of their own."""

from __future__ import annotations

from dataclasses import replace

from pyggml.families._family import Family, Signs
from pyggml.families.encoders import _parts
from pyggml.families.encoders.bert import BERT

ROBERTA = replace(
    BERT,
    model_types=("roberta", "camembert"),
    hf_architectures=(
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "CamembertModel",
        "CamembertForMaskedLM",
        "CamembertForSequenceClassification",
    ),
    name="RoBERTa",
    tensors=(
        *_parts.embeddings("roberta.embeddings", positions=True, types=True),
        *_parts.bert_block("roberta.encoder.layer.{i}"),
        *_parts.head("classifier.dense", "classifier.out_proj"),
    ),
    ignored=(r"(roberta\.)?pooler\..*", r"lm_head\..*", r"(roberta\.)?embeddings\.position_ids"),
    base="roberta.",
    suffixes={},
    rename_keys=_parts.renaming(_parts.with_positions_from("pad_token_id")),
)

FAMILY = Family(
    name="roberta",
    title="RoBERTa or CamemBERT",
    is_encoder=True,
    stop_tokens=("</s>",),
    builds=(ROBERTA,),
    required_tokens=("</s>", "<mask>"),
    signs=Signs(names=("roberta", "distilroberta", "camembert"), n_vocab=(50265, 32005)),
)

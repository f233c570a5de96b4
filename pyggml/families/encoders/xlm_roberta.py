"""XLM-RoBERTa, and the multilingual models derived from it: BGE-M3, multilingual E5, BGE's rerankers."""

from __future__ import annotations

from dataclasses import replace

from pyggml.families._family import Family, Signs
from pyggml.families.encoders.roberta import ROBERTA

XLM_ROBERTA = replace(
    ROBERTA,
    model_types=("xlm-roberta",),
    hf_architectures=("XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"),
    name="XLM-RoBERTa",
)

FAMILY = Family(
    name="xlm-roberta",
    title="XLM-RoBERTa",
    is_encoder=True,
    stop_tokens=("</s>",),
    builds=(XLM_ROBERTA,),
    required_tokens=("</s>", "<mask>"),
    signs=Signs(names=("xlm roberta", "bge m3", "multilingual e5", "bge reranker"), n_vocab=(250002,)),
)

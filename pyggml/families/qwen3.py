"""Qwen3, dense and mixture of experts, and Qwen3-Next; embedding models and rerankers made of the dense ones."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyggml.errors import ModelLoadError
from pyggml.families import _heads, _parts, qwen2
from pyggml.families._family import Family, Variant
from pyggml.families._layout import Sizes, Tensor
from pyggml.families._qwen3_next import QWEN3_NEXT
from pyggml.files.config import Config

_ATTENTION = (
    *_parts.attention(qkv_bias=None, out_bias=None),
    _parts.block("attn_q_norm", "self_attn.q_norm", "head_dim"),
    _parts.block("attn_k_norm", "self_attn.k_norm", "head_dim"),
)


#: What the published rerankers were trained with; upstream's converter writes the same key.
_TEMPLATE = {
    "tokenizer.chat_templates": ["rerank"],
    "tokenizer.chat_template.rerank": "<|im_start|>system\nJudge whether the Document meets the requirements based on "
    'the Query and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n"
    "<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
}


def _rename_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    by_tokens = _heads.SCORED_TOKENS in values
    return {**values, _heads.CLASSIFIER: by_tokens or _heads.classifies(values), _heads.BY_TOKENS: by_tokens}


def _sizes(config: Config) -> Mapping[str, int]:
    tokens = config.get(_heads.SCORED_TOKENS)
    if tokens is not None:
        return {_heads.N_LABELS: 1, "relevant": tokens[0], "irrelevant": tokens[1]}
    return {_heads.N_LABELS: _heads.n_labels(config)} if config.values[_heads.CLASSIFIER] else {}


def _metadata(config: Config, sizes: Sizes) -> Mapping[str, Any]:
    """Return the metadata of a reranker's head, whose score the engine compares with another one: here, zero."""
    if _heads.CLASSIFIER not in sizes.flags:
        return {}
    _heads.require_one_score(config, sizes)
    if _heads.BY_TOKENS in sizes.flags and max(sizes.of("relevant"), sizes.of("irrelevant")) >= sizes.n_vocab:
        raise ModelLoadError(f"{config.path}: LogitScore names tokens beyond the {sizes.n_vocab} of the vocabulary")
    return {**_heads.head_metadata("yes", "no"), **_TEMPLATE}


QWEN3 = replace(
    qwen2.QWEN2,
    architecture="qwen3",
    model_types=("qwen3",),
    hf_architectures=("Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification"),
    name="Qwen3",
    tensors=(
        *_parts.COMMON,
        *_ATTENTION,
        *_parts.gated_feed_forward(),
        Tensor(
            "cls.output.weight",
            "score.weight",
            (_heads.N_LABELS, "n_embd"),
            _heads.beside_zero,
            when=f"{_heads.CLASSIFIER} and no {_heads.BY_TOKENS}",
        ),
        *(
            Tensor(
                "cls.output.weight",
                source,
                ("n_vocab", "n_embd"),
                _heads.rows_of_tokens,
                when=f"{_heads.BY_TOKENS} and {tied}tie_word_embeddings",
            )
            for source, tied in (("lm_head.weight", "no "), ("model.embed_tokens.weight", ""))
        ),
    ),
    required={"hidden_act": ("silu",), "attention_bias": (False,)},
    switches={**qwen2.QWEN2.switches, _heads.CLASSIFIER: False, _heads.BY_TOKENS: False},
    gives_probabilities=True,
    is_head_dim_fixed=False,
    rename_keys=_rename_keys,
    sizes=_sizes,
    extra=_metadata,
    factors=_parts.DENSE_FACTORS,
)


QWEN3_MOE = replace(
    QWEN3,
    architecture="qwen3moe",
    model_types=("qwen3_moe",),
    hf_architectures=("Qwen3MoeForCausalLM",),
    name="Qwen3 mixture of experts",
    tensors=(*_parts.COMMON, *_ATTENTION, *qwen2.EXPERTS),
    switches=qwen2.QWEN2.switches,
    gives_probabilities=False,
    required={**QWEN3.required, "norm_topk_prob": (True,), **qwen2.EVERY_BLOCK},
    rename_keys=qwen2.rename_moe_keys,
    forms=qwen2.EXPERT_FORMS,
    n_expert="num_experts",
    factors=_parts.EXPERT_FACTORS,
    sizes=_parts.expert_sizes,
    extra=_parts.expert_metadata,
)

FAMILY = Family(
    name="qwen3",
    title="Qwen3",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    more_stop_tokens=("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
    builds=(QWEN3, QWEN3_MOE, QWEN3_NEXT),
    required_tokens=("<|im_end|>", "<|endoftext|>"),
    classes=("Qwen3",),
    variants=(
        Variant("Qwen3-Coder", ("qwen3 coder",)),
        Variant("Qwen3-Next", ("qwen3 next",), {"architecture": ("qwen3next",)}),
        Variant("Qwen3 mixture of experts", ("qwen3 30b", "qwen3 235b"), {"architecture": ("qwen3moe",)}),
        Variant("Qwen3", ("qwen3", "qwen 3"), {"architecture": ("qwen3",)}),
    ),
)

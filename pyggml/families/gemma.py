"""Gemma 1, 2, 3 and 3n, and EmbeddingGemma. Their vocabulary has HTML tags as tokens, so that `</s>` is plain text."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyggml.families import _parts
from pyggml.families._family import Family, Variant
from pyggml.families._gemma3n import GEMMA3N
from pyggml.families._gemma_embedding import gemma_embedding
from pyggml.families._layout import SAVED_TABLES, Layout, Sizes, Tensor
from pyggml.files.config import Config


def _norm(target: str, source: str, width: str = "n_embd") -> Tensor:
    return _parts.block(target, source, width, transform=_parts.plus_one)


_OUTPUT_NORM = Tensor("output_norm.weight", "model.norm.weight", ("n_embd",), _parts.plus_one)


def _score_factor(config: Config, sizes: Sizes, *, n_layer_27b: int) -> float:
    # The engine recognises the largest models by their number of blocks, and scales their attention differently.
    engine = sizes.n_embd // sizes.n_head if sizes.n_layer == n_layer_27b else sizes.head_dim
    return math.sqrt(engine / config.number("query_pre_attn_scalar", 256))


def _gemma2(config: Config, _sizes: Sizes) -> Mapping[str, Any]:
    return {
        "attn_logit_softcapping": config.number("attn_logit_softcapping"),
        "final_logit_softcapping": config.number("final_logit_softcapping"),
    }


def _gemma3(config: Config, _sizes: Sizes) -> Mapping[str, Any]:
    if config.get("final_logit_softcapping") is None:
        return {}
    return {"final_logit_softcapping": config.number("final_logit_softcapping")}


_REQUIRED = {
    "hidden_activation": ("gelu_pytorch_tanh",),
    "hidden_act": ("gelu_pytorch_tanh", "gelu"),  # which transformers takes for the same, or does not read
    "attention_bias": (False,),
    "use_bidirectional_attention": (False,),
}

GEMMA1 = Layout(
    "gemma",
    model_types=("gemma",),
    hf_architectures=("GemmaForCausalLM",),
    name="Gemma",
    tensors=(
        _parts.EMBEDDING,
        _OUTPUT_NORM,
        _norm("attn_norm", "input_layernorm"),
        _norm("ffn_norm", "post_attention_layernorm"),
        *_parts.attention(qkv_bias=None, out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    required={**_REQUIRED, "tie_word_embeddings": (True,)},
    switches={"tie_word_embeddings": True},
)

GEMMA2 = replace(
    GEMMA1,
    architecture="gemma2",
    model_types=("gemma2",),
    hf_architectures=("Gemma2ForCausalLM",),
    name="Gemma 2",
    tensors=(
        _parts.EMBEDDING,
        _OUTPUT_NORM,
        _norm("attn_norm", "input_layernorm"),
        _norm("post_attention_norm", "post_attention_layernorm"),
        _norm("ffn_norm", "pre_feedforward_layernorm"),
        _norm("post_ffw_norm", "post_feedforward_layernorm"),
        *_parts.attention(qkv_bias=None, out_bias=None),
        *_parts.gated_feed_forward(),
    ),
    defaults={"sliding_window_pattern": 2},
    window="needed",
    score_factor=partial(_score_factor, n_layer_27b=46),
    extra=_gemma2,
)

GEMMA3 = replace(
    GEMMA2,
    architecture="gemma3",
    model_types=("gemma3", "gemma3_text"),
    hf_architectures=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    name="Gemma 3",
    tensors=(
        *GEMMA2.tensors,
        _parts.OUTPUT,
        _norm("attn_q_norm", "self_attn.q_norm", "head_dim"),
        _norm("attn_k_norm", "self_attn.k_norm", "head_dim"),
    ),
    ignored=(*SAVED_TABLES, r"(model\.)?(vision_tower|multi_modal_projector)\..*"),
    required=_REQUIRED,
    defaults={},
    switches={"tie_word_embeddings": True},
    rope=frozenset({"local"}),
    window="layers",
    text_config="text_config",
    prefixes=_parts.LANGUAGE_MODEL,
    score_factor=partial(_score_factor, n_layer_27b=62),
    extra=_gemma3,
)

GEMMA_EMBEDDING = gemma_embedding(
    tuple(tensor for tensor in GEMMA3.tensors if tensor.target != "output.weight"),
    required={**_REQUIRED, "use_bidirectional_attention": (True,), "attn_logit_softcapping": (None,)},
    switches={"tie_word_embeddings": True},
    rope=GEMMA3.rope,
)

FAMILY = Family(
    name="gemma",
    title="Gemma 1, 2, 3 or 3n",
    stop_tokens=("<end_of_turn>", "<eos>"),
    builds=(GEMMA1, GEMMA2, GEMMA3, GEMMA3N, GEMMA_EMBEDDING),
    required_tokens=("<end_of_turn>", "<eos>"),
    text_tokens=("</s>",),
    classes=("Gemma",),
    variants=(
        Variant("EmbeddingGemma", sizes={"architecture": ("gemma-embedding",)}),
        Variant("Gemma 3n", sizes={"architecture": ("gemma3n",)}),
        Variant("Gemma 3", sizes={"architecture": ("gemma3",)}),
        Variant("Gemma 2", sizes={"architecture": ("gemma2",)}),
        Variant("Gemma", sizes={"architecture": ("gemma",)}),
    ),
)

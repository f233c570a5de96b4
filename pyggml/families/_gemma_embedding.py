"""EmbeddingGemma: Gemma 3 with attention in both directions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyggml.families._layout import Layout, Sizes, Tensor
from pyggml.files.config import Config


def _score_factor(config: Config, sizes: Sizes) -> float:
    return math.sqrt(sizes.head_dim / config.number("query_pre_attn_scalar", 256))


def _metadata(config: Config, _sizes: Sizes) -> Mapping[str, Any]:
    config.get("final_logit_softcapping")  # of an output layer, which it does not have
    return {"attention.causal": False}


def gemma_embedding(tensors: tuple[Tensor, ...], **shared: Any) -> Layout:
    """Return the layout, from what it shares with Gemma 3.

    Args:
        tensors: its tensors.
        shared: other attributes of the layout.
    """
    return Layout(
        "gemma-embedding",
        model_types=("gemma3_text",),
        hf_architectures=("Gemma3TextModel", "Gemma3ForCausalLM"),
        name="EmbeddingGemma",
        told_by={"use_bidirectional_attention": True},
        is_encoder=True,
        computes_dense=True,
        tensors=tensors,
        score_factor=_score_factor,
        window="needed",
        extra=_metadata,
        **shared,
    )

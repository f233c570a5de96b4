"""The sizes and rotations of a model, from the engine or else from the metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyggml._native.metadata_check import ROPE_SCALINGS, ROPE_TYPES
from pyggml.diagnostics.report import RopeReport

#: Sizes by the engine's names -> the metadata keys without the architecture before them.
_WHOLE = {
    "n_layer": "block_count",
    "n_embd": "embedding_length",
    "n_ctx_train": "context_length",
    "n_expert": "expert_count",
}
_PER_LAYER = {
    "n_head": "attention.head_count",
    "n_head_kv": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "n_ff": "feed_forward_length",
    "n_ff_expert": "expert_feed_forward_length",
    "n_expert_used": "expert_used_count",
    "sliding_window": "attention.sliding_window",
}
_KEYS = {**_WHOLE, **_PER_LAYER, "rope_base": "rope.freq_base", "rope_n_dims": "rope.dimension_count"}


@dataclass(frozen=True)
class ModelSizes:
    """The sizes by name, those that differ between layers, and the rotations."""

    values: Mapping[str, int]
    per_layer: Mapping[str, tuple[int, ...]]
    rope: RopeReport


def sizes_of(engine_sizes: Mapping[str, Any], metadata: Mapping[str, object], rope: Mapping[str, Any]) -> ModelSizes:
    """The sizes of a model.

    Args:
        engine_sizes: what the engine read; may be empty.
        metadata: of the file.
        rope: facts about the rotations that take precedence: "scaling", "factor", "n_ctx_original".
    """
    known = {name: value for name, value in engine_sizes.items() if value is not None}  # JSON has no nan
    sizes = known or _of_metadata(metadata)
    layers = {name: tuple(int(n) for n in np.atleast_1d(sizes.get(name, 0))) for name in _PER_LAYER}
    values = {name: max(each, default=0) for name, each in layers.items()}
    values |= {name: int(sizes.get(name, 0)) for name in _WHOLE}
    differing = {name: each for name, each in layers.items() if len(set(each)) > 1}
    found = _rope(sizes, values["n_ctx_train"])
    return ModelSizes(values, differing, found if found.type in ("", "none") else replace(found, **rope))


def _of_metadata(metadata: Mapping[str, object]) -> dict[str, Any]:
    architecture = metadata.get("general.architecture", "")
    found = {name: metadata.get(f"{architecture}.{key}") for name, key in _KEYS.items()}
    return {name: value for name, value in found.items() if _is_size(name, value)}


def _is_size(name: str, value: object) -> bool:
    if isinstance(value, np.ndarray):
        return name in _PER_LAYER and value.dtype.kind in "iu"
    return isinstance(value, (int, float)) and math.isfinite(value)


def _rope(sizes: Mapping[str, Any], n_ctx: int) -> RopeReport:
    scale = float(sizes.get("rope_scale", 1.0)) or 1.0
    scaling = ROPE_SCALINGS.get(int(sizes.get("rope_scaling", 0)), "none")
    if scaling == "linear" and scale == 1.0:
        scaling = "none"
    original = int(sizes.get("n_ctx_original", n_ctx))
    kind = ROPE_TYPES.get(sizes["rope_type"], "none") if "rope_type" in sizes else ""
    if kind in ("", "none"):
        return RopeReport(kind, 0.0, "none", 1.0, None, 0)
    return RopeReport(
        type=kind,
        base=float(sizes.get("rope_base", 0.0)),
        scaling=scaling,
        factor=1 / scale,
        n_ctx_original=original if scaling != "none" and original != n_ctx else None,
        n_dims=int(sizes.get("rope_n_dims", 0)),
    )

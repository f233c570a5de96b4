"""Rotary position embeddings: translation of ``config.json`` to the engine's metadata.

``transformers`` 5 writes ``rope_parameters``, 4 wrote ``rope_scaling`` and ``rope_theta``; both are read. The formulas
are those of the papers as ``transformers`` implements them (modeling_rope_utils.py): a frequency per pair of columns,
and a factor on the rotated values. The engine has its own formulas for most scalings; for the rest, it divides the
plain frequencies by a tensor of factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.errors import ModelLoadError, UnsupportedArchitectureError
from pyggml.families import Layout, Sizes
from pyggml.files.config import Config
from pyggml.importer.transformers_keys import Reference

Factors = npt.NDArray[np.float64]

_FACTOR = "rope.scaling.attn_factor"
_LONG, _SHORT, _FACTORS = "rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"


@dataclass
class Rope:
    """The rotations as a GGUF file describes them.

    Attributes:
        metadata: keys without the architecture's prefix.
        tensors: float32 vectors by name.
        context_limit: the context length beyond which the engine would rotate differently from the model; None: no
            limit.
        notes: differences that users should know.
    """

    metadata: dict[str, Any]
    tensors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    context_limit: int | None = None
    notes: tuple[str, ...] = ()


def read_rope(config: Config, layout: Layout, sizes: Sizes, reference: Reference) -> Rope:
    """Read a model's rotations."""
    parameters = _Parameters.read(config, layout)
    local = parameters.local
    rope = _scaled(parameters, layout, sizes)
    if layout.score_factor is not None:
        _scale_scores(rope, layout.score_factor(config, sizes))
    parameters.section.require_all_known(reference.rope_keys(parameters.kind))
    if local is not None:
        rope.metadata["rope.freq_base_swa"] = local.theta
        local.require_plain()
        if "unscaled" in layout.rope:
            local.require_base(parameters.theta)
        local.section.require_all_known(reference.rope_keys(local.kind))
    return rope


@dataclass
class _Parameters:
    """The parameters, read from either spelling.

    Attributes:
        section: the object that describes the scaling; empty if there is none.
        theta: base of the frequencies.
        rotated: fraction of a head that is rotated.
        n_ctx_original: context length before it was extended to ``n_ctx``.
        local: the parameters of the sliding-window layers, if they differ.
    """

    section: Config
    kind: str
    theta: float
    rotated: float
    n_ctx: int
    n_ctx_original: int
    local: _Parameters | None = None

    @classmethod
    def read(cls, config: Config, layout: Layout) -> _Parameters:
        theta = config.number("rope_theta", layout.defaults.get("rope_theta", 10_000.0))
        nested, local = config.section("rope_parameters"), None
        if nested is not None and isinstance(nested.get("full_attention"), dict):
            main = cls._of(config, nested.section("full_attention"), theta)
            local = nested.section("sliding_attention")
        else:
            section = config.section("rope_scaling")
            main = cls._of(config, section if section is not None and section.values else nested, theta)
        if "local" in layout.rope:
            main.local = cls._of(config, local, config.number("rope_local_base_freq", 10_000.0))
        elif "unscaled" in layout.rope:
            main.local = cls._of(config, local, theta)
        return main

    @classmethod
    def _of(cls, config: Config, section: Config | None, theta: float) -> _Parameters:
        section = section or Config(config.path, {})
        kind = section.get("rope_type") or section.get("type") or "default"
        section.get("type")
        if kind in ("su", "yarn") and "long_factor" in section.values:  # what Phi-3 called it at first
            kind = "longrope"
        n_ctx = config.integer("max_position_embeddings")
        outer_original = config.get("original_max_position_embeddings")
        inner = section.integer("original_max_position_embeddings", n_ctx)
        return cls(
            section,
            str(kind),
            section.number("rope_theta", theta),
            section.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)),
            n_ctx,
            inner if outer_original is None else config.integer("original_max_position_embeddings"),
        )

    def require_plain(self) -> None:
        if self.kind != "default" or self.rotated != 1.0:
            raise UnsupportedArchitectureError(
                f"{self.section.path}: the rotations of the sliding-window layers are {self.kind!r:.80}; the engine "
                "only has plain ones there"
            )

    def require_base(self, theta: float) -> None:
        if self.theta != theta:
            raise UnsupportedArchitectureError(
                f"{self.section.path}: rope_theta is {self.theta:g} in the sliding-window layers and {theta:g} in the "
                "others; for this architecture, the engine only has one for all"
            )


def _scaled(parameters: _Parameters, layout: Layout, sizes: Sizes) -> Rope:
    n_rot = int(sizes.head_dim * parameters.rotated)
    if n_rot < 2 or n_rot % 2:
        raise ModelLoadError(
            f"{parameters.section.path}: {n_rot} of the {sizes.head_dim} columns of a head are rotated; it must be an "
            "even number, at least 2"
        )
    rope = Rope({"rope.dimension_count": n_rot, "rope.freq_base": parameters.theta})
    scale = _SCALINGS.get(parameters.kind)
    if scale is None:
        raise UnsupportedArchitectureError(
            f"{parameters.section.path}: the rope type is {parameters.kind!r:.80}; pyggml supports "
            f"{', '.join(_SCALINGS)}"
        )
    scale(rope, parameters, layout, n_rot)
    if parameters.section.get("llama_4_scaling_beta"):
        _grow_queries(rope, parameters, layout)
    return rope


def _scale_scores(rope: Rope, factor: float) -> None:
    """Scale attention scores through the factor on the rotated queries and keys."""
    if not math.isclose(factor, 1.0):
        rope.metadata[_FACTOR] = rope.metadata.get(_FACTOR, 1.0) * math.sqrt(factor)


def _grow_queries(rope: Rope, parameters: _Parameters, layout: Layout) -> None:
    """Scale queries with the logarithm of their position relative to the original context."""
    if "temperature" not in layout.rope:
        raise UnsupportedArchitectureError(
            f"{parameters.section.path}: the engine does not support llama_4_scaling_beta for {layout.name} models"
        )
    rope.metadata |= {
        "attention.temperature_scale": parameters.section.number("llama_4_scaling_beta"),
        "rope.scaling.original_context_length": parameters.n_ctx_original,
    }


def _plain(_rope: Rope, _parameters: _Parameters, _layout: Layout, _n_rot: int) -> None:
    pass


def _linear(rope: Rope, parameters: _Parameters, _layout: Layout, _n_rot: int) -> None:
    rope.metadata |= {"rope.scaling.type": "linear", "rope.scaling.factor": parameters.section.number("factor")}


def _dynamic(rope: Rope, parameters: _Parameters, _layout: Layout, _n_rot: int) -> None:
    """Plain up to the model's context length; beyond it, the base would change with every token."""
    parameters.section.number("factor")
    rope.context_limit = parameters.n_ctx


def _llama3(rope: Rope, parameters: _Parameters, layout: Layout, n_rot: int) -> None:
    section = parameters.section
    factor, low, high = (section.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    frequencies = parameters.theta ** -(np.arange(0, n_rot, 2) / n_rot)
    turns = parameters.n_ctx_original * frequencies / (2 * math.pi)  # in the original context
    kept = np.interp(turns, (low, high), (0, 1)) if low < high else turns >= high
    _divide_by(rope, 1 / (kept + (1 - kept) / factor), _FACTORS, parameters, layout)


def _yarn(rope: Rope, parameters: _Parameters, layout: Layout, n_rot: int) -> None:
    section = parameters.section
    factor = section.number("factor", parameters.n_ctx / parameters.n_ctx_original)
    fast, slow = section.number("beta_fast", 32), section.number("beta_slow", 1)
    truncate = section.flag("truncate", True)
    attention = _yarn_attention(section, factor)
    if not truncate and "rounded" in layout.rope:
        truncate = True
        rope.notes = (_ROUNDED,)
    if (fast, slow, truncate) != (32, 1, True):  # which the engine assumes
        rope.metadata[_FACTOR] = attention
        kept = _yarn_kept(parameters, n_rot, fast, slow, truncate)
        _divide_by(rope, 1 / (kept + (1 - kept) / factor), _FACTORS, parameters, layout)
        return
    rope.metadata |= {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": parameters.n_ctx_original,
        _FACTOR: attention / _yarn_mscale(factor),
    }


_ROUNDED = (
    "the engine rounds the bounds between fast and slow rotations (yarn) to whole columns, which this model does not: "
    "its logits differ from those of transformers, increasingly so for longer texts"
)


def _yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _yarn_attention(section: Config, factor: float) -> float:
    """The factor on the rotated values."""
    mscale, all_dims = section.get("mscale"), section.get("mscale_all_dim")
    default = _yarn_mscale(factor)
    if mscale and all_dims:
        default = _yarn_mscale(factor, section.number("mscale"))
        default /= _yarn_mscale(factor, section.number("mscale_all_dim"))
    return section.number("attention_factor", default)


def _yarn_kept(parameters: _Parameters, n_rot: int, fast: float, slow: float, truncate: bool) -> Factors:
    """The fraction of each plain frequency that is kept: 1 for fast rotations, 0 for slow ones."""

    def dimension(n_turns: float) -> float:
        length = parameters.n_ctx_original / (n_turns * 2 * math.pi)
        return n_rot * math.log(length) / (2 * math.log(parameters.theta))

    low, high = dimension(fast), dimension(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n_rot - 1)
    ramp = (np.arange(n_rot // 2) - low) / max(high - low, 0.001)
    return np.asarray(1 - np.clip(ramp, 0, 1))


def _longrope(rope: Rope, parameters: _Parameters, layout: Layout, n_rot: int) -> None:
    section = parameters.section
    factor = section.number("factor", parameters.n_ctx / parameters.n_ctx_original)
    default = math.sqrt(1 + math.log(factor) / math.log(parameters.n_ctx_original)) if factor > 1 else 1.0
    rope.metadata |= {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": parameters.n_ctx_original,
        _FACTOR: section.number("attention_factor", default),
    }
    for key, tensor in (("long_factor", _LONG), ("short_factor", _SHORT)):
        values = section.get(key)
        is_list = isinstance(values, list) and len(values) == n_rot // 2
        if not is_list or not all(type(f) in (int, float) for f in values):
            raise section.error(key, f"a list of {n_rot // 2} numbers")
        _divide_by(rope, np.array(values, np.float64), tensor, parameters, layout)


def _divide_by(rope: Rope, factors: Factors, tensor: str, parameters: _Parameters, layout: Layout) -> None:
    needed = "factors" if tensor == _FACTORS else "longrope"
    if needed not in layout.rope:
        raise UnsupportedArchitectureError(
            f"{parameters.section.path}: the engine does not support this rope type, {parameters.kind!r:.80}, for "
            f"{layout.name} models"
        )
    rope.tensors[tensor] = factors.astype(np.float32)


_Scaling = Callable[[Rope, _Parameters, Layout, int], None]
_SCALINGS: Mapping[str, _Scaling] = {
    "default": _plain,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}

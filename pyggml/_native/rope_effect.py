"""Check that the options for RoPE have an effect on a model, by the rules of the engine's ``llama_context``."""

from __future__ import annotations

from pyggml._core.checks import invalid
from pyggml._core.ffi import lib
from pyggml._core.fields import fields_of
from pyggml._native.model import Model
from pyggml._native.rope_options import RopeOptions

#: Options that change the rotations only where YaRN extrapolates.
_OF_YARN = ("yarn_beta_fast", "yarn_beta_slow", "yarn_orig_ctx")


def require_rope_effect(model: Model, rope: RopeOptions) -> None:
    """Reject options for RoPE that change nothing for this model, such as a type of scaling without a factor.

    Raises:
        InvalidParameterError: an option has no effect; names the one that is missing or in the way.
    """
    given = _given(rope)
    if given and model.rope_type == lib.LLAMA_ROPE_TYPE_NONE:
        raise _no_effect(given[0], f"{model.arch} models do not use RoPE: leave it out")
    stored = model.metadata.get(f"{model.arch}.rope.scaling.type")
    kind = rope.rope_scaling_type or stored or "linear"
    scale = rope.rope_freq_scale or lib.llama_model_rope_freq_scale_train(model.handle)
    extrapolation = _extrapolation(model, rope, kind)
    if kind == "none" and (rope.rope_freq_scale or 1) != 1:
        way_out = "leave one of them out" if rope.rope_scaling_type else 'add rope_scaling_type="yarn" or "linear"'
        raise _no_effect("rope_freq_scale", f'rope_scaling_type is "none": {way_out}')
    if "yarn_attn_factor" in given and extrapolation:
        raise _no_effect("yarn_attn_factor", "the engine computes it, unless yarn_ext_factor is 0: add that")
    if scale == 1 or kind == "none":
        idle = [name for name in _OF_YARN if name in given] + ["yarn_ext_factor"] * bool(rope.yarn_ext_factor)
        if rope.rope_scaling_type not in (None, "none", stored):
            idle.insert(0, "rope_scaling_type")
        if idle:
            way_out = "add rope_freq_scale, such as 0.25 for four times the training length"
            raise _no_effect(idle[0], f"RoPE is not scaled: {way_out}")
    elif not extrapolation and (idle := [name for name in _OF_YARN if name in given]):
        raise _no_effect(idle[0], 'it is an option of YaRN: add rope_scaling_type="yarn"')


def _given(rope: RopeOptions) -> list[str]:
    values = {name: getattr(rope, name) for name in fields_of(RopeOptions)}
    own = {"rope_freq_base": 0, "rope_freq_scale": 0}  # other words for None
    return [name for name, value in values.items() if value is not None and value != own.get(name)]


def _extrapolation(model: Model, rope: RopeOptions, kind: str) -> float:
    """Return the engine's value for ``yarn_ext_factor``."""
    if rope.yarn_ext_factor is not None:
        return rope.yarn_ext_factor
    stored = float(model.metadata.get(f"{model.arch}.rope.scaling.yarn_ext_factor", -1))
    return stored if stored >= 0 else float(kind == "yarn")


def _no_effect(name: str, reason: str) -> Exception:
    return invalid(f"{name} has no effect, because {reason}")

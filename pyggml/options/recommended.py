"""Sampling parameters recommended by a model's authors: the ``general.sampling.*`` keys of its GGUF file.

Upstream's ``common_init_sampler_from_model`` (common/common.cpp) reads the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyggml._core.fields import fields_of
from pyggml.errors import InvalidParameterError
from pyggml.options.sampling import BESIDE_MIROSTAT, SamplingParams
from pyggml.options.sampling_values import DEFAULT_SAMPLERS

PREFIX = "general.sampling."

#: The last part of a key -> the parameter that it sets.
PARAMETERS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "penalty_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
#: The key with the order of the samplers, separated by semicolons.
SEQUENCE = "sequence"
#: As ``penalty_last_n``: penalise repetitions of anything in the context.
WHOLE_CONTEXT = -1

# Samplers that upstream calls something else.
_SAMPLERS = {"typ_p": "typical_p"}
_OFF_BELOW_0 = ("temperature", "top_k")
_FIELDS = fields_of(SamplingParams)


@dataclass(frozen=True)
class Recommendation:
    """Recommended sampling parameters of a file.

    Attributes:
        params: the parameters; missing ones are off, and a missing temperature is 1. None: no recommendation.
        notes: warnings about invalid values, which were ignored.
    """

    params: SamplingParams | None
    notes: tuple[str, ...]


def recommended(metadata: Mapping[str, str], n_ctx: int) -> Recommendation:
    """Read the recommendation from a file's scalar metadata; :data:`WHOLE_CONTEXT` stands for ``n_ctx`` tokens."""
    values: dict[str, float] = {}
    notes: list[str] = []
    for key, name in PARAMETERS.items():
        text = metadata.get(PREFIX + key)
        if text is not None:
            try:
                values[name] = checked(name, _number(text), n_ctx)
            except InvalidParameterError as error:
                notes.append(f"{PREFIX}{key} is {text!r:.80} and was ignored: {error}")
    order, more = _order(metadata.get(PREFIX + SEQUENCE))
    notes += more
    if not values:
        return Recommendation(None, tuple(notes))
    return Recommendation(SamplingParams(**_effective({"temperature": 1.0, **values}, order)), tuple(notes))


def checked(name: str, value: object, n_ctx: int) -> float:
    """Check the value that a file has for a parameter; negative numbers have upstream's meaning.

    Raises:
        InvalidParameterError: the value cannot be used.
    """
    field = _FIELDS[name]
    if isinstance(value, float) and value.is_integer() and int in field.types:
        value = int(value)
    if name == "penalty_last_n" and value == WHOLE_CONTEXT:
        value = n_ctx
    if name in _OFF_BELOW_0 and isinstance(value, (int, float)) and value < 0:
        value = 0
    number: float = field.checked(value)
    return number


def _number(text: str) -> float | str:
    """Parse a number; return other text unchanged, to be refused later."""
    try:
        return float(text)
    except ValueError:
        return text


def _order(text: str | None) -> tuple[tuple[str, ...] | None, list[str]]:
    """Parse the order of the samplers, None for the default; also return warnings."""
    if text is None:
        return None, []
    names = tuple(_SAMPLERS.get(name, name) for name in text.split(";"))
    if set(names) <= set(DEFAULT_SAMPLERS) and len(set(names)) == len(names):
        return names, []
    return None, [f"{PREFIX}{SEQUENCE} is {text!r:.200} and was ignored: it must be names of samplers, each once"]


def _effective(values: dict[str, float], order: tuple[str, ...] | None) -> dict[str, Any]:
    """Drop the parameters of samplers that would not run, as upstream does."""
    running = order
    if values.get("mirostat"):
        running, order = BESIDE_MIROSTAT, None
    if running is None:
        return dict(values)
    kept = {name: value for name, value in values.items() if _FIELDS[name].sampler in ("", *running)}
    if "temperature" not in running:
        kept["temperature"] = 1.0
    return kept if order is None else {**kept, "samplers": order}

"""Recommended sampling parameters: ``generation_config.json`` as GGUF metadata."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyggml._core.checks import shown
from pyggml.errors import InferError, InvalidParameterError
from pyggml.files.json_file import read_object
from pyggml.files.model_files import GENERATION_CONFIG
from pyggml.options.recommended import PARAMETERS, PREFIX, SEQUENCE, WHOLE_CONTEXT, checked

#: Names of transformers -> those in GGUF keys.
_CHOOSING = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_PENALTY = {"repetition_penalty": "penalty_repeat"}

# transformers divides by the temperature first, which changes what these two drop; the engine's programs do it last.
_AFTER_TEMPERATURE = frozenset({"top_p", "min_p"})
_TEMPERATURE_FIRST = ("penalties", "dry", "top_n_sigma", "temperature", "top_k", "typ_p", "top_p", "min_p", "xtc")

# The types that upstream's converter writes.
_INTEGERS = frozenset({"top_k", "penalty_last_n"})


class RecommendedSampling(NamedTuple):
    """The recommended sampling parameters of a directory as GGUF metadata, and notes on values that cannot be used."""

    metadata: dict[str, object]
    notes: tuple[str, ...]


def read_sampling(directory: Path) -> RecommendedSampling:
    """Read a directory's recommended sampling parameters.

    ``do_sample: false`` is greedy, as in transformers. Without ``do_sample``, the other values in the file count,
    because its author set them; the defaults of transformers, such as a top_k of 50, do not.
    """
    content: dict[str, Any] = {}
    with contextlib.suppress(InferError):  # a damaged file is reported with the tokenizer, which needs it
        content = read_object(directory / GENERATION_CONFIG)
    notes: list[str] = []
    penalty = _read(content, _PENALTY, notes)
    choosing = _read(content, _CHOOSING, notes)
    samples = content.get("do_sample")
    if samples is False or (penalty and not choosing and samples is None):
        choosing = {"temp": 0.0}
    elif samples is True:
        choosing.setdefault("temp", 1.0)
    if penalty:
        penalty["penalty_last_n"] = WHOLE_CONTEXT
    metadata: dict[str, object] = {
        f"{PREFIX}{key}": np.int32(value) if key in _INTEGERS else np.float32(value)
        for key, value in (choosing | penalty).items()
    }
    if choosing.get("temp", 1.0) not in (0.0, 1.0) and choosing.keys() & _AFTER_TEMPERATURE:
        metadata[PREFIX + SEQUENCE] = ";".join(_TEMPERATURE_FIRST)
    return RecommendedSampling(metadata, tuple(f"{GENERATION_CONFIG}: {note}" for note in notes))


def _read(content: dict[str, Any], keys: dict[str, str], notes: list[str]) -> dict[str, float]:
    """GGUF key -> value, for the valid values in the file."""
    found: dict[str, float] = {}
    for name, key in keys.items():
        value = content.get(name)
        if value is None:
            continue
        try:
            found[key] = _in_32_bits(checked(PARAMETERS[key], value, 0))
        except InvalidParameterError as error:
            notes.append(f"{name} was ignored: {error}")
    return found


def _in_32_bits(value: float) -> float:
    if not abs(value) < 2.0**127:
        raise InvalidParameterError(f"GGUF files cannot hold {shown(value)}")
    return value

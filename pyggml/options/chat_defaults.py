"""Default sampling parameters of chats and of the server, in one table for all their interfaces.

A parameter that the caller does not set is the one that the model's authors recommend. If they recommend none, it is
that of the table, and if the table has none, that of :class:`SamplingParams`, as for a completion.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyggml._core.fields import fields_of
from pyggml.errors import InvalidParameterError
from pyggml.options.sampling import SamplingParams

#: Sampling of a model whose authors recommend none: that of llama.cpp's programs.
SAMPLING: Mapping[str, Any] = {"temperature": 0.8, "top_k": 40, "min_p": 0.05}
#: The other parameters, for all models. 8,192 tokens end an answer that never repeats itself exactly.
LIMITS: Mapping[str, Any] = {"max_tokens": 8192, "repetition_guard": True}


def chat_defaults(recommended: SamplingParams | None) -> dict[str, Any]:
    """Return the defaults for a model, given its recommended sampling parameters.

    Args:
        recommended: the parameters that the model's authors recommend; None: none.
    """
    return {**(SAMPLING if recommended is None else chosen(recommended)), **LIMITS}


def chosen(params: SamplingParams) -> dict[str, Any]:
    """Return the fields that differ from the defaults of SamplingParams, and the temperature.

    Args:
        params: the parameters.
    """
    values = {name: getattr(params, name) for name in _FIELDS}
    return {name: value for name, value in values.items() if name == "temperature" or value != _FIELDS[name].default}


def with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> SamplingParams:
    """Return the given parameters with the defaults for the others, except defaults that contradict them.

    ``mirostat=2``, for instance, replaces a default top_k, and ``ignore_eos``, which asks for so many tokens whatever
    they are, turns off a default repetition guard.

    Args:
        given: fields of SamplingParams that the caller sets.
        defaults: fields of SamplingParams for the others.

    Raises:
        InvalidParameterError: a given parameter is invalid, or two contradict each other.
    """
    params = _with_consistent(given, defaults)
    if params.ignore_eos and params.repetition_guard and "repetition_guard" not in given:
        return replace(params, repetition_guard=None)
    return params


def _with_consistent(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> SamplingParams:
    with suppress(InvalidParameterError):
        return SamplingParams(**{**defaults, **given})
    params = SamplingParams(**given)
    if params.samplers is not None and "temperature" not in params.samplers and defaults.get("temperature"):
        defaults = {**defaults, "temperature": 1.0}  # that of sampling without this sampler; 0 would be greedy
    has_form = params.json_schema is not None or params.grammar is not None or given.get("response_format") is not None
    fixed = {*given, *(("json_schema", "grammar") if has_form else ())}
    for name, value in defaults.items():
        if name not in fixed:
            with suppress(InvalidParameterError):
                params = replace(params, **{name: value})
    return params


_FIELDS = fields_of(SamplingParams)

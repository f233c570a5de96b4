"""Sampling parameters on their way to the engine: merged with overrides, and put in terms of token ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyggml._core.fields import parameters_of, require_known
from pyggml._native.vocab import Vocab
from pyggml.errors import InvalidParameterError
from pyggml.schema import grammar as schema_grammar
from pyggml.types import SamplingParams


def merge(params: SamplingParams | None, overrides: Mapping[str, Any], beside: Collection[str] = ()) -> SamplingParams:
    """``params``, or the defaults, with fields replaced.

    Args:
        params: the parameters.
        overrides: field -> value.
        beside: other parameters of the method that took them, one of which may have been meant.

    Raises:
        InvalidParameterError: ``params`` is not SamplingParams, or an override is invalid.
        UnknownParameterError: there is no such parameter.
    """
    require_known(SamplingParams, overrides, known=[*parameters_of(SamplingParams), *beside])
    if params is None:
        return SamplingParams(**overrides)
    if not isinstance(params, SamplingParams):
        way_out = "write ** before it" if isinstance(params, Mapping) else "name parameters, as in max_tokens=100"
        raise InvalidParameterError(f"params must be SamplingParams, not {type(params).__name__}: {way_out}")
    return dataclasses.replace(params, **overrides) if overrides else params


def without_schema(params: SamplingParams) -> SamplingParams:
    """The parameters with the JSON schema, if any, replaced by a grammar.

    Raises:
        GrammarError, InvalidParameterError: as :func:`pyggml.schema.grammar.grammar_of`.
    """
    if params.json_schema is None:
        return params
    return dataclasses.replace(params, json_schema=None, grammar=schema_grammar.grammar_of(params.json_schema))


def in_token_ids(params: SamplingParams, ends: Iterable[int], vocab: Vocab) -> tuple[SamplingParams, list[int]]:
    """The parameters as the engine takes them: a grammar instead of a schema, a bias instead of ``ignore_eos``.

    Args:
        params: the caller's parameters.
        ends: the tokens that end every generation of the model.
        vocab: its vocabulary.

    Returns:
        The parameters, and all the tokens that end this generation.

    Raises:
        GrammarError, InvalidParameterError: as :func:`without_schema`.
    """
    params, stop = without_schema(params), set(params.stop_token_ids)
    if params.ignore_eos:
        bias = dict(params.logit_bias or {}) | dict.fromkeys(ends, float("-inf"))
        params = dataclasses.replace(params, logit_bias=bias)
    else:
        stop.update(ends)
    if params.grammar is not None:
        # Once the grammar is complete, the engine allows only end-of-generation tokens, whichever it knows.
        stop.update(vocab.eog_ids)
    return params, sorted(stop)

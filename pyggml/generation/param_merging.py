"""Sampling parameters: merged with overrides, and converted to token ids for the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyggml._core.fields import parameters_of, require_known
from pyggml._native.vocab import Vocab
from pyggml.errors import InvalidParameterError
from pyggml.options.chat_defaults import with_defaults
from pyggml.schema import grammar as schema_grammar
from pyggml.types import Grammar, SamplingParams


def merge(
    params: SamplingParams | None,
    overrides: Mapping[str, Any],
    other_names: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> SamplingParams:
    """Replace fields of ``params``, or of the defaults, by ``overrides``.

    ``other_names`` are the calling method's other parameters, for suggestions to misspelled names. ``defaults`` replace
    those of SamplingParams; see :func:`with_defaults`.

    Raises:
        InvalidParameterError: ``params`` is not SamplingParams, or an override is invalid.
        UnknownParameterError: there is no such parameter.
    """
    require_known(SamplingParams, overrides, known=[*parameters_of(SamplingParams), *other_names])
    if params is None:
        return with_defaults(overrides, defaults or {})
    if not isinstance(params, SamplingParams):
        way_out = "write ** before it" if isinstance(params, Mapping) else "name parameters, as in max_tokens=100"
        raise InvalidParameterError(f"params must be SamplingParams, not {type(params).__name__}: {way_out}")
    return dataclasses.replace(params, **overrides) if overrides else params


def format_grammar(params: SamplingParams) -> str | Grammar | None:
    """Return the grammar for the format of the output, whichever parameter sets it.

    Raises:
        GrammarError, InvalidParameterError: as :func:`pyggml.schema.grammar.grammar_of`, or the regular expression
            is invalid or not regular.
    """
    if params.json_schema is not None:
        return schema_grammar.grammar_of(params.json_schema, **(params.json_schema_options or {}))
    if params.choices is not None:
        return schema_grammar.grammar_of_choices(params.choices)
    return params.grammar if params.regex is None else schema_grammar.grammar_of_regex(params.regex)


def in_token_ids(
    params: SamplingParams, model_stop_ids: Iterable[int], vocab: Vocab
) -> tuple[SamplingParams, list[int]]:
    """Convert parameters for the engine: the output's format to a grammar, and ``ignore_eos`` to a bias.

    Returns:
        The parameters, and all the tokens that end this generation.

    Raises:
        InvalidParameterError: a token id is outside the vocabulary; names the parameter.
    """
    _require_in_vocabulary(params, vocab.n_tokens)
    grammar, stop = format_grammar(params), set(params.stop_token_ids)
    if grammar is not params.grammar:
        params = dataclasses.replace(
            params, json_schema=None, json_schema_options=None, choices=None, regex=None, grammar=grammar
        )
    if params.ignore_eos:
        bias = dict(params.logit_bias or {}) | dict.fromkeys(model_stop_ids, float("-inf"))
        params = dataclasses.replace(params, logit_bias=bias)
    else:
        stop.update(model_stop_ids)
    if params.grammar is not None:
        # Once the grammar is complete, the engine allows only end-of-generation tokens, any that it knows.
        stop.update(vocab.eog_ids)
    return params, sorted(stop)


def _require_in_vocabulary(params: SamplingParams, n_tokens: int) -> None:
    given = {
        "stop_token_ids": params.stop_token_ids,
        "allowed_token_ids": params.allowed_token_ids,
        "logit_bias": params.logit_bias,
        "bad_words": [token_id for word in params.bad_words if not isinstance(word, str) for token_id in word],
    }
    for name, token_ids in given.items():
        for token_id in token_ids or ():
            if not 0 <= token_id < n_tokens:
                raise InvalidParameterError(
                    f"{name} has the token id {token_id}, which is outside the vocabulary, 0 to {n_tokens - 1}"
                )

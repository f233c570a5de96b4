"""Sampling parameters as the C struct of a request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyggml._core.checks import utf8
from pyggml._core.ffi import ffi, lib
from pyggml.generation.adapters import ScaledAdapters
from pyggml.types import Grammar, SamplingParams

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

#: ``speculative`` of requests and engines -> pyg_speculative.
SPECULATIVE = {
    None: lib.PYG_SPECULATIVE_DEFAULT,
    "auto": lib.PYG_SPECULATIVE_AUTO,
    "forced": lib.PYG_SPECULATIVE_FORCED,
    "lookup": lib.PYG_SPECULATIVE_LOOKUP,
    "draft": lib.PYG_SPECULATIVE_DRAFT,
    "off": lib.PYG_SPECULATIVE_OFF,
}

# The sampling parameters that are copied: numbers whose fields in C have the same name.
_SAMPLING_NUMBERS = [
    name
    for name, field in ffi.typeof("pyg_sampling").fields
    if field.type.kind == "primitive" and name in SamplingParams.__dataclass_fields__
]


class ReasoningTokens(NamedTuple):
    """The tokens around the reasoning of a model, for ``reasoning_budget``.

    Attributes:
        begun: the prompt begins the reasoning.
        start: tokens that begin it.
        ends: sequences of tokens that end it.
        forced: tokens that follow at the end of the budget, and end it.
    """

    begun: bool
    start: Sequence[int]
    ends: Sequence[Sequence[int]]
    forced: Sequence[int]


def request_options(
    params: SamplingParams,
    stop_token_ids: Sequence[int],
    adapters: ScaledAdapters,
    *,
    is_streamed: bool,
    reasoning: ReasoningTokens | None = None,
) -> tuple[CData, list[CData]]:
    """Create the ``pyg_request_options`` of a generation, without its timeout, waker and logits processors.

    ``params`` and ``stop_token_ids`` are as :func:`~pyggml.generation.param_merging.in_token_ids` returns them;
    ``adapters``: those of the request; ``is_streamed``: a reader takes tokens as they come; ``reasoning`` belongs to
    ``reasoning_budget``.

    Returns:
        The options, and the objects they point to, which must live until the native call has copied them.
    """
    options = ffi.new("pyg_request_options *")
    options.max_tokens, options.prefer_throughput = params.max_tokens, not is_streamed
    options.repetition_guard = bool(params.repetition_guard)
    options.shifts, options.n_keep = params.overflow == "shift", params.n_keep
    options.n_logprobs, options.n_prompt_logprobs = params.logprobs, params.prompt_logprobs
    options.cache_salt = salt_number(params.cache_salt)
    options.processed_logprobs = params.logprobs_mode == "processed_logprobs"
    options.speculative, options.n_guesses = SPECULATIVE[params.speculative], params.num_speculative_tokens or 0
    stop = ffi.new("int32_t[]", list(stop_token_ids))
    options.stop_token_ids, options.n_stop = stop, len(stop_token_ids)
    options.adapters, options.n_adapters = scaled = scaled_adapters(adapters)
    sampling = options.sampling
    return options, [stop, scaled[0], *_fill_sampling(sampling, params), *_fill_reasoning(sampling, reasoning)]


def scaled_adapters(adapters: ScaledAdapters) -> tuple[CData, int]:
    """Return adapters as an array of ``pyg_scaled_adapter``, which the caller keeps alive, and their number."""
    return ffi.new("pyg_scaled_adapter[]", [(each._handle, scale) for each, scale in adapters]), len(adapters)


def _fill_sampling(sampling: CData, params: SamplingParams) -> list[CData]:
    unset = {"adaptive_target": -1.0, "seed": _random_seed(), "reasoning_budget": -1}
    for name in _SAMPLING_NUMBERS:
        value = getattr(params, name)
        setattr(sampling, name, unset[name] if value is None else value)

    bias = dict(params.logit_bias or {})
    ids, values = ffi.new("int32_t[]", list(bias)), ffi.new("float[]", list(bias.values()))
    sampling.bias_token_ids, sampling.bias_values, sampling.n_bias = ids, values, len(bias)
    allowed = ffi.new("int32_t[]", list(params.allowed_token_ids or ()))
    sampling.allowed_token_ids, sampling.n_allowed = allowed, len(allowed)
    bad = ffi.new("int32_t[]", [int(token_id) for sequence in params.bad_words for token_id in sequence])
    lengths = ffi.new("int32_t[]", list(map(len, params.bad_words)))
    sampling.bad_token_ids, sampling.bad_lengths, sampling.n_bad = bad, lengths, len(lengths)
    borrowed = [ids, values, allowed, bad, lengths]
    sampling.dry_breakers, sampling.n_dry_breakers = _strings(params.dry_sequence_breakers, borrowed)
    if params.samplers is not None:
        sampling.samplers, sampling.n_samplers = _strings(params.samplers, borrowed)
    grammar = params.grammar
    if grammar is None:
        return borrowed
    return [*borrowed, *_fill_grammar(sampling, Grammar(grammar) if isinstance(grammar, str) else grammar)]


def _fill_reasoning(sampling: CData, reasoning: ReasoningTokens | None) -> list[CData]:
    if reasoning is None:
        return []
    start, forced = ffi.new("int32_t[]", list(reasoning.start)), ffi.new("int32_t[]", list(reasoning.forced))
    ends = ffi.new("int32_t[]", [token_id for end in reasoning.ends for token_id in end])
    lengths = ffi.new("int32_t[]", list(map(len, reasoning.ends)))
    sampling.reasoning_begun = reasoning.begun
    sampling.reasoning_start, sampling.n_reasoning_start = start, len(start)
    sampling.reasoning_end_ids, sampling.reasoning_end_lengths, sampling.n_reasoning_ends = ends, lengths, len(lengths)
    sampling.reasoning_forced, sampling.n_reasoning_forced = forced, len(forced)
    return [start, ends, lengths, forced]


def salt_number(salt: str | None) -> int:
    """Return a ``cache_salt`` as the engine's number; 0 without one."""
    if salt is None:
        return 0
    from hashlib import blake2b

    return int.from_bytes(blake2b(utf8("cache_salt", salt), digest_size=8).digest(), "little") or 1


def _fill_grammar(sampling: CData, grammar: Grammar) -> list[CData]:
    text, root = ffi.new("char[]", grammar.text.encode()), ffi.new("char[]", grammar.root.encode())
    token_ids = ffi.new("int32_t[]", list(grammar.trigger_tokens))
    borrowed = [text, root, token_ids]
    sampling.grammar, sampling.grammar_root, sampling.grammar_lazy = text, root, grammar.lazy
    if grammar.prefix:
        sampling.grammar_prefix = prefix = ffi.new("char[]", grammar.prefix.encode())
        borrowed.append(prefix)
    sampling.trigger_patterns, sampling.n_trigger_patterns = _strings(grammar.trigger_patterns, borrowed)
    sampling.trigger_token_ids, sampling.n_trigger_tokens = token_ids, len(grammar.trigger_tokens)
    return borrowed


def _strings(texts: Sequence[str], borrowed: list[CData]) -> tuple[CData, int]:
    """Return texts as an array of C strings, and their number. Adds the memory to ``borrowed``, to keep it alive."""
    strings = [ffi.new("char[]", text.encode()) for text in texts]
    array = ffi.new("char *[]", strings)
    borrowed += [*strings, array]
    return array, len(strings)


def _random_seed() -> int:
    return int.from_bytes(os.urandom(4), "little") >> 1

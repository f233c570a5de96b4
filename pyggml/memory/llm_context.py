"""The options of the context that an LLM creates, for loading and for planning."""

from __future__ import annotations

from pyggml._core.c_values import UINT32_MAX, integer
from pyggml._core.fields import shared
from pyggml._native.context_options import ContextOptions
from pyggml._native.model import Model
from pyggml.errors import InvalidParameterError
from pyggml.options import MemoryOptions

# The longest default context. At today's training lengths the cache would take gigabytes, which few prompts fill.
_DEFAULT_N_CTX = 8192
# Rows of logits that LLM.logits computes at once; each costs n_vocab floats of scratch for the whole session.
_N_OUTPUTS_MAX = 32
# Key that the importer writes: the longest context for which the engine's results match the original model.
_CONTEXT_LIMIT = "pyggml.context_limit"


def generates(model: Model) -> bool:
    """Whether the model continues a text token by token; encoders and models that fill in gaps do not."""
    return model.has_decoder and not model.has_encoder and model.is_causal


def default_n_ctx(model: Model) -> int:
    """The default context size, in tokens."""
    metadata = model.metadata
    # In a context longer than the original one, longrope rotates all positions differently, even in short texts.
    is_longrope = metadata.get(f"{model.arch}.rope.scaling.type") == "longrope"
    original = metadata.get(f"{model.arch}.rope.scaling.original_context_length") if is_longrope else None
    return min(model.n_ctx_train, _DEFAULT_N_CTX, _number(original) or _DEFAULT_N_CTX)


def n_ctx_limit(model: Model) -> int | None:
    """The longest context for which the engine's results match the original model; None: no limit."""
    return _number(model.metadata.get(_CONTEXT_LIMIT))


def _number(value: str | None) -> int | None:
    """The value as a number of tokens, or None."""
    return int(value) or None if value is not None and value.isdecimal() else None


def longest_n_ctx(model: Model) -> int:
    """The longest context that a request can use: the model's training length, within the engine's limit."""
    limit = n_ctx_limit(model)
    return model.n_ctx_train if limit is None else min(model.n_ctx_train, limit)


def checked_n_ctx(model: Model, n_ctx: int | None) -> int:
    """The context size, in tokens, that the caller asked for; None: the default.

    Raises:
        InvalidParameterError: the size is out of range, or more than the engine can compute correctly.
    """
    if n_ctx is None:
        return default_n_ctx(model)
    n_ctx = integer("n_ctx", n_ctx, 1, UINT32_MAX)
    limit = n_ctx_limit(model)
    if limit is not None and n_ctx > limit:
        raise InvalidParameterError(
            f"n_ctx must be at most {limit} for this model, not {n_ctx}: longer contexts would give wrong results, "
            "because the engine has no sliding window, or no dynamic rotations, for this architecture"
        )
    return n_ctx


def context_options(options: MemoryOptions, n_ctx: int) -> ContextOptions:
    """The options of a Context with ``n_ctx`` cells that computes ``n_parallel`` requests together."""
    values = shared(options, ContextOptions) | {
        "n_ctx": n_ctx,
        "n_seq_max": options.n_parallel,
        # A step has a token of each request, and where windows forget, it is computed at once (engine.cpp).
        "n_ubatch": max(options.n_ubatch, options.n_parallel),
        "n_outputs_max": min(options.n_batch, max(options.n_parallel, _N_OUTPUTS_MAX)),
    }
    return ContextOptions(**values)

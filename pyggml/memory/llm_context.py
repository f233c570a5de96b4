"""Options of an LLM's context, for loading and planning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyggml._core.checks import UINT32_MAX, integer
from pyggml._core.fields import shared
from pyggml._core.warn import warn
from pyggml._native.context_options import ContextOptions
from pyggml._native.model import Model
from pyggml._native.rope_options import RopeOptions
from pyggml.cache import display_name
from pyggml.errors import InvalidParameterError
from pyggml.options import MemoryOptions

# Maximum default context size. At typical training lengths, the KV cache would take gigabytes that few prompts use.
_DEFAULT_N_CTX = 8192
# Rows of logits in a batch of LLM.logits; each needs n_vocab floats as long as the context exists.
_N_OUTPUTS_MAX = 32
# Key that the importer writes: the maximum context size with results that match the original model.
_CONTEXT_LIMIT = "pyggml.context_limit"


def generates(model: Model) -> bool:
    """Return True if the model is autoregressive, unlike encoders and diffusion models."""
    return model.has_decoder and not model.has_encoder and model.is_causal


def default_n_ctx(model: Model) -> int:
    """Return the default context size in tokens."""
    metadata = model.metadata
    # With a context beyond the original length, longrope rotates all positions differently, even in short texts.
    is_longrope = metadata.get(f"{model.arch}.rope.scaling.type") == "longrope"
    original = metadata.get(f"{model.arch}.rope.scaling.original_context_length") if is_longrope else None
    return min(model.n_ctx_train, _DEFAULT_N_CTX, _number(original) or _DEFAULT_N_CTX)


def n_ctx_limit(model: Model) -> int | None:
    """Return the maximum context size with results that match the original model; None: no limit."""
    return _number(model.metadata.get(_CONTEXT_LIMIT))


def _number(value: str | None) -> int | None:
    """Parse a positive number of tokens; return None for other values."""
    return int(value) or None if value is not None and value.isdecimal() else None


def longest_n_ctx(model: Model, rope: RopeOptions) -> int:
    """Return the maximum context size of a request: the model's training length, within the engine's limit.

    With ``rope_freq_scale`` or no scaling, the length is that of the original model, scaled as requested.
    """
    length, limit = model.n_ctx_train, n_ctx_limit(model)
    scale = 1.0 if rope.rope_scaling_type == "none" else rope.rope_freq_scale
    if scale:
        # The engine writes the scaled length of YaRN into its model, so this reads the file's.
        length = _number(model.metadata.get(f"{model.arch}.context_length")) or length
        original = _number(model.metadata.get(f"{model.arch}.rope.scaling.original_context_length"))
        length = round((rope.yarn_orig_ctx or original or length) / scale)
    return length if limit is None else min(length, limit)


def warn_if_untrained(model: Model, n_ctx: int, rope: RopeOptions) -> None:
    """Warn of a context that is longer than the model's training, unless another base frequency was requested."""
    length = longest_n_ctx(model, rope)
    if n_ctx > length and not rope.rope_freq_base:
        warn(
            f"n_ctx={n_ctx} is longer than the {length} tokens that {display_name(Path(model.path))} was trained for: "
            f"text beyond them tends to be nonsense. Use n_ctx={length}, or scale RoPE if the model allows it: "
            f'rope_scaling_type="yarn", rope_freq_scale={length / n_ctx:.3g}'
        )


def checked_n_ctx(model: Model, n_ctx: int | None) -> int:
    """Check a context size in tokens; None: return the default.

    Raises:
        InvalidParameterError: the size is out of range, or beyond the limit for correct results.
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
    """Return the options of a Context with ``n_ctx`` cells for batches of ``n_parallel`` requests."""
    values = shared(options, ContextOptions) | {
        "n_ctx": n_ctx,
        "n_seq_max": options.n_parallel,
        # A step has a token of each request, and where windows forget, it is computed at once (engine.cpp).
        "n_ubatch": max(options.n_ubatch, options.n_parallel),
        "kv_unified": True,  # the engine divides the KV cache, and unifies it again
        "n_outputs_max": min(options.n_batch, max(options.n_parallel, _N_OUTPUTS_MAX)),
    }
    return ContextOptions(**values)


def draft_context_options(options: MemoryOptions, n_ctx: int) -> ContextOptions:
    """Return the options of a draft model's context: a sequence for each request, of which it guesses a row at a time.

    The cache is full in layers with sliding windows too, so that wrong guesses can be dropped.
    """
    return replace(context_options(options, n_ctx), n_outputs_max=options.n_parallel, swa_full=True)

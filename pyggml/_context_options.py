"""What a context is asked to be, in the engine's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyggml._ffi import ffi, lib
from pyggml._native import UINT32_MAX, choice, integer, real

if TYPE_CHECKING:
    from pyggml._ffi import CData

CACHE_TYPES: dict[str, int] = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": lib.GGML_TYPE_BF16,
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "iq4_nl": lib.GGML_TYPE_IQ4_NL,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
}
_POOLING: dict[str, int] = {
    "none": lib.LLAMA_POOLING_TYPE_NONE,
    "mean": lib.LLAMA_POOLING_TYPE_MEAN,
    "cls": lib.LLAMA_POOLING_TYPE_CLS,
    "last": lib.LLAMA_POOLING_TYPE_LAST,
    "rank": lib.LLAMA_POOLING_TYPE_RANK,
}
POOLING_NAMES = {number: name for name, number in _POOLING.items()}
_ATTENTION: dict[str, int] = {
    "causal": lib.LLAMA_ATTENTION_TYPE_CAUSAL,
    "non-causal": lib.LLAMA_ATTENTION_TYPE_NON_CAUSAL,
}
_ROPE_SCALING: dict[str, int] = {
    "none": lib.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": lib.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": lib.LLAMA_ROPE_SCALING_TYPE_YARN,
    "longrope": lib.LLAMA_ROPE_SCALING_TYPE_LONGROPE,
}
_FLASH_ATTN: dict[str, int] = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_FROM_MODEL = -1  # pooling, attention and rope scaling alike


def native_options(
    *,
    n_ctx: int,
    n_batch: int,
    n_ubatch: int,
    n_seq_max: int,
    n_outputs_max: int = 0,
    n_threads: int | None = None,
    n_threads_batch: int | None = None,
    cache_type: str = "f16",
    type_k: str | None = None,
    type_v: str | None = None,
    flash_attn: str = "auto",
    embeddings: bool = False,
    pooling: str | None = None,
    attention: str | None = None,
    rope_scaling: str | None = None,
    rope_freq_base: float = 0.0,
    rope_freq_scale: float = 0.0,
    kv_unified: bool = True,
    swa_full: bool = False,
    offload_kqv: bool = True,
    op_offload: bool = True,
) -> CData:
    """A ``pyg_context_options *`` of the constructor's arguments; see :class:`pyggml.context.Context`.

    Raises:
        InvalidParameterError: something is of the wrong kind, or far out of range; the engine checks the
            rest.
    """
    options = ffi.new("pyg_context_options *", lib.pyg_context_default_options())
    options.n_ctx = integer("n_ctx", n_ctx, 0, UINT32_MAX)
    options.n_batch = integer("n_batch", n_batch, 1, UINT32_MAX)
    options.n_ubatch = integer("n_ubatch", n_ubatch, 1, UINT32_MAX)
    options.n_seq_max = integer("n_seq_max", n_seq_max, 1, UINT32_MAX)
    options.n_outputs_max = integer("n_outputs_max", n_outputs_max, 0, UINT32_MAX)
    options.n_threads = threads("n_threads", n_threads)
    options.n_threads_batch = threads("n_threads_batch", n_threads_batch)
    options.type_k = choice(*_named("type_k", type_k, cache_type), CACHE_TYPES)
    options.type_v = choice(*_named("type_v", type_v, cache_type), CACHE_TYPES)
    options.flash_attn = choice("flash_attn", flash_attn, _FLASH_ATTN)
    options.embeddings = bool(embeddings)
    options.pooling = _FROM_MODEL if pooling is None else choice("pooling", pooling, _POOLING)
    options.attention = _FROM_MODEL if attention is None else choice("attention", attention, _ATTENTION)
    options.rope_scaling = _FROM_MODEL if rope_scaling is None else choice("rope_scaling", rope_scaling, _ROPE_SCALING)
    options.rope_freq_base = real("rope_freq_base", rope_freq_base)
    options.rope_freq_scale = real("rope_freq_scale", rope_freq_scale)
    options.kv_unified = bool(kv_unified)
    options.swa_full = bool(swa_full)
    options.offload_kqv = bool(offload_kqv)
    options.op_offload = bool(op_offload)
    return options


def _named(name: str, type: str | None, cache_type: str) -> tuple[str, str]:
    """The type of one of the two, and the argument that says so."""
    return ("cache_type", cache_type) if type is None else (name, type)


def threads(name: str, n: int | None) -> int:
    """A number of threads; 0 tells the native side to choose.

    Raises:
        InvalidParameterError: not 1 to 512 or None.
    """
    return 0 if n is None else integer(name, n, 1, lib.GGML_MAX_N_THREADS)

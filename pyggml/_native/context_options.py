"""The options of a context, and their conversion to the engine's struct."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pyggml._core.checks import UINT32_MAX, invalid, shown
from pyggml._core.ffi import ffi, lib
from pyggml._core.fields import CACHE_TYPE_NUMBERS, CACHE_TYPES, CacheType, Field, Size, Threads, check, option_class
from pyggml._native.activation_collector import Collector
from pyggml._native.rope_options import RopeOptions

if TYPE_CHECKING:
    from pyggml._core.ffi import CData


def _numbers(prefix: str, names: Sequence[str]) -> dict[str, int]:
    return {name: getattr(lib, prefix + name.upper()) for name in names}


_CACHE_TYPES = _numbers("GGML_TYPE_", CACHE_TYPES)
_POOLING = _numbers("LLAMA_POOLING_TYPE_", ("none", "mean", "cls", "last", "rank"))
POOLING_NAMES = {number: name for name, number in _POOLING.items()}
# The engine's numbers for options with names as values.
_NUMBERS: dict[str, dict[str, int]] = {
    "type_k": _CACHE_TYPES,
    "type_v": _CACHE_TYPES,
    "pooling": _POOLING,
    "attention": {
        "causal": lib.LLAMA_ATTENTION_TYPE_CAUSAL,
        "non-causal": lib.LLAMA_ATTENTION_TYPE_NON_CAUSAL,
    },
    "rope_scaling_type": _numbers("LLAMA_ROPE_SCALING_TYPE_", ("none", "linear", "yarn", "longrope")),
    "flash_attn": {
        "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
        "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    },
}
_FROM_MODEL = -1  # pooling, attention, rope scaling and the numbers of YaRN alike
_YARN_NUMBERS = ("yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")


@option_class
@dataclass(frozen=True, kw_only=True)
class ContextOptions(RopeOptions):
    """The parameters of :class:`pyggml.Context`, which describes them, except the model."""

    n_ctx: Annotated[int, Field(0, UINT32_MAX)] = 0
    n_batch: Size = 2048
    n_ubatch: Size = 512
    n_seq_max: Size = 1
    n_outputs_max: Annotated[int, Field(0, UINT32_MAX)] = 0
    n_threads: Threads = None
    n_threads_batch: Threads = None
    cache_type: CacheType = "f16"
    type_k: Annotated[str | None, Field(choices=CACHE_TYPES, without=CACHE_TYPE_NUMBERS)] = None
    type_v: Annotated[str | None, Field(choices=CACHE_TYPES, without=CACHE_TYPE_NUMBERS)] = None
    flash_attn: Literal["auto", "on", "off"] = "auto"
    embeddings: bool = False
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = None
    attention: Literal["causal", "non-causal"] | None = None
    kv_unified: bool = True
    swa_full: bool = False
    offload_kqv: bool = True
    op_offload: bool = True
    collector: Collector | None = None

    def __post_init__(self) -> None:
        check(self)
        if self.collector is not None and not isinstance(self.collector, Collector):
            raise invalid(f"collector must be a Collector or None, not {shown(self.collector)}")


def native_options(options: ContextOptions) -> "CData":
    """Return the options as a ``pyg_context_options *``. The engine rejects those that the model does not support."""
    values = {
        **vars(options),
        "type_k": options.type_k or options.cache_type,
        "type_v": options.type_v or options.cache_type,
        "imatrix": ffi.NULL if options.collector is None else options.collector._handle,
    }
    native = ffi.new("pyg_context_options *")
    for name, _ in ffi.typeof("pyg_context_options").fields:
        setattr(native, name, _native_value(name, values[name]))
    return native


def _native_value(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        return _FROM_MODEL if value is None else _NUMBERS[name][value]
    if value is None:
        return _FROM_MODEL if name in _YARN_NUMBERS else 0  # 0 threads: the engine chooses
    return value

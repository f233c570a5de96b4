# Keyword arguments that set fields of an options class. Written by tools/make_keywords.py.

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from pyggml._native.model import Progress
from pyggml.options import All, Auto, QueueFull, SplitMode
from pyggml.sampling import Grammar

class LoadKeywords(TypedDict, total=False):
    n_gpu_layers: int | Auto | None
    split_mode: SplitMode
    tensor_split: str | Sequence[float] | None
    main_gpu: int | None
    n_cpu_moe: int | All | None
    override_tensor: str | Mapping[str, str] | Sequence[str] | None
    rpc: str | Sequence[str] | None
    rpc_key: str | os.PathLike[str] | None
    n_ctx: int | Auto | None
    n_parallel: int
    n_batch: int
    n_ubatch: int
    cache_type: str
    n_threads: int | None
    prefix_cache: bool
    deterministic: bool
    backend_sampling: bool
    max_queue: int | None
    queue_full: QueueFull
    progress: Progress | None
    chat_template: str | os.PathLike[str] | None
    isolate: bool

class EstimateKeywords(TypedDict, total=False):
    device: str | Sequence[str]
    n_gpu_layers: int | Auto | None
    split_mode: SplitMode
    tensor_split: str | Sequence[float] | None
    main_gpu: int | None
    n_cpu_moe: int | All | None
    override_tensor: str | Mapping[str, str] | Sequence[str] | None
    rpc: str | Sequence[str] | None
    rpc_key: str | os.PathLike[str] | None
    n_ctx: int | Auto | None
    n_parallel: int
    n_batch: int
    n_ubatch: int
    cache_type: str
    outtype: str

class SamplingOverrides(TypedDict, total=False):
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int
    dynatemp_range: float
    dynatemp_exponent: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float | None
    adaptive_decay: float
    min_keep: int
    samplers: Sequence[str] | None
    seed: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int]
    repetition_guard: bool | None
    ignore_eos: bool
    logit_bias: Mapping[int, float] | None
    grammar: str | Grammar | None
    json_schema: Mapping[str, Any] | str | type | object | None
    timeout_s: float | None
    logprobs: int
    prompt_logprobs: int
    response_format: Mapping[str, Any] | type | None

# Keyword arguments that set fields of an options class. Written by tools/make_keywords.py.

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from pyggml._native.model import Model
from pyggml.chat.request import ChatTemplate
from pyggml.options import All, Auto, QueueFull, RopeScaling, SplitMode
from pyggml.progress import ProgressOption
from pyggml.sampling import Grammar
from pyggml.source import Source

class LoadKeywords(TypedDict, total=False):
    n_gpu_layers: int | Auto | All | None
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
    type_k: str | None
    type_v: str | None
    draft: Source | Model
    draft_device: str | Sequence[str] | None
    draft_n_gpu_layers: int | All | None
    rope_scaling_type: RopeScaling | None
    rope_freq_base: float | None
    rope_freq_scale: float | None
    yarn_ext_factor: float | None
    yarn_attn_factor: float | None
    yarn_beta_fast: float | None
    yarn_beta_slow: float | None
    yarn_orig_ctx: int | None
    prefix_cache_bytes: int | None
    n_threads: int | None
    prefix_cache: bool
    prefix_cache_dir: str | os.PathLike[str] | None
    prefix_cache_disk_bytes: int | None
    deterministic: bool
    kv_unified: bool | None
    backend_sampling: bool
    speculative: str
    max_queue: int | None
    queue_full: QueueFull
    progress: ProgressOption
    outtype: str
    lora: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, float] | None
    chat_template: str | os.PathLike[str] | None
    isolate: bool

class EstimateKeywords(TypedDict, total=False):
    device: str | Sequence[str]
    n_gpu_layers: int | Auto | All | None
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
    type_k: str | None
    type_v: str | None
    draft: Source | Model
    draft_device: str | Sequence[str] | None
    draft_n_gpu_layers: int | All | None
    rope_scaling_type: RopeScaling | None
    rope_freq_base: float | None
    rope_freq_scale: float | None
    yarn_ext_factor: float | None
    yarn_attn_factor: float | None
    yarn_beta_fast: float | None
    yarn_beta_slow: float | None
    yarn_orig_ctx: int | None
    prefix_cache_bytes: int | None
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
    overflow: str
    n_keep: int
    min_tokens: int
    bad_words: Sequence[str | Sequence[int]]
    allowed_token_ids: Sequence[int] | None
    ignore_eos: bool
    logit_bias: Mapping[int, float] | None
    grammar: str | Grammar | None
    json_schema: Mapping[str, Any] | str | type | object | None
    json_schema_options: Mapping[str, Any] | None
    choices: Sequence[str] | None
    regex: str | None
    logits_processor: Callable[..., Any] | Sequence[Callable[..., Any]] | None
    reasoning_budget: int | None
    reasoning_budget_message: str | None
    cache_salt: str | None
    adapter: str | Mapping[str, float] | None
    timeout_s: float | None
    logprobs: int
    logprobs_mode: str
    prompt_logprobs: int
    speculative: str | None
    num_speculative_tokens: int | None
    response_format: Mapping[str, Any] | type | None

class ChatKeywords(SamplingOverrides, total=False):
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    thinking: bool | None
    continue_final_message: bool
    chat_template: ChatTemplate | None
    template_kwargs: Mapping[str, Any] | None
    parse_special: bool

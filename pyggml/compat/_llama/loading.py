"""Translation of the arguments of ``Llama(...)`` to those of pyggml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyggml
from pyggml.compat._llama.arguments import warn_without_effect
from pyggml.compat.llama_cpp.llama_tokenizer import LlamaHFTokenizer

Arguments = Mapping[str, Any]

_SPLIT_MODES = {0: "none", 1: "layer", 2: "row", 3: "tensor"}
_ROPE_SCALING = {0: "none", 1: "linear", 2: "yarn", 3: "longrope"}
_POOLING = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_ATTENTION = {0: "causal", 1: "non-causal"}
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
# Options of RoPE and YaRN whose default stands for the model's own value.
_OF_MODEL = {
    "rope_freq_base": 0.0,
    "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_orig_ctx": 0,
}

#: Arguments of earlier versions, which llama-cpp-python ignores: name -> the usual value.
OBSOLETE = {
    "n_parts": -1,
    "f16_kv": True,
    "low_vram": False,
    "mul_mat_q": None,
    "n_gqa": None,
    "rms_norm_eps": None,
    "device": None,
}

_ADAPTS = "the engine chooses what suits the device"
_WITHOUT_EFFECT: Mapping[str, tuple[Any, str]] = {
    "numa": (False, "place the process with numactl"),
    "offload_kqv": (True, "the KV cache of a layer is where the layer is"),
    "op_offload": (None, _ADAPTS),
    "swa_full": (None, "the prefix cache works without a full cache of sliding-window layers"),
    **{name: (usual, "llama.cpp has no such option any more") for name, usual in OBSOLETE.items()},
}
_UNSUPPORTED: Mapping[str, tuple[Any, str]] = {
    "lora_base": (None, "an adapter is applied to the model's own weights: leave it out, as llama.cpp does"),
    "kv_overrides": (None, "metadata cannot be overridden: write a file with other metadata, such as with pyggml.gguf"),
}


def check_supported(given: Arguments) -> None:
    """Refuse arguments that pyggml cannot honour, and warn of those without effect.

    Raises:
        InvalidParameterError: an argument asks for a feature that pyggml does not have.
    """
    for name, (default, reason) in _UNSUPPORTED.items():
        if given[name] != default and given[name]:
            raise pyggml.InvalidParameterError(f"{name}={given[name]!r}: {reason}")
    warn_without_effect(given, _WITHOUT_EFFECT)


class ModelPathError(pyggml.ModelNotFoundError, ValueError):
    """The model file does not exist; also a ValueError, which llama-cpp-python raises."""


def require_file(path: str | os.PathLike[str]) -> str:
    """Return the path, or the reference, of a model.

    Raises:
        ModelPathError: there is no such file.
    """
    name = os.fspath(path)
    if not name.startswith("hf:") and not os.path.exists(name):  # noqa: PTH110
        raise ModelPathError(f"Model path does not exist: {name}")
    return name


def open_vocabulary(path: str) -> pyggml.Model:
    """Load a file without its weights."""
    return pyggml.Model(path, vocab_only=True)


def open_model(path: str, given: Arguments) -> pyggml.LLM:
    """Load a model and start its engine.

    Raises:
        InferError: as :func:`pyggml.load`.
    """
    options = _engine_options(given)
    placement = _placement(given)
    if given["use_mmap"] and not given["use_mlock"]:
        return pyggml.LLM(path, progress=False, **placement, **options)
    others = [name for name in placement if name not in ("device", "n_gpu_layers")]
    if others:
        raise pyggml.InvalidParameterError(
            f"{others[0]} cannot be combined with use_mmap=False or use_mlock=True: leave one of them out"
        )
    layers = placement.get("n_gpu_layers", -1)
    model = pyggml.Model(
        path,
        device=placement["device"],
        n_gpu_layers=layers,
        use_mmap=given["use_mmap"],
        use_mlock=given["use_mlock"],
    )
    try:
        return pyggml.LLM(model, **options)
    except BaseException:
        model.close()
        raise


def context_options(given: Arguments, n_ctx: int) -> dict[str, Any]:
    """Return the options of a :class:`pyggml.Context` for calls that compute token by token."""
    n_batch = min(n_ctx, given["n_batch"])
    n_cores = os.cpu_count() or 1
    return {
        "n_ctx": n_ctx,
        "n_batch": n_batch,
        "n_ubatch": min(n_batch, given["n_ubatch"]),
        # Not all cores for single tokens: this context does not adapt to what else runs.
        "n_threads": _useful_threads(given["n_threads"]) or max(1, n_cores // 2),
        "n_threads_batch": _useful_threads(given["n_threads_batch"] or given["n_threads"]) or n_cores,
        "attention": _named("attention_type", given["attention_type"], _ATTENTION),
        **_cache_types(given),
        **_rope(given),
    }


def pooling_of(given: Arguments, metadata: Mapping[str, str], arch: str) -> str:
    """Return the name of the pooling: the caller's, the file's, or "none"."""
    pooling = given["pooling_type"]
    if pooling == -1:
        pooling = int(metadata.get(f"{arch}.pooling_type", 0))
    return _named("pooling_type", pooling, _POOLING) or "none"


def _engine_options(given: Arguments) -> dict[str, Any]:
    n_ctx = given["n_ctx"] or None
    n_batch = given["n_batch"] if n_ctx is None else min(n_ctx, given["n_batch"])
    return {
        "n_ctx": n_ctx,
        "n_batch": n_batch,
        "n_ubatch": min(n_batch, given["n_ubatch"]),
        "n_parallel": min(n_batch, given["n_parallel"]),
        "n_threads": _useful_threads(given["n_threads"]),
        "queue_full": "wait",
        "tokenizer": _tokenizer(given["tokenizer"]),
        "lora": {given["lora_path"]: given["lora_scale"]} if given["lora_path"] else None,
        **_cache_types(given),
        **_rope(given),
    }


def _useful_threads(n_threads: int | None) -> int | None:
    """Return at most as many threads as can run at once: programs bring along the number of another machine.

    Compute threads wait for each other many times per token, so those that do not run hold up the others.
    """
    limits = pyggml.system.cpu_limits()
    return None if n_threads is None else min(n_threads, limits.n_processors or n_threads, limits.n_quota or n_threads)


def _placement(given: Arguments) -> dict[str, Any]:
    """Return the devices: none but the CPU unless layers are asked for, as in llama-cpp-python."""
    n_gpu_layers = given["n_gpu_layers"]
    if n_gpu_layers == 0:
        return {"device": "cpu"}
    placement: dict[str, Any] = {"device": "auto"}
    if n_gpu_layers > 0:
        placement["n_gpu_layers"] = n_gpu_layers
    split_mode = _named("split_mode", given["split_mode"], _SPLIT_MODES)
    if split_mode != "layer":
        placement["split_mode"] = split_mode
    if split_mode == "none" and given["main_gpu"]:
        placement["main_gpu"] = given["main_gpu"]
    if given["tensor_split"] is not None:
        placement["tensor_split"] = given["tensor_split"]
    return placement


def _cache_types(given: Arguments) -> dict[str, str]:
    numbers = {getattr(pyggml.lib, f"GGML_TYPE_{name.upper()}"): name for name in _CACHE_TYPES}
    names = {name: given[name] for name in ("type_k", "type_v") if given[name] is not None}
    return {name: value if isinstance(value, str) else _named(name, value, numbers) for name, value in names.items()}


def _rope(given: Arguments) -> dict[str, Any]:
    options = {name: given[name] for name, of_model in _OF_MODEL.items() if given[name] != of_model}
    scaling = given["rope_scaling_type"]
    if scaling not in (None, -1):
        options["rope_scaling_type"] = _named("rope_scaling_type", scaling, _ROPE_SCALING)
    return options


def _named(name: str, number: int, names: Mapping[int, str]) -> Any:
    """Return pyggml's name of an upstream enumerator; None for -1, which stands for the model's own."""
    if number == -1:
        return None
    if number not in names:
        known = ", ".join(f"{each} ({text})" for each, text in names.items())
        raise pyggml.InvalidParameterError(f"{name}={number!r} is unknown; known are {known}")
    return names[number]


def _tokenizer(tokenizer: object) -> Any:
    """Return the ``tokenizers.Tokenizer`` of a tokenizer of transformers."""
    if tokenizer is None:
        return None
    backend = (
        getattr(tokenizer.hf_tokenizer, "backend_tokenizer", None) if isinstance(tokenizer, LlamaHFTokenizer) else None
    )
    if backend is None:
        raise pyggml.InvalidParameterError(
            f"tokenizer must be a LlamaHFTokenizer of a fast tokenizer, not {type(tokenizer).__name__}"
        )
    return backend

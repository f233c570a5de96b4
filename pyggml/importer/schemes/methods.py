"""Quantisation methods by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyggml.errors import UnsupportedArchitectureError
from pyggml.files.config import Config
from pyggml.importer.schemes.compressed_tensors import CompressedTensors
from pyggml.importer.schemes.float8 import Fp8
from pyggml.importer.schemes.gptq_awq import auto_round, awq, gptq
from pyggml.importer.schemes.modelopt import ModelOpt
from pyggml.importer.schemes.module import Scheme
from pyggml.importer.schemes.mxfp4 import Mxfp4

_METHODS: Mapping[str, Callable[[Config], Scheme]] = {
    "compressed-tensors": CompressedTensors,
    "fp8": Fp8,
    "fbgemm_fp8": Fp8,
    "mxfp4": Mxfp4,
    "modelopt": ModelOpt,
    "gptq": gptq,
    "awq": awq,
    "auto-round": auto_round,
}

#: Other methods -> their names in messages.
_OTHERS = {
    "aqlm": "AQLM",
    "bitnet": "BitNet",
    "bitsandbytes": "bitsandbytes",
    "eetq": "EETQ",
    "fouroversix": "FourOverSix",
    "fp_quant": "FP-Quant",
    "gguf": "GGUF",
    "higgs": "HIGGS",
    "hqq": "HQQ",
    "meta": "Meta's own method",
    "metal": "transformers' Metal kernels",
    "mlx": "MLX",
    "mxfp8": "MXFP8",
    "nvfp4": "NVFP4",
    "quanto": "Quanto",
    "quark": "AMD's Quark",
    "sinq": "SINQ",
    "spqr": "SpQR",
    "torchao": "torchao",
    "vptq": "VPTQ",
}


def scheme_of(config: Config) -> Scheme | None:
    """Return the quantisation scheme of a model's weights; None if they are not quantised."""
    section = config.section("quantization_config") or config.section("compression_config")
    if section is not None:
        method = _method(section)
    elif isinstance(config.values.get("quantization"), dict):  # as MLX writes it
        section, method = config.section("quantization") or config, "mlx"
    elif isinstance(config.values.get("quantization_args"), dict):
        section, method = config.section("quantization_args") or config, "meta"
    else:
        return None
    make = _METHODS.get(method)
    if make is None:
        raise UnsupportedArchitectureError(_refusal(section, method))
    return make(section)


def _method(section: Config) -> str:
    """The method's name. MLX, old bitsandbytes and old compressed-tensors give none, but have keys of their own."""
    method, values = section.get("quant_method"), section.values
    if values.get("load_in_4bit") or values.get("load_in_8bit"):
        return "bitsandbytes"
    if method is not None:
        return str(method)
    if "config_groups" in values:
        return "compressed-tensors"
    return "mlx" if {"bits", "group_size"} <= set(values) else "None"


def _refusal(section: Config, method: str) -> str:
    title = _OTHERS.get(method, repr(method))
    values = section.values
    bits = values.get("bits") or (4 if values.get("load_in_4bit") else 8 if values.get("load_in_8bit") else None)
    return (
        f"{section.path}: the weights are quantised{f' to {bits} bits' if bits else ''} with {title:.80}, which pyggml "
        "cannot read. Download the model that they were made from (the model's page names it), or a GGUF file of it. "
        f"Of quantised checkpoints, pyggml imports {', '.join(_METHODS)}"
    )

"""Quantised checkpoints: what their integers and scales mean is what the GGUF file holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pytest
from hf_llama import HFLlama
from test_convert import PROMPT, computed, require_close, types_of
from test_safetensors import require_quick_error

import pyggml
from pyggml.errors import InferError, ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.gguf import GGUFReader

Layer = tuple[dict[str, Any], Any]  # tensors by suffix, and the weights that they mean

RANDOM = np.random.default_rng(5)


def codes(n_rows: int, n_cols: int, bits: int) -> Any:
    return RANDOM.integers(0, 2**bits, (n_rows, n_cols))


def scales(n_rows: int, n_groups: int, dtype: Any = np.float16) -> Any:
    return (RANDOM.uniform(0.5, 1.5, (n_rows, n_groups)) / 40).astype(dtype)


def meant(unsigned: Any, zeros: Any, scale: Any) -> Any:
    """(code - zero) * scale, with scales and zero points of groups."""
    n_per_group = unsigned.shape[1] // scale.shape[1]
    wide = [np.repeat(np.asarray(each, np.float32), n_per_group, axis=1) for each in (zeros, scale)]
    return ((unsigned - wide[0]) * wide[1]).astype(np.float32)


def packed(unsigned: Any, bits: int) -> Any:
    """Codes of a row in 32-bit words, the first in the lowest bits."""
    n_per_word = 32 // bits
    padded = np.pad(unsigned, ((0, 0), (0, -unsigned.shape[1] % n_per_word))).astype(np.uint64)
    groups = padded.reshape(len(unsigned), -1, n_per_word)
    return sum(groups[..., i] << np.uint64(bits * i) for i in range(n_per_word)).astype(np.uint32).view(np.int32)


def int_quantized(weight: Any, *, asymmetric: bool = False, dtype: Any = np.float32) -> Layer:
    n_rows, n_cols = weight.shape
    # as bfloat16 or float16 would hold it, whatever it is stored as
    scale = (checkpoints.bf16_values(scales(n_rows, 1)) / 16).astype(dtype)
    q = codes(n_rows, n_cols, 8)
    zero = RANDOM.integers(100, 156, (n_rows, 1)) if asymmetric else np.full((n_rows, 1), 128)
    tensors = {"weight": (q - 128).astype(np.int8), "weight_scale": scale}
    if asymmetric:
        tensors["weight_zero_point"] = (zero - 128).astype(np.int8)
    return tensors, meant(q, zero, scale)


def pack_quantized(weight: Any, *, bits: int = 4, group: int = 32, asymmetric: bool = False) -> Layer:
    n_rows, n_cols = weight.shape
    n_groups = 1 if group < 0 else n_cols // group
    scale, q = scales(n_rows, n_groups) / (1 if bits == 4 else 16), codes(n_rows, n_cols, bits)
    middle = 2 ** (bits - 1)
    zero = RANDOM.integers(0, 2**bits, (n_rows, n_groups)) if asymmetric else np.full((n_rows, n_groups), middle)
    tensors: dict[str, Any] = {
        "weight_packed": packed(q, bits),
        "weight_scale": checkpoints.bf16(scale),
        "weight_shape": np.array([n_rows, n_cols]),
    }
    if asymmetric:
        tensors["weight_zero_point"] = np.ascontiguousarray(packed(np.ascontiguousarray(zero.T), bits).T)
    return tensors, meant(q, zero, checkpoints.bf16_values(scale))


def float8(weight: Any, *, block: bool = False) -> Layer:
    n_rows, n_cols = weight.shape
    code = RANDOM.integers(0, 256, (n_rows, n_cols)).astype(np.uint8)
    code[code & 127 == 127] = 0
    sign, exponent, mantissa = 1 - 2.0 * (code >> 7), (code >> 3 & 15).astype(int), code & 7
    value = np.where(exponent, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9) * sign
    stored = checkpoints.Stored("F8_E4M3", code)
    if block:
        scale = (scales(-(-n_rows // 16), -(-n_cols // 32)) / 16).astype(np.float32)
        wide = np.repeat(np.repeat(scale, 16, 0), 32, 1)[:n_rows, :n_cols]
        return {"weight": stored, "weight_scale_inv": scale}, (value * wide).astype(np.float32)
    scale = (scales(n_rows, 1) / 16).astype(np.float32)
    return {"weight": stored, "weight_scale": scale}, (value * scale).astype(np.float32)


def gptq(weight: Any, *, bits: int = 4, group: int = 32, symmetric: bool = True, act_order: bool = False) -> Layer:
    n_rows, n_cols = weight.shape
    n_groups = n_cols // group
    scale, q = scales(n_rows, n_groups) / (1 if bits == 4 else 16), codes(n_rows, n_cols, bits)
    middle = 2 ** (bits - 1)
    zero = np.full((n_rows, n_groups), middle) if symmetric else RANDOM.integers(1, 2**bits, (n_rows, n_groups))
    group_of_column = np.arange(n_cols) // group
    if act_order:
        RANDOM.shuffle(group_of_column)
    tensors = {
        "qweight": np.ascontiguousarray(packed(q, bits).T),
        "qzeros": packed(np.ascontiguousarray(zero.T) - 1, bits),
        "scales": np.ascontiguousarray(scale.T),
        "g_idx": group_of_column.astype(np.int32),
        "bias": np.zeros(n_rows, np.float16),  # which the tool writes where a layer has none
    }
    return tensors, ((q - zero[:, group_of_column]) * scale.astype(np.float32)[:, group_of_column]).astype(np.float32)


def awq(weight: Any, *, group: int = 32) -> Layer:
    n_rows, n_cols = weight.shape
    scale, q = scales(n_rows, n_cols // group), codes(n_rows, n_cols, 4)
    zero = RANDOM.integers(0, 16, scale.shape)

    def interleaved(columns: Any) -> Any:
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        return packed(columns.reshape(len(columns), -1, 8)[..., order].reshape(len(columns), -1), 4)

    tensors = {
        "qweight": interleaved(np.ascontiguousarray(q.T)),
        "qzeros": interleaved(np.ascontiguousarray(zero.T)),
        "scales": np.ascontiguousarray(scale.T),
    }
    return tensors, meant(q, zero, scale)


def compressed(bits: int, kind: str = "int") -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "symmetric": True, "strategy": "channel", "dynamic": False}
    return {
        "quant_method": "compressed-tensors",
        "format": "whatever it may say",
        "quantization_status": "frozen",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
        "ignore": ["lm_head"],
    }


FP8 = {"quant_method": "fp8", "weight_block_size": [16, 32]}
GPTQ4, GPTQ8 = ({"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": False} for bits in (4, 8))
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}

FORMATS: dict[str, tuple[dict[str, Any], Callable[[Any], Layer], str, float]] = {
    # the configuration, what makes a layer, the type it becomes, and how far weights may be off
    "w8a8": (compressed(8), int_quantized, "Q8_0", 0),
    "w8a8, asymmetric": (compressed(8), lambda w: int_quantized(w, asymmetric=True), "BF16", 2**-8),
    "packed 4 bits": (compressed(4), pack_quantized, "Q4_0", 0),
    "packed 4 bits, channels": (compressed(4), lambda w: pack_quantized(w, group=-1), "Q4_0", 0),
    "packed 4 bits, asymmetric": (compressed(4), lambda w: pack_quantized(w, asymmetric=True), "Q4_1", 2**-7),
    "packed 4 bits, small groups": (compressed(4), lambda w: pack_quantized(w, group=16), "BF16", 2**-8),
    "packed 8 bits": (compressed(8), lambda w: pack_quantized(w, bits=8), "Q8_0", 0),
    "fp8": (compressed(8, "float"), float8, "BF16", 2**-8),
    "fp8 in blocks": (FP8, lambda w: float8(w, block=True), "BF16", 2**-8),
    "gptq": (GPTQ4, gptq, "Q4_0", 0),
    "gptq, asymmetric": (GPTQ4, lambda w: gptq(w, symmetric=False), "Q4_1", 2**-7),
    "gptq, 8 bits": (GPTQ8, lambda w: gptq(w, bits=8), "Q8_0", 0),
    "gptq, act order": (GPTQ4, lambda w: gptq(w, act_order=True), "F16", 2**-11),
    "awq": (AWQ, awq, "Q4_1", 2**-7),
}


def written(directory: Path, config: dict[str, Any], make: Callable[[Any], Layer]) -> tuple[HFLlama, dict[str, Any]]:
    """A Llama whose linear layers are quantised, and its tensors."""
    llama = HFLlama()
    tensors: dict[str, Any] = {}
    for name, weight in llama.weights.items():
        if "_proj" in name:
            layer, llama.weights[name] = make(weight)
            tensors |= {name.removesuffix("weight") + suffix: data for suffix, data in layer.items()}
        else:
            tensors[name] = checkpoints.bf16(weight)
    llama.config["quantization_config"] = config
    llama.write_tensors(directory, tensors)
    return llama, tensors


@pytest.mark.parametrize("name", FORMATS)
def test_quantised_weights_are_carried(tmp_path: Path, name: str) -> None:
    config, make, type, tolerance = FORMATS[name]
    llama, _ = written(tmp_path / "hf", config, make)
    report = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    types = types_of(tmp_path / "model.gguf")
    assert types["blk.1.ffn_up.weight"].name == types["blk.0.attn_q.weight"].name == type
    assert types["output.weight"].name == "BF16"
    with GGUFReader(tmp_path / "model.gguf") as reader:
        for ours, theirs in (("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"), ("attn_v", "self_attn.v_proj")):
            found = reader.dequantized(f"blk.1.{ours}.weight")
            expected = llama.weights[f"model.layers.1.{theirs}.weight"]
            limit = np.abs(expected).max() if type == "Q4_1" else np.abs(expected)
            assert (np.abs(found - expected) <= tolerance * limit).all()
    assert any("not exact" in note for note in report.notes) == (type not in ("Q8_0", "Q4_0"))


@pytest.mark.parametrize("name", FORMATS)
def test_quantised_models_compute_what_their_weights_mean(tmp_path: Path, name: str) -> None:
    """Also where rows are put in another order: queries and keys."""
    config, make, _, _ = FORMATS[name]
    llama, _ = written(tmp_path / "hf", config, make)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


def test_scales_too_small_for_float16_keep_their_weights_as_floats(tmp_path: Path) -> None:
    def tiny(weight: Any) -> Layer:
        tensors, means = int_quantized(weight)
        factor = np.float32(2.0**-20)
        return {**tensors, "weight_scale": tensors["weight_scale"] * factor}, means * factor

    llama, _ = written(tmp_path / "hf", compressed(8), tiny)
    report = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert types_of(tmp_path / "model.gguf")["blk.0.ffn_up.weight"].name == "BF16"
    assert "not exact" in report.notes[0]
    with GGUFReader(tmp_path / "model.gguf") as reader:
        expected = llama.weights["model.layers.0.mlp.up_proj.weight"]
        assert (np.abs(reader.dequantized("blk.0.ffn_up.weight") - expected) <= 2**-8 * np.abs(expected)).all()


def test_scales_that_float16_rounds_are_told(tmp_path: Path) -> None:
    def odd(weight: Any) -> Layer:
        tensors, means = int_quantized(weight)
        return {**tensors, "weight_scale": tensors["weight_scale"] * np.float32(1.0003)}, means

    written(tmp_path / "hf", compressed(8), odd)
    report = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert types_of(tmp_path / "model.gguf")["blk.0.ffn_up.weight"].name == "Q8_0"
    assert "not exact" in report.notes[0]


NAME = "model.layers.1.mlp.up_proj."
BROKEN: dict[str, tuple[str, Callable[[dict[str, Any]], object], type[InferError], str]] = {
    "no scale": ("packed 4 bits", lambda t: t.pop(f"{NAME}weight_scale"), ModelNotFoundError, "up_proj.weight_scale"),
    "scale shape": (
        "packed 4 bits",
        lambda t: t.update({f"{NAME}weight_scale": np.ones((95, 2), np.float32)}),
        ModelLoadError,
        r"weight_scale has shape \(95, 2\)",
    ),
    "infinite scale": (
        "w8a8",
        lambda t: t.update({f"{NAME}weight_scale": np.full((96, 1), np.inf, np.float32)}),
        ModelLoadError,
        "weight_scale holds infinite or NaN scales",
    ),
    "too few words": (
        "packed 4 bits",
        lambda t: t.update({f"{NAME}weight_packed": np.zeros((96, 7), np.int32)}),
        ModelLoadError,
        r"weight_packed' has shape \(96, 7\)",
    ),
    "other shape": (
        "packed 4 bits",
        lambda t: t.update({f"{NAME}weight_shape": np.array([96, 32])}),
        ModelLoadError,
        r"weight_shape is \(96, 32\)",
    ),
    "no zero points": ("gptq", lambda t: t.pop(f"{NAME}qzeros"), ModelNotFoundError, "up_proj.qzeros"),
    "groups": (
        "gptq",
        lambda t: t.update({f"{NAME}g_idx": np.full(64, 9, np.int32)}),
        ModelLoadError,
        "g_idx names groups",
    ),
    "floats for words": (
        "awq",
        lambda t: t.update({f"{NAME}qweight": np.zeros((64, 12), np.float32)}),
        ModelLoadError,
        "of type F32; I32 was expected",
    ),
    "unknown tensor": (
        "w8a8",
        lambda t: t.update({f"{NAME}weight_twist": np.zeros(3, np.float32)}),
        UnsupportedArchitectureError,
        "weight_twist",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_quantised_tensors_are_named(tmp_path: Path, name: str) -> None:
    format, change, kind, message = BROKEN[name]
    config, make, _, _ = FORMATS[format]
    llama, tensors = written(tmp_path / "hf", config, make)
    change(tensors)
    llama.write_tensors(tmp_path / "hf", tensors)
    require_quick_error(lambda: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf"), kind, message, tmp_path)


CONFIGURATIONS = {
    "unknown": ({"quant_method": "bitsandbytes"}, "quantised with 'bitsandbytes'"),
    "3 bits": ({**GPTQ4, "bits": 3}, "GPTQ weights have 3 bits"),
    "marlin": ({**GPTQ4, "checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'"),
    "gemv": ({**AWQ, "version": "gemv"}, "in the layout 'gemv'"),
    "6 bits": (compressed(6), r"weights have \[6\] bits"),
    "sparse": ({**compressed(8), "sparsity_config": {"format": "sparse-24-bitmask"}}, "'sparse-24-bitmask'"),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_unknown_quantisations_are_refused(tmp_path: Path, name: str) -> None:
    config, message = CONFIGURATIONS[name]
    llama = HFLlama()
    llama.config["quantization_config"] = config
    llama.write(tmp_path / "hf")
    require_quick_error(
        lambda: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf"), UnsupportedArchitectureError, message, tmp_path
    )

"""The forms in which checkpoints store a projection's weights, written in numpy from the formats' descriptions.

Each takes a weight and returns the tensors that store it, with what they mean: the weight, rounded as the format does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.checkpoints import checkpoints

#: Tensors by suffix, and the weight that they mean.
Layer = tuple[dict[str, Any], Any]

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([(8 + code % 8) * 2.0 ** (code // 8 - 10) if code >= 8 else code * 2.0**-9 for code in range(127)])


@dataclass(frozen=True)
class Format:
    """A format of whole checkpoints.

    Attributes:
        title: its column in the table of docs/reference/hugging-face-checkpoints.md, which it may share with others.
        config: keys of ``config.json``.
        make: what makes a projection of a weight.
        type: what a projection becomes in the GGUF file; "" if the format is refused, or mixed.
        error: the largest error of a weight, relative to its size.
        refusal: what the message says if the format is refused.
        others: ends of modules' names -> what makes these projections.
    """

    title: str
    config: Mapping[str, Any]
    make: Callable[[Any], Layer]
    type: str
    error: float = 0.0
    refusal: str = ""
    others: Mapping[str, Callable[[Any], Layer]] = field(default_factory=dict)

    def layer(self, name: str, weight: Any) -> Layer:
        """The projection of a module."""
        make = next((make for end, make in self.others.items() if name.endswith(end)), self.make)
        return make(weight)


def with_factor(reader: Any, name: str) -> Any:
    """A weight with the factor that the engine multiplies its products with, one for each stacked matrix."""
    weight, factor = reader.dequantized(name), f"{name.removesuffix('.weight')}.scale"
    if factor not in reader.tensors:
        return weight
    return weight * reader.dequantized(factor).reshape(-1, *[1] * (weight.ndim - 1))


# --- integers -----------------------------------------------------------------------------------------------------


def scaled(weight: Any, bits: int, group: int, *, asymmetric: bool = False, kind: Any = np.float16) -> Any:
    """Codes from 0, zero points and scales of groups of columns; some codes are cut off at both ends of the range.

    ``kind`` rounds scales to what the format stores.
    """
    parts = weight.reshape(len(weight), -1, group)
    top, middle = 2**bits - 1, 2 ** (bits - 1)
    low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
    size = (high - low) / top if asymmetric else np.maximum(-low, high) / middle
    scale = kind(0.95 * size + 1e-4).astype(np.float32)
    zero = np.clip(np.rint(-low / scale), 0, top) if asymmetric else np.full(scale.shape, middle)
    codes = np.clip(np.rint(parts / scale[..., None]) + zero[..., None], 0, top)
    return codes.reshape(weight.shape).astype(np.int64), zero.astype(np.int64), scale


def meant(codes: Any, zero: Any, scale: Any) -> Any:
    """(code - zero) * scale, with scales and zero points of groups."""
    n_per_group = codes.shape[1] // scale.shape[1]
    wide = [np.repeat(np.asarray(each, np.float32), n_per_group, axis=1) for each in (zero, scale)]
    return ((codes - wide[0]) * wide[1]).astype(np.float32)


def packed(codes: Any, bits: int) -> Any:
    """Codes of a row in 32-bit words, the first in the lowest bits."""
    n_per_word = 32 // bits
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % n_per_word))).astype(np.uint64)
    groups = padded.reshape(len(codes), -1, n_per_word)
    return sum(groups[..., i] << np.uint64(bits * i) for i in range(n_per_word)).astype(np.uint32).view(np.int32)


def int_quantized(weight: Any, *, bits: int = 8, asymmetric: bool = False, dtype: Any = np.float32) -> Layer:
    # scales that every type of float holds
    codes, zero, scale = scaled(weight, bits, weight.shape[1], asymmetric=asymmetric, kind=checkpoints.bf16_values)
    middle = 2 ** (bits - 1)
    tensors = {"weight": (codes - middle).astype(np.int8), "weight_scale": scale.astype(dtype)}
    if asymmetric:
        tensors["weight_zero_point"] = (zero - middle).astype(np.int8)
    return tensors, meant(codes, zero, scale)


def pack_quantized(weight: Any, *, bits: int = 4, group: int = 32, asymmetric: bool = False) -> Layer:
    size = weight.shape[1] if group < 0 else group
    codes, zero, scale = scaled(weight, bits, size, asymmetric=asymmetric, kind=checkpoints.bf16_values)
    tensors: dict[str, Any] = {
        "weight_packed": packed(codes, bits),
        "weight_scale": checkpoints.bf16(scale),
        "weight_shape": np.array(weight.shape),
    }
    if asymmetric:
        tensors["weight_zero_point"] = np.ascontiguousarray(packed(np.ascontiguousarray(zero.T), bits).T)
    return tensors, meant(codes, zero, scale)


def gptq(
    weight: Any, *, bits: int = 4, group: int = 32, symmetric: bool = True, act_order: bool = False, minus: int = 1
) -> Layer:
    n_rows, n_cols = weight.shape
    order = np.random.default_rng(n_cols).permutation(n_cols) if act_order else np.arange(n_cols)
    codes, zero, scale = scaled(weight[:, order], bits, group, asymmetric=not symmetric)
    zero = np.maximum(zero, minus)
    back = np.argsort(order)
    tensors = {
        "qweight": np.ascontiguousarray(packed(codes[:, back], bits).T),
        "qzeros": packed(np.ascontiguousarray(zero.T) - minus, bits),
        "scales": np.ascontiguousarray(scale.T).astype(np.float16),
        "g_idx": (np.arange(n_cols) // group)[back].astype(np.int32),
        "bias": np.zeros(n_rows, np.float16),  # which the tool writes where a layer has none
    }
    return tensors, meant(codes, zero, scale)[:, back]


def awq(weight: Any, *, group: int = 32) -> Layer:
    codes, zero, scale = scaled(weight, 4, group, asymmetric=True)

    def interleaved(columns: Any) -> Any:
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        return packed(columns.reshape(len(columns), -1, 8)[..., order].reshape(len(columns), -1), 4)

    tensors = {
        "qweight": interleaved(np.ascontiguousarray(codes.T)),
        "qzeros": interleaved(np.ascontiguousarray(zero.T)),
        "scales": np.ascontiguousarray(scale.T).astype(np.float16),
    }
    return tensors, meant(codes, zero, scale)


# --- floats -------------------------------------------------------------------------------------------------------


def nearest(values: Any, numbers: Any) -> Any:
    """The index of the nearest of these numbers, which are in order, for the size of each value."""
    return np.searchsorted((numbers[1:] + numbers[:-1]) / 2, np.abs(values))


def float8(weight: Any, *, block: tuple[int, int] | None = None, suffix: str = "weight_scale") -> Layer:
    """8-bit floats; ``block``: rows and columns that share a scale, None: a row."""
    n_rows, n_cols = weight.shape
    rows, cols = block or (1, n_cols)
    n_blocks = (-(-n_rows // rows), -(-n_cols // cols))
    where = np.ix_(np.arange(n_rows) // rows, np.arange(n_cols) // cols)
    sizes = np.zeros(n_blocks)
    np.maximum.at(sizes, where, np.abs(weight))
    scale = (sizes / 400 + 1e-6).astype(np.float32)
    codes = nearest(weight / scale[where], E4M3)
    means = (E4M3[codes] * np.sign(weight)).astype(np.float32) * scale[where]
    stored = checkpoints.Stored("F8_E4M3", (codes | np.where(weight < 0, 128, 0)).astype(np.uint8))
    return {"weight": stored, suffix: scale}, means


def mxfp8(weight: Any) -> Layer:
    parts = weight.reshape(len(weight), -1, 32)
    exponents = np.floor(np.log2(np.abs(parts).max(-1) + 1e-9)) - 8
    codes = nearest(parts / 2.0 ** exponents[..., None], E4M3)
    means = E4M3[codes] * np.sign(parts) * 2.0 ** exponents[..., None]
    tensors = {
        "weight": checkpoints.Stored(
            "F8_E4M3", (codes | np.where(parts < 0, 128, 0)).astype(np.uint8).reshape(weight.shape)
        ),
        "weight_scale": (exponents + 127).astype(np.uint8),
    }
    return tensors, means.reshape(weight.shape).astype(np.float32)


def nibbles(parts: Any, scale: Any) -> tuple[Any, Any]:
    """4-bit floats of groups, two to a byte with the first in the low half, and what they mean."""
    codes = nearest(parts / scale[..., None], E2M1) | np.where(parts < 0, 8, 0)
    pairs = codes.reshape(len(codes), -1, 2).astype(np.uint8)
    return pairs[..., 0] | pairs[..., 1] << 4, E2M1[codes & 7] * np.where(codes & 8, -1, 1) * scale[..., None]


def mxfp4(weight: Any) -> Layer:
    parts = weight.reshape(len(weight), -1, 32)
    exponents = np.floor(np.log2(np.abs(parts).max(-1) + 1e-9)) - 2
    stored, means = nibbles(parts, 2.0**exponents)
    tensors = {"weight_packed": stored, "weight_scale": (exponents + 127).astype(np.uint8)}
    return tensors, means.reshape(weight.shape).astype(np.float32)


def nvfp4(weight: Any, *, divisor: float | None = None) -> Layer:
    """``divisor``: the scale of the whole tensor, by which those of groups are divided; None: the usual one."""
    parts = weight.reshape(len(weight), -1, 16)
    divisor = float(np.float32(divisor or 448 * 6 / np.abs(weight).max()))
    scales = nearest(np.abs(parts).max(-1) / 6 * divisor, E4M3).clip(1)
    stored, means = nibbles(parts, E4M3[scales] / divisor)
    tensors = {
        "weight_packed": stored,
        "weight_scale": checkpoints.Stored("F8_E4M3", scales.astype(np.uint8)),
        "weight_global_scale": np.array([divisor], np.float32),
    }
    return tensors, means.reshape(weight.shape).astype(np.float32)


def of_modelopt(layer: Layer) -> Layer:
    """The tensors that NVIDIA's ModelOpt makes: other names, one scale for a tensor, which is a factor."""
    tensors, means = layer
    if "weight_global_scale" not in tensors:
        return {**tensors, "weight_scale": tensors["weight_scale"].reshape(()), "input_scale": np.float32(0.5)}, means
    factor = np.float32(1 / tensors["weight_global_scale"][0])
    scales = tensors["weight_scale"]
    codes = tensors["weight_packed"]
    signs = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1, 16)
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[signs & 7] * np.where(signs & 8, -1, 1)
    means = (numbers * (E4M3[scales.data] * factor)[..., None]).reshape(len(codes), -1).astype(np.float32)
    return {"weight": codes, "weight_scale": scales, "weight_scale_2": factor, "input_scale": np.float32(0.5)}, means


# --- what is not imported -----------------------------------------------------------------------------------------


def mlx(weight: Any) -> Layer:
    codes, zero, scale = scaled(weight, 4, 32, asymmetric=True)
    tensors = {"weight": checkpoints.Stored("U32", packed(codes, 4)), "scales": scale, "biases": -zero * scale}
    return tensors, meant(codes, zero, scale)


def bitsandbytes(weight: Any) -> Layer:
    codes, zero, scale = scaled(weight, 4, 32)
    pairs = codes.reshape(-1, 2)
    tensors = {
        "weight": (pairs[:, :1] << 4 | pairs[:, 1:]).astype(np.uint8),
        "weight.absmax": scale.reshape(-1),
        "weight.quant_map": np.linspace(-1, 1, 16, dtype=np.float32),
        "weight.quant_state.bitsandbytes__nf4": np.frombuffer(b'{"quant_type": "nf4"}', np.uint8),
    }
    return tensors, meant(codes, zero, scale)


# --- configurations -----------------------------------------------------------------------------------------------


def group_of(targets: list[str], *, bits: int, kind: str = "int", **values: Any) -> dict[str, Any]:
    """A group of compressed-tensors: ``values`` are further settings of its weights; a scale for each row if none."""
    weights = {"num_bits": bits, "type": kind, "symmetric": True, "strategy": "channel", "dynamic": False, **values}
    return {"targets": targets, "weights": weights, "input_activations": None, "output_activations": None}


def compressed(format: str, *groups: dict[str, Any], **values: Any) -> dict[str, Any]:
    """The configuration of compressed-tensors."""
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": format,
            "quantization_status": "compressed",
            "config_groups": {f"group_{i}": group for i, group in enumerate(groups)},
            "ignore": ["lm_head"],
            **values,
        }
    }


def of_linear(format: str, **values: Any) -> dict[str, Any]:
    return compressed(format, group_of(["Linear"], **values))


def other(method: str, **values: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **values}}


def gptq_config(bits: int, **values: Any) -> dict[str, Any]:
    return other("gptq", bits=bits, group_size=32, desc_act=False, sym=True, **values)


GROUPS: dict[str, Any] = {"strategy": "group", "group_size": 32}
F16, BF16 = 2.0**-11, 2.0**-8

FORMATS: dict[str, Format] = {
    "w8a8": Format("int8", of_linear("int-quantized", bits=8), int_quantized, "Q8_0"),
    "w8a8, asymmetric": Format(
        "int8, zero points",
        of_linear("int-quantized", bits=8, symmetric=False),
        lambda w: int_quantized(w, asymmetric=True),
        "F16",
        F16,
    ),
    "w4a8": Format("int4", of_linear("int-quantized", bits=4), lambda w: int_quantized(w, bits=4), "Q8_0"),
    "packed 4 bits": Format("int4", of_linear("pack-quantized", bits=4, **GROUPS), pack_quantized, "Q4_0"),
    "packed 4 bits, channels": Format(
        "int4", of_linear("pack-quantized", bits=4), lambda w: pack_quantized(w, group=-1), "Q4_0"
    ),
    "packed 4 bits, asymmetric": Format(
        "int4, zero points",
        of_linear("pack-quantized", bits=4, **GROUPS, symmetric=False),
        lambda w: pack_quantized(w, asymmetric=True),
        "F16",
        F16,
    ),
    "packed 4 bits, small groups": Format(
        "int4",
        of_linear("pack-quantized", bits=4, strategy="group", group_size=16),
        lambda w: pack_quantized(w, group=16),
        "F16",
        F16,
    ),
    "packed 8 bits": Format(
        "int8",
        of_linear("pack-quantized", bits=8, **GROUPS),
        lambda w: pack_quantized(w, bits=8),
        "Q8_0",
    ),
    "float8": Format("float8", of_linear("float-quantized", bits=8, kind="float"), float8, "BF16", BF16),
    "float8, blocks": Format(
        "float8",
        of_linear("float-quantized", bits=8, kind="float", strategy="block", block_structure=[40, 48]),
        lambda w: float8(w, block=(40, 48)),
        "BF16",
        BF16,
    ),
    "mxfp8": Format(
        "MXFP8",
        of_linear("mxfp8-quantized", bits=8, kind="float", **GROUPS, scale_dtype="torch.uint8"),
        mxfp8,
        "BF16",
    ),
    "mxfp4": Format("MXFP4", of_linear("mxfp4-pack-quantized", bits=4, kind="float", **GROUPS), mxfp4, "MXFP4"),
    "nvfp4": Format(
        "NVFP4",
        of_linear("nvfp4-pack-quantized", bits=4, kind="float", strategy="tensor_group", group_size=16),
        nvfp4,
        "NVFP4",
        F16,  # where the engine has no place for the scale of a tensor
    ),
    "mixed": Format(
        "mixed",
        compressed(
            "mixed-precision",
            {**group_of(["Linear"], bits=4, **GROUPS), "format": "pack-quantized"},
            {**group_of(["re:.*(v_proj|down_proj|fc2|w2)$"], bits=8), "format": "int-quantized"},
        ),
        pack_quantized,
        "",
        others=dict.fromkeys(("v_proj", "down_proj", "fc2", "w2"), int_quantized),
    ),
    "fp8": Format(
        "FP8",
        other("fp8", weight_block_size=[40, 48], activation_scheme="dynamic"),
        lambda w: float8(w, block=(40, 48), suffix="weight_scale_inv"),
        "BF16",
        BF16,
    ),
    "fbgemm": Format(
        "FP8", other("fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"]), float8, "BF16", BF16
    ),
    "modelopt, float8": Format(
        "FP8",
        other("modelopt", quant_algo="FP8", ignore=["lm_head"], producer={"name": "modelopt"}),
        lambda w: of_modelopt(float8(w, block=w.shape)),
        "BF16",
        BF16,
    ),
    "modelopt, nvfp4": Format(
        "NVFP4",
        other("modelopt", quant_algo="NVFP4", group_size=16, ignore=["lm_head"], kv_cache_scheme=None),
        lambda w: of_modelopt(nvfp4(w)),
        "NVFP4",
        F16,
    ),
    "gptq": Format("GPTQ", gptq_config(4), gptq, "Q4_0"),
    "gptq, asymmetric": Format("GPTQ, zero points", gptq_config(4), lambda w: gptq(w, symmetric=False), "F16", F16),
    "gptq, version 2": Format("GPTQ", gptq_config(4, checkpoint_format="gptq_v2"), lambda w: gptq(w, minus=0), "Q4_0"),
    "gptq, 8 bits": Format("GPTQ", gptq_config(8), lambda w: gptq(w, bits=8), "Q8_0"),
    "gptq, act order": Format("GPTQ, act order", gptq_config(4), lambda w: gptq(w, act_order=True), "F16", F16),
    "awq": Format("AWQ", other("awq", bits=4, group_size=32, zero_point=True, version="gemm"), awq, "F16", F16),
    "auto-round": Format(
        "AutoRound",
        other("auto-round", bits=4, group_size=32, sym=True, packing_format="auto_round:auto_gptq"),
        gptq,
        "Q4_0",
    ),
    "bitsandbytes": Format(
        "bitsandbytes",
        other("bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4"),
        bitsandbytes,
        "",
        refusal="to 4 bits with bitsandbytes",
    ),
    "mlx": Format("MLX", {"quantization": {"group_size": 32, "bits": 4}}, mlx, "", refusal="to 4 bits with MLX"),
}
IMPORTED = [name for name, format in FORMATS.items() if not format.refusal]

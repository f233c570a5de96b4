"""Quantised checkpoints: what their integers and scales mean is what the GGUF file holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import checkpoints
import models
import numpy as np
import pytest
import tokenizer_files
from checkpoint_formats import (
    FORMATS,
    GROUPS,
    IMPORTED,
    Format,
    Layer,
    compressed,
    group_of,
    int_quantized,
    of_linear,
    other,
)
from hf_llama import HFLlama
from test_convert import PROMPT, computed, require_close, types_of
from test_safetensors import require_quick_error

import pyggml
from pyggml.errors import InferError, ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.gguf import GGUFReader


def written(directory: Path, format: Format) -> tuple[HFLlama, dict[str, Any]]:
    """A Llama whose linear layers are quantised, and its tensors."""
    llama = HFLlama()
    tensors: dict[str, Any] = {}
    for name, weight in llama.weights.items():
        if "_proj" in name:
            layer, llama.weights[name] = format.layer(name.removesuffix(".weight"), weight)
            tensors |= {name.removesuffix("weight") + suffix: data for suffix, data in layer.items()}
        else:
            tensors[name] = checkpoints.bf16(weight)
    llama.config |= format.config
    llama.write_tensors(directory, tensors)
    return llama, tensors


@pytest.mark.parametrize("name", [name for name in IMPORTED if FORMATS[name].type])
def test_quantised_weights_are_carried(tmp_path: Path, name: str) -> None:
    format = FORMATS[name]
    llama, _ = written(tmp_path / "hf", format)
    report = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    types = types_of(tmp_path / "model.gguf")
    assert types["blk.1.ffn_up.weight"].name == types["blk.0.attn_q.weight"].name == format.type
    assert types["output.weight"].name == "BF16"
    with GGUFReader(tmp_path / "model.gguf") as reader:
        for ours, theirs in (("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"), ("attn_v", "self_attn.v_proj")):
            found = reader.dequantized(f"blk.1.{ours}.weight")
            expected = llama.weights[f"model.layers.1.{theirs}.weight"]
            assert (np.abs(found - expected) <= format.error * np.abs(expected)).all()
    assert any("not exact" in note for note in report.notes) == (format.error > 0)


@pytest.mark.parametrize("name", IMPORTED)
def test_quantised_models_compute_what_their_weights_mean(tmp_path: Path, name: str) -> None:
    """Also where rows are put in another order: queries and keys."""
    llama, _ = written(tmp_path / "hf", FORMATS[name])
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


LIBRARY = np.load(Path(__file__).parent / "data" / "compressed_tensors.npz")
CASES = [name.removesuffix("/config") for name in LIBRARY.files if name.endswith("/config")]


@pytest.mark.parametrize("name", CASES)
def test_computes_what_the_compressed_tensors_library_did(tmp_path: Path, name: str) -> None:
    """With the checkpoints that it wrote; tools/compare_with_compressed_tensors.py recorded both."""
    directory = tmp_path / "hf"
    directory.mkdir()
    inside = LIBRARY[f"{name}/weights"].tobytes()
    outside = {
        tensor: checkpoints.drawn(tensor, shape)
        for tensor, shape in {
            "model.embed_tokens.weight": (320, 64),
            "lm_head.weight": (320, 64),
            "model.norm.weight": (64,),
        }.items()
    }
    (directory / "model-00001-of-00002.safetensors").write_bytes(inside)
    checkpoints.write(directory / "model-00002-of-00002.safetensors", outside)
    names = json.loads(inside[8 : 8 + int.from_bytes(inside[:8], "little")])
    shards = {1: names, 2: outside}
    files = {tensor: f"model-0000{i}-of-00002.safetensors" for i, held in shards.items() for tensor in held}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    (directory / "config.json").write_text(str(LIBRARY[f"{name}/config"]))
    tokenizer_files.write_json(directory, models.byte_vocabulary())
    pyggml.convert(directory, tmp_path / "model.gguf", "f32")
    found, expected = computed(tmp_path / "model.gguf", prompt=LIBRARY["prompt"].tolist()), LIBRARY[f"{name}/logits"]
    # The library dequantises NVFP4 to bfloat16.
    require_close(found[-len(expected) :], expected, 3e-2 if name == "nvfp4" else 1e-3)


ASYMMETRIC = ["packed 4 bits, asymmetric", "gptq, asymmetric", "awq"]


@pytest.mark.parametrize("name", ASYMMETRIC)
def test_4_bits_with_zero_points_keep_their_accuracy_or_their_size(tmp_path: Path, name: str) -> None:
    """F16 multiplies with activations of 16 bits, Q5_0 holds the same integers."""
    llama, _ = written(tmp_path / "hf", FORMATS[name])
    reports = {
        outtype: pyggml.convert(tmp_path / "hf", tmp_path / f"{outtype}.gguf", outtype) for outtype in ("auto", "q5_0")
    }
    expected = llama.logits(PROMPT)
    rms = (computed(tmp_path / "auto.gguf") - expected).std() / expected.std()
    assert rms < 0.004  # of which the bfloat16 embedding and output have most
    assert any("14 tensors of integers with zero points take" in note for note in reports["auto"].notes)
    assert reports["q5_0"].types["Q5_0"] >= 14
    assert reports["q5_0"].n_bytes < 0.6 * reports["auto"].n_bytes
    with GGUFReader(tmp_path / "q5_0.gguf") as reader:
        for i in range(llama.n_layer):
            found = reader.dequantized(f"blk.{i}.ffn_down.weight")
            np.testing.assert_array_equal(found, llama.weights[f"model.layers.{i}.mlp.down_proj.weight"])


def test_scales_too_small_for_float16_keep_their_weights_as_floats(tmp_path: Path) -> None:
    def tiny(weight: Any) -> Layer:
        tensors, means = int_quantized(weight)
        factor = np.float32(2.0**-20)
        return {**tensors, "weight_scale": tensors["weight_scale"] * factor}, means * factor

    llama, _ = written(tmp_path / "hf", replace(FORMATS["w8a8"], make=tiny))
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

    written(tmp_path / "hf", replace(FORMATS["w8a8"], make=odd))
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
    llama, tensors = written(tmp_path / "hf", FORMATS[format])
    change(tensors)
    llama.write_tensors(tmp_path / "hf", tensors)
    require_quick_error(lambda: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf"), kind, message, tmp_path)


def quantization_of(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = FORMATS[name].config["quantization_config"]
    return settings


def of_linear_and(**values: Any) -> dict[str, Any]:
    return {"quantization_config": {**quantization_of("packed 4 bits"), **values}}


ROTATION = {"R3": {"type": "hadamard", "apply": [{"targets": ["Linear"], "location": "input"}]}}

CONFIGURATIONS: dict[str, tuple[Mapping[str, Any], str]] = {
    **{name: (format.config, format.refusal) for name, format in FORMATS.items() if format.refusal},
    "8 bits": (other("bitsandbytes", load_in_8bit=True), "to 8 bits with bitsandbytes"),
    "before it had a name": ({"quantization_config": {"load_in_4bit": True}}, "to 4 bits with bitsandbytes"),
    "mlx, twice": (
        {"quantization": {"group_size": 64, "bits": 3}, "quantization_config": {"group_size": 64, "bits": 3}},
        "to 3 bits with MLX, which pyggml cannot read. Download the model that they were made from",
    ),
    **{
        method: (other(method), f"with {title}, which pyggml cannot read")
        for method, title in {
            "aqlm": "AQLM",
            "bitnet": "BitNet",
            "eetq": "EETQ",
            "fbgemm_fp8": "FBGEMM FP8",
            "fp_quant": "FP-Quant",
            "higgs": "HIGGS",
            "hqq": "HQQ",
            "quanto": "Quanto",
            "spqr": "SpQR",
            "torchao": "torchao",
            "vptq": "VPTQ",
            "never heard of": "'never heard of'",
        }.items()
    },
    "no name": (other("x") | {"quantization_config": {"surprise": 1}}, "with 'None'"),
    "3 bits": (other("gptq", bits=3), "GPTQ weights have 3 bits"),
    "marlin": (other("gptq", bits=4, checkpoint_format="marlin"), "checkpoint_format is 'marlin'"),
    "gemv": (other("awq", bits=4, version="gemv"), "in the layout 'gemv'"),
    "auto-round": (
        other("auto-round", bits=4, packing_format="auto_round:gptqmodel"),
        "packing_format of AutoRound is 'auto_round:gptqmodel' with 4 bits",
    ),
    "6 bits": (of_linear("pack-quantized", bits=6), "weights of group_0 are 6-bit 'int' codes"),
    "a strategy": (of_linear("pack-quantized", bits=4, strategy="token"), "for each 'token'"),
    "a type": (of_linear("pack-quantized", bits=4, kind="complex"), "4-bit 'complex' codes"),
    "4-bit floats": (
        of_linear("nvfp4-pack-quantized", bits=4, kind="float", strategy="group", group_size=16),
        "4-bit 'float' codes with a scale for each 'group' of 16",
    ),
    "a format": (of_linear("marlin-24", bits=4), "the weights are stored as 'marlin-24'"),
    "dense": (of_linear("dense", bits=4), "the weights are stored as 'dense'"),
    "a group's format": (
        compressed("mixed-precision", {**group_of(["Linear"], bits=4), "format": "mxfp6-pack-quantized"}),
        "the weights of group_0 are stored as 'mxfp6-pack-quantized'",
    ),
    "sparse": (of_linear_and(sparsity_config={"format": "sparse-24-bitmask"}), "'sparse-24-bitmask'"),
    "rotated": (of_linear_and(transform_config={"config_groups": ROTATION}), "R3 rotates the 'input' of modules"),
    "pruned": (of_linear_and(moe_sparsity_config={"method": "prune"}), "removes experts from some layers"),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_unknown_quantisations_are_refused(tmp_path: Path, name: str) -> None:
    config, message = CONFIGURATIONS[name]
    llama = HFLlama()
    llama.config |= config
    llama.write(tmp_path / "hf")
    require_quick_error(
        lambda: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf"), UnsupportedArchitectureError, message, tmp_path
    )


# --- configurations and tensors that contradict each other --------------------------------------------------------

PLAIN = replace(FORMATS["packed 4 bits"], make=lambda weight: ({"weight": weight}, weight))
WRONG: dict[str, tuple[Format, Mapping[str, Any], str]] = {
    # what is stored, what config.json says, and the message
    **{
        f"{name} of floats": (
            PLAIN,
            FORMATS[name].config,
            rf"weight holds F32 numbers, but by config.json they are {said}",
        )
        for name, said in {
            "gptq": r"4-bit integers \(gptq\)",
            "awq": r"4-bit integers \(awq\)",
            "auto-round": r"4-bit integers \(auto-round\)",
            "fp8": r"8-bit floats with scales \(fp8\)",
            "packed 4 bits": r"4-bit integers in groups of 32 \(group_0\)",
            "w8a8": r"8-bit integers \(group_0\)",
            "nvfp4": r"4-bit floats in groups of 16 \(group_0\)",
            "float8": r"8-bit floats \(group_0\)",
        }.items()
    },
    "int8 of float8": (FORMATS["float8"], FORMATS["w8a8"].config, "weight holds F8_E4M3 numbers"),
    "float8 of int8": (FORMATS["w8a8"], FORMATS["float8"].config, "weight holds I8 numbers"),
    "other groups": (
        FORMATS["packed 4 bits"],
        of_linear("pack-quantized", bits=4, strategy="group", group_size=16),
        r"weight_scale has shape \(64, 2\); for a weight of shape \(64, 64\), \(64, 4\) was expected",
    ),
    "rows for groups": (
        FORMATS["packed 4 bits"],
        of_linear("pack-quantized", bits=4),
        r"weight_scale has shape \(64, 2\); for a weight of shape \(64, 64\), \(64, 1\) was expected",
    ),
    "other bits": (
        FORMATS["packed 8 bits"],
        FORMATS["packed 4 bits"].config,
        r"weight_packed' has shape \(64, 16\); by config.json it must be \(64, 8\)",
    ),
    "zero points": (
        FORMATS["packed 4 bits, asymmetric"],
        FORMATS["packed 4 bits"].config,
        "holds zero points other than 0, but by config.json there are none: 4-bit integers in groups of 32",
    ),
    "no zero points": (
        FORMATS["packed 4 bits"],
        FORMATS["packed 4 bits, asymmetric"].config,
        "no tensor 'model.layers.0.self_attn.q_proj.weight_zero_point'",
    ),
    "ignored": (
        FORMATS["packed 4 bits"],
        of_linear_and(ignore=["lm_head", "re:.*k_proj"]),
        "k_proj.weight_packed is stored as I32 codes with scales, but by quantization_config in config.json this "
        "module is to be ignored",
    ),
    "of no group": (
        FORMATS["packed 4 bits"],
        compressed("pack-quantized", group_of(["re:.*self_attn.*"], bits=4, **GROUPS)),
        "gate_proj.weight_packed is stored as I32 codes with scales, .* belongs to no group of config_groups",
    ),
    "the output": (FORMATS["packed 4 bits"], of_linear_and(ignore=[]), "lm_head.weight holds BF16 numbers"),
    "a group's format": (
        FORMATS["packed 8 bits"],
        compressed("mixed-precision", {**group_of(["Linear"], bits=8, **GROUPS), "format": "int-quantized"}),
        "weight_packed holds the codes, but by config.json group_0 is stored as 'int-quantized'",
    ),
    "no configuration": (
        FORMATS["gptq"],
        {},
        "qweight is stored, as GPTQ or AWQ does it, but config.json does not say",
    ),
    "no configuration for mlx": (FORMATS["mlx"], {}, "scales is stored, as MLX does it"),
    "no configuration for bitsandbytes": (FORMATS["bitsandbytes"], {}, "weight.absmax is stored, as bitsandbytes does"),
    "awq for gptq": (FORMATS["gptq"], FORMATS["awq"].config, r"qweight' has shape \(8, 64\); by config.json"),
    "gptq in other groups": (
        FORMATS["gptq"],
        other("gptq", bits=4, group_size=64),
        r"scales have shape \(2, 64\); by config.json there are 4-bit codes in groups of 64",
    ),
    "left out": (
        FORMATS["gptq"],
        other("gptq", bits=4, group_size=32, dynamic={"-:.*k_proj": {}}),
        r"k_proj.qweight is stored, but by quantization_config in config.json \(gptq\) this module is not quantised",
    ),
    "blocks": (
        FORMATS["fp8"],
        other("fp8", weight_block_size=[16, 16]),
        r"weight_scale_inv has shape \(2, 2\); for a weight of shape \(64, 64\), \(4, 4\) was expected",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_configuration_that_contradicts_the_tensors_is_refused(tmp_path: Path, name: str) -> None:
    format, config, message = WRONG[name]
    written(tmp_path / "hf", replace(format, config=config))
    kinds = (ModelLoadError, ModelNotFoundError)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(kinds, match=message) as raised:
        pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf")
    assert len(str(raised.value)) < 1000
    assert sorted(tmp_path.rglob("*")) == before

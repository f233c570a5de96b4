"""Quantisation settings of config.json: unsupported methods, and settings that contradict the tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from importer.test_quantized import quantization_of, written
from importer.test_safetensors import require_quick_error
from support.checkpoints.formats import FORMATS, GROUPS, Format, compressed, group_of, of_linear, other
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml.errors import ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError


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
        "qweight is stored, as in GPTQ or AWQ, but by config.json this module is not",
    ),
    "no configuration for mlx": (FORMATS["mlx"], {}, "scales is stored, as in MLX"),
    "no configuration for bitsandbytes": (FORMATS["bitsandbytes"], {}, "weight.absmax is stored, as in bitsandbytes"),
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


@pytest.mark.slow_except(every=2)
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


@pytest.mark.slow_except("gptq of floats", "ignored", "zero points")
@pytest.mark.parametrize("name", ["gptq of floats", "ignored", "zero points", "left out"])
def test_inspect_says_so_too(tmp_path: Path, name: str) -> None:
    """Although it reads only one of the modules that are stored alike."""
    format, config, message = WRONG[name]
    written(tmp_path / "hf", replace(format, config=config))
    report = pyggml.inspect(tmp_path / "hf")
    assert not report.plan.loads
    assert any(re.search(message, problem.message) for problem in report.problems)

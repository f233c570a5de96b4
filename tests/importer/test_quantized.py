"""Quantised checkpoints: the GGUF file holds the values that their integers and scales stand for."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from importer.test_convert import PROMPT, computed, require_close, types_of
from importer.test_safetensors import require_quick_error
from support.checkpoints import checkpoints, models, tokenizer_files
from support.checkpoints.formats import (
    FORMATS,
    IMPORTED,
    Format,
    Layer,
    compressed,
    gptq,
    group_of,
    int_quantized,
    nvfp4,
    other,
    with_factor,
)
from support.checkpoints.hf_llama import HFLlama
from support.paths import DATA

import pyggml
from pyggml.errors import InferError, ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.files.config import Config
from pyggml.files.model_files import checkpoint_at
from pyggml.gguf import GGUFReader
from pyggml.importer.plan import read_plan
from pyggml.importer.schemes.config_groups import ConfigGroups


def written(directory: Path, format: Format) -> tuple[HFLlama, dict[str, Any]]:
    """A Llama whose linear layers are quantised, and its tensors."""
    llama = HFLlama()
    return llama, write_quantized(directory, format, llama)


def write_quantized(directory: Path, format: Format, llama: HFLlama) -> dict[str, Any]:
    """Writes a Llama with quantised linear layers, which become what they mean; returns the tensors."""
    tensors: dict[str, Any] = {}
    for name, weight in llama.weights.items():
        if "_proj" in name:
            layer, llama.weights[name] = format.layer(name.removesuffix(".weight"), weight)
            tensors |= {name.removesuffix("weight") + suffix: data for suffix, data in layer.items()}
        else:
            tensors[name] = checkpoints.bf16(weight)
    llama.config |= format.config
    llama.write_tensors(directory, tensors)
    return tensors


@pytest.mark.slow_except(every=3)
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
            found = with_factor(reader, f"blk.1.{ours}.weight")
            expected = llama.weights[f"model.layers.1.{theirs}.weight"]
            assert (np.abs(found - expected) <= (format.error + 1e-7) * np.abs(expected)).all()
    assert any("not exact" in note for note in report.notes) == (format.error > 0)


@pytest.mark.slow_except("w8a8", "w8a8, asymmetric", "w4a8", "packed 4 bits")
@pytest.mark.parametrize("name", IMPORTED)
def test_quantised_models_compute_what_their_weights_mean(tmp_path: Path, name: str) -> None:
    """Also where rows are put in another order: queries and keys."""
    llama, _ = written(tmp_path / "hf", FORMATS[name])
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


LIBRARY = np.load(DATA / "compressed_tensors.npz")
CASES = [name.removesuffix("/config") for name in LIBRARY.files if name.endswith("/config")]


@pytest.mark.slow_except(every=3)
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


def plain(weight: Any) -> Layer:
    return {"weight": weight}, weight


def own(name: str, settings: Mapping[str, Any], **others: Callable[[Any], Layer]) -> Format:
    """A format whose configuration has settings for modules whose names end so."""
    config = {"quantization_config": {**quantization_of(name), **settings}}
    return replace(FORMATS[name], config=config, others=others)


def quantization_of(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = FORMATS[name].config["quantization_config"]
    return settings


ATTENTION = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), plain)
OF_MODULES = {
    "gptq": own(
        "gptq",
        {"dynamic": {"+:.*mlp.down_proj": {"bits": 8}, r".*mlp\.gate": {"group_size": 16}, "-:.*k_proj": {}}},
        down_proj=lambda weight: gptq(weight, bits=8),
        gate_proj=lambda weight: gptq(weight, group=16),
        k_proj=plain,
    ),
    "gptq, a list": own(
        "gptq",
        {"modules_in_block_to_quantize": [["self_attn.k_proj", "self_attn.v_proj"], ["mlp.up_proj"]]},
        q_proj=plain,
        o_proj=plain,
        gate_proj=plain,
        down_proj=plain,
    ),
    "awq": own("awq", {"modules_to_not_convert": ["self_attn"]}, **ATTENTION),
    "fp8": own("fp8", {"modules_to_not_convert": ["model.layers.*.mlp.up_proj", "lm_head"]}, up_proj=plain),
    "fp8, another name": own("fp8", {"ignored_layers": ["k_proj"]}, k_proj=plain),
    "auto-round": own(
        "auto-round",
        {
            "extra_config": {
                **{f"model.layers.{i}.mlp.up_proj": {"bits": 16, "data_type": "float"} for i in (0, 1)},
                **{f"model.layers.{i}.self_attn.q_proj": {"bits": 8, "group_size": 64} for i in (0, 1)},
            }
        },
        up_proj=plain,
        q_proj=lambda weight: gptq(weight, bits=8, group=64),
    ),
    "auto-round as awq": replace(
        FORMATS["awq"],
        config=other("auto-round", bits=4, group_size=32, sym=False, packing_format="auto_round:auto_awq"),
    ),
    "compressed-tensors": own(
        "packed 4 bits",
        {"ignore": ["lm_head", "re:.*self_attn", "model.layers.1.mlp.up_proj"]},
        **ATTENTION,
        **{"1.mlp.up_proj": plain},
    ),
}


@pytest.mark.slow_except("gptq", "gptq, a list", "awq")
@pytest.mark.parametrize("name", OF_MODULES)
def test_modules_have_settings_of_their_own(tmp_path: Path, name: str) -> None:
    llama, _ = written(tmp_path / "hf", OF_MODULES[name])
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


def test_names_count_with_and_without_what_stands_around_a_language_model() -> None:
    names = ("language_model.model.layers.0.up_proj", "model.layers.0.up_proj")
    module: Any = SimpleNamespace(role="linear", names=names)
    for target in (*module.names, "re:language_model.*", r"re:model\.layers", "Linear"):
        config = compressed("pack-quantized", group_of([target], bits=4))["quantization_config"]
        assert ConfigGroups(Config(Path("config.json"), config)).group_of(module) is not None
        ignoring = Config(Path("config.json"), {**config, "ignore": [target]})
        assert ConfigGroups(ignoring).group_of(module) is None


def test_what_mlx_converted_without_quantising_loads(tmp_path: Path) -> None:
    llama = HFLlama()
    tensors = {name: checkpoints.bf16(weight) for name, weight in llama.weights.items()}
    llama.write_tensors(tmp_path / "hf", tensors)
    entries = {"__metadata__": {"format": "mlx"}, **checkpoints.header(tensors)}
    (tmp_path / "hf" / "model.safetensors").write_bytes(checkpoints.file(entries, checkpoints.data(tensors)))
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


ASYMMETRIC = ["packed 4 bits, asymmetric", "gptq, asymmetric", "awq"]


@pytest.mark.slow_except("packed 4 bits, asymmetric", "gptq, asymmetric")
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


@pytest.mark.parametrize("divisor", [1.0, 256.0, 300.0])
def test_nvfp4_keeps_its_type_where_the_engine_has_a_place_for_its_scales(tmp_path: Path, divisor: float) -> None:
    """In the scales of groups if they are exact there, or in a tensor that the engine multiplies with."""
    format = replace(FORMATS["nvfp4"], make=lambda weight: nvfp4(weight, divisor=divisor))
    llama, _ = written(tmp_path / "hf", format)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    types = types_of(tmp_path / "model.gguf")
    assert types["blk.0.ffn_gate.weight"].name == "NVFP4"
    assert types["blk.0.ffn_down.weight"].name == "F16"  # 96 columns are not whole blocks
    assert ("blk.0.ffn_gate.scale" in types) == (divisor == 300)
    rms = (computed(tmp_path / "model.gguf") - llama.logits(PROMPT)).std() / llama.logits(PROMPT).std()
    assert rms < 0.03


def test_the_growth_of_zero_points_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path / "hf", FORMATS["awq"])
    with pyggml.load(tmp_path / "hf", n_ctx=64, n_threads=1):
        assert "14 tensors of integers with zero points take" in caplog.text


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


@pytest.mark.slow_except("packed 4 bits", "gptq")
@pytest.mark.parametrize("name", ["packed 4 bits", "gptq", "nvfp4"])
def test_a_plan_does_not_keep_the_scales_in_memory(tmp_path: Path, name: str) -> None:
    """Of a large model in small groups they would be gigabytes."""
    llama = HFLlama(n_embd=512, n_head=8, n_head_kv=8, head_dim=64, n_ff=512, n_layer=2)
    n_weights = sum(weight.size for key, weight in llama.weights.items() if "_proj" in key)
    write_quantized(tmp_path / "hf", FORMATS[name], llama)
    files = checkpoint_at(tmp_path / "hf")
    read_plan(files)
    tracemalloc.start()
    plan = read_plan(files)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan.tensors) > 14
    assert kept < n_weights / 32 * 4 / 2

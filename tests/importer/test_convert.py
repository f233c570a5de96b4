"""Conversion of Hugging Face directories to GGUF files with the same results; unsupported parts are refused by name."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from importer.test_safetensors import require_quick_error
from support.checkpoints import checkpoints
from support.checkpoints.hf_llama import N_VOCAB, HFLlama

import pyggml
from pyggml import Context, Model, ffi, lib
from pyggml.errors import (
    DiskFullError,
    InferError,
    InvalidParameterError,
    ModelLoadError,
    ModelNotFoundError,
    TokenizerError,
    UnsupportedArchitectureError,
)
from pyggml.files.model_files import checkpoint_at
from pyggml.gguf import GGMLType, GGUFReader
from pyggml.importer.plan import read_plan
from pyggml.units import bytes_text

PROMPT = np.random.default_rng(0).integers(0, N_VOCAB, 60).tolist()


def computed(path: Path, n_ctx: int = 128, prompt: list[int] = PROMPT) -> Any:
    """Logits as exact as the engine has them: flash attention computes with float16."""
    with (
        Model(path, device="cpu") as model,
        Context(model, n_ctx=n_ctx, n_threads=1, flash_attn="off", cache_type="f32") as context,
    ):
        context.decode(prompt, output="all")
        return context.logits()


def require_close(found: Any, expected: Any, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * expected.std()


def types_of(path: Path) -> dict[str, GGMLType]:
    with GGUFReader(path) as reader:
        return {name: tensor.type for name, tensor in reader.tensors.items()}


# --- the numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_computes_what_the_checkpoint_does(tmp_path: Path, stored: str, n_shards: int) -> None:
    llama = HFLlama()
    llama.write(tmp_path / "hf", stored=stored, n_shards=n_shards)
    report = pyggml.convert(tmp_path / "hf", tmp_path / "f32.gguf", "f32")
    require_close(computed(tmp_path / "f32.gguf"), llama.logits(PROMPT), 1e-3)
    assert report.architecture == "llama"
    assert report.n_bytes == (tmp_path / "f32.gguf").stat().st_size
    assert report.n_params == sum(weight.size for weight in llama.weights.values())
    assert report.types == {"F32": 21}


@pytest.mark.parametrize(
    "shape", [{"head_dim": 32}, {"n_head_kv": 1}, {"n_head_kv": 4}, {"n_embd": 96, "n_head": 3, "n_head_kv": 3}]
)
def test_heads_of_all_shapes(tmp_path: Path, shape: dict[str, int]) -> None:
    llama = HFLlama(**shape)
    llama.write(tmp_path / "hf")
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


@pytest.mark.parametrize("is_written", [False, True])
def test_tied_embeddings(tmp_path: Path, is_written: bool) -> None:
    llama = HFLlama()
    llama.config["tie_word_embeddings"] = True
    del llama.weights["lm_head.weight"]
    if is_written:
        llama.weights["lm_head.weight"] = llama.weights["model.embed_tokens.weight"]
    llama.write(tmp_path / "hf")
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert "output.weight" not in types_of(tmp_path / "model.gguf")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


def test_an_output_that_differs_is_not_tied(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.config["tie_word_embeddings"] = True  # but the file has an output of its own, which transformers 5 takes
    llama.write(tmp_path / "hf")
    notes = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf").notes
    assert any("computes with lm_head.weight, as transformers 5 does" in note for note in notes)
    llama.config["tie_word_embeddings"] = False
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)


def test_llama_3_rotations(tmp_path: Path) -> None:
    llama = HFLlama()
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    llama.config["rope_scaling"] = {"rope_type": "llama3", **scaling}
    llama.write(tmp_path / "hf")
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    frequencies = 10_000.0 ** -(np.arange(0, 16, 2) / 16)
    lengths = 2 * math.pi / frequencies
    expected = []
    for frequency, length in zip(frequencies, lengths, strict=True):  # as the model's own code has it
        if length < 32 / 4:
            expected.append(frequency)
        elif length > 32 / 1:
            expected.append(frequency / 8)
        else:
            smooth = (32 / length - 1) / (4 - 1)
            expected.append((1 - smooth) * frequency / 8 + smooth * frequency)
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT, np.array(expected)), 1e-3)


def test_linear_rotations(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.config["rope_scaling"] = {"type": "linear", "factor": 4.0}
    llama.write(tmp_path / "hf")
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    frequencies = 10_000.0 ** -(np.arange(0, 16, 2) / 16)
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT, frequencies / 4), 1e-3)


def test_what_meta_publishes(tmp_path: Path) -> None:
    llama = HFLlama(n_ff=160)
    names = {
        "model.embed_tokens": "tok_embeddings",
        "model.norm": "norm",
        "lm_head": "output",
        "model.layers": "layers",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn": "attention",
        "mlp": "feed_forward",
        "gate_proj": "w1",
        "down_proj": "w2",
        "up_proj": "w3",
    } | {f"{letter}_proj": f"w{letter}" for letter in "qkvo"}
    tensors: dict[str, Any] = {}
    for name, weight in llama.weights.items():
        if "q_proj" in name or "k_proj" in name:  # Meta rotates neighbours, Hugging Face halves
            weight = weight.reshape(-1, 2, 8, 64).swapaxes(1, 2).reshape(-1, 64)
        for theirs, metas in names.items():
            name = name.replace(theirs, metas)
        tensors[name] = checkpoints.bf16(weight)
    hf = llama.write(tmp_path / "hf")
    (hf / "model.safetensors").unlink()
    checkpoints.write(hf / "consolidated.safetensors", tensors)
    params = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-5, "vocab_size": -1}
    (hf / "params.json").write_text(json.dumps({**params, "multiple_of": 32, "ffn_dim_multiplier": 0.9}))
    (hf / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    pyggml.convert(hf, tmp_path / "model.gguf", "f32")
    require_close(computed(tmp_path / "model.gguf"), llama.logits(PROMPT), 1e-3)
    (hf / "config.json").unlink()  # goes with model.safetensors, and does not matter
    (hf / "params.json").write_text(json.dumps({**params, "multiple_of": 32, "use_scaled_rope": True}))
    with pytest.raises(ModelLoadError, match=r"no rope_scaling\.factor"):
        pyggml.convert(hf, tmp_path / "model.gguf", "f32")


# --- the types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_auto_keeps_every_bit(tmp_path: Path, stored: str) -> None:
    llama = HFLlama()
    llama.write(tmp_path / "hf", stored=stored)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    with GGUFReader(tmp_path / "model.gguf") as reader:
        assert reader.tensors["blk.1.ffn_up.weight"].type == GGMLType[stored]
        assert reader.tensors["output_norm.weight"].type == GGMLType.F32
        for ours, theirs in (("blk.1.ffn_up", "model.layers.1.mlp.up_proj"), ("output_norm", "model.norm")):
            np.testing.assert_array_equal(reader.dequantized(f"{ours}.weight"), llama.weights[f"{theirs}.weight"])


@pytest.mark.slow_except(every=4)
@pytest.mark.parametrize("outtype", ["q4_k_m", "q8_0", "q4_0", "q2_k", "iq4_xs", "Q5_K_S", "bf16", "f16"])
def test_mixtures_are_the_engines_own(tmp_path: Path, outtype: str) -> None:
    """One pass gives what the engine's quantiser makes of a float32 file, byte for byte."""
    llama = HFLlama(n_embd=256, head_dim=64, n_ff=512, n_layer=3)
    llama.write(tmp_path / "hf", stored="BF16")
    pyggml.convert(tmp_path / "hf", tmp_path / "f32.gguf", "f32")
    pyggml.convert(tmp_path / "hf", tmp_path / "ours.gguf", outtype)
    params = ffi.new("llama_model_quantize_params *", lib.llama_model_quantize_default_params())
    params.ftype = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{outtype.upper()}")
    params.nthread = 1
    theirs = tmp_path / "theirs.gguf"
    assert lib.llama_model_quantize(str(tmp_path / "f32.gguf").encode(), str(theirs).encode(), params) == 0
    assert types_of(tmp_path / "ours.gguf") == types_of(theirs)
    with GGUFReader(tmp_path / "ours.gguf") as ours, GGUFReader(theirs) as other:
        assert ours.metadata["general.file_type"] == other.metadata["general.file_type"]
        for name in ours.tensors:
            np.testing.assert_array_equal(ours.tensor(name), other.tensor(name))


def test_shapes_that_fit_no_block_fall_back_as_the_engine_does(tmp_path: Path) -> None:
    HFLlama().write(tmp_path / "hf")  # rows of 64 and 96
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "q4_k_m")
    types = types_of(tmp_path / "model.gguf")
    assert types["blk.0.ffn_up.weight"] == GGMLType.Q5_0
    assert types["output.weight"] == GGMLType.Q8_0


def test_types_of_single_tensors(tmp_path: Path) -> None:
    HFLlama(n_embd=256, n_ff=512, head_dim=64).write(tmp_path / "hf", stored="BF16")
    for outtype in ("auto", "f16", "q4_k_m"):
        pyggml.convert(tmp_path / "hf", tmp_path / "plain.gguf", outtype)
        pyggml.convert(
            tmp_path / "hf", tmp_path / "out.gguf", outtype, tensor_types={"ffn_down": "q8_0"}, keep=["^output.weight"]
        )
        changed = {"output.weight": GGMLType.BF16}
        changed |= {f"blk.{i}.ffn_down.weight": GGMLType.Q8_0 for i in range(2)}
        assert types_of(tmp_path / "out.gguf") == types_of(tmp_path / "plain.gguf") | changed
    for change, message in (
        ({"tensor_types": {"ffn_dwn": "q8_0"}}, "'ffn_dwn' matches no tensor"),
        ({"keep": ["norm"]}, "'norm' matches no tensor that can be quantised"),
        ({"keep": "output"}, "keep must be a list"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf", **change)
    with pytest.raises(InvalidParameterError, match="rows of 64 values, which are no whole number of Q4_K blocks"):
        pyggml.convert(HFLlama().write(tmp_path / "hf"), tmp_path / "out.gguf", tensor_types={"ffn_up": "q4_k"})


def test_threads_do_not_change_the_file(tmp_path: Path) -> None:
    HFLlama(n_embd=256, head_dim=64, n_ff=8192, n_layer=1).write(tmp_path / "hf", stored="BF16")
    for n in (1, 3):
        pyggml.convert(tmp_path / "hf", tmp_path / f"{n}.gguf", "q4_k_m", n_threads=n)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()


@pytest.mark.parametrize("outtype", ["q9_0", "", None, 4, "guessed"])
def test_unknown_types_are_refused(tmp_path: Path, outtype: Any) -> None:
    with pytest.raises(InvalidParameterError, match="q4_"):
        pyggml.convert(HFLlama().write(tmp_path / "hf"), tmp_path / "model.gguf", outtype)


def test_types_that_need_importances_are_refused(tmp_path: Path) -> None:
    HFLlama(n_embd=256, head_dim=64, n_ff=512).write(tmp_path / "hf")
    with pytest.raises(InvalidParameterError, match="importance matrix"):
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "iq2_xxs")


def test_values_beyond_a_type_are_refused(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.weights["model.layers.1.mlp.up_proj.weight"][3, 5] = 1e6
    llama.write(tmp_path / "hf")
    with pytest.raises(ModelLoadError, match=r"'blk\.1\.ffn_up\.weight' cannot be stored as F16"):
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f16")
    assert not (tmp_path / "model.gguf").exists()


# --- what config.json may say -----------------------------------------------------------------------------------


def plan_of(tmp_path: Path, llama: HFLlama) -> Any:
    return read_plan(checkpoint_at(llama.write(tmp_path / "hf"))).metadata


def test_both_spellings_of_transformers_mean_the_same(tmp_path: Path) -> None:
    old, new = HFLlama(), HFLlama()
    scaling = {"factor": 4.0, "original_max_position_embeddings": 64}
    old.config |= {"rope_scaling": {"type": "yarn", **scaling}, "rope_theta": 5e5, "torch_dtype": "float32"}
    new.config |= {"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, **scaling}, "dtype": "float32"}
    del new.config["rope_theta"]
    assert plan_of(tmp_path, old) == plan_of(tmp_path, new)
    assert plan_of(tmp_path, new)["llama.rope.freq_base"] == 5e5


def test_what_a_config_leaves_out(tmp_path: Path) -> None:
    """The first Llamas name neither key heads nor a width of heads nor a base of rotations."""
    llama = HFLlama(n_head_kv=4)
    for key in ("num_key_value_heads", "head_dim", "rope_theta", "architectures", "tie_word_embeddings"):
        del llama.config[key]
    metadata = plan_of(tmp_path, llama)
    assert metadata["llama.attention.head_count_kv"] == 4
    assert metadata["llama.attention.key_length"] == 16
    assert metadata["llama.rope.freq_base"] == 10_000


CONFIGURATIONS: dict[str, tuple[dict[str, Any], type[InferError], str]] = {
    "model type": ({"model_type": "gpt9"}, UnsupportedArchitectureError, "model_type is 'gpt9'"),
    "the engine's own way": ({"model_type": "phimoe"}, UnsupportedArchitectureError, "'phimoe' .* otherwise than"),
    "no model type": ({"model_type": None, "architectures": None}, UnsupportedArchitectureError, "model_type is None"),
    "classifier": (
        {"architectures": ["LlamaForSequenceClassification"]},
        UnsupportedArchitectureError,
        "LlamaForSequenceClassification",
    ),
    "activation": ({"hidden_act": "relu"}, UnsupportedArchitectureError, "hidden_act is 'relu'"),
    "key of no use": ({"is_causal": False}, UnsupportedArchitectureError, "is_causal is False, which changes what"),
    "code of its own": (
        {"model_type": "gpt9", "auto_map": {"AutoModelForCausalLM": "modeling_gpt9.GPT9"}},
        UnsupportedArchitectureError,
        "'gpt9' is computed by Python code that comes with the model .*modeling_gpt9",
    ),
    "rope type": (
        {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}},
        UnsupportedArchitectureError,
        "rope type is 'spiral'",
    ),
    "rope factor": (
        {"rope_scaling": {"rope_type": "linear", "factor": "2"}},
        ModelLoadError,
        "factor is '2'; a positive number",
    ),
    "no rope factor": ({"rope_scaling": {"rope_type": "linear"}}, ModelLoadError, "has no rope_scaling.factor"),
    "rope factors": (
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        ModelLoadError,
        "long_factor is .*a list of 8 numbers",
    ),
    "rope is a list": ({"rope_scaling": [1]}, ModelLoadError, "an object was expected"),
    "no width": ({"hidden_size": None}, ModelLoadError, "has no hidden_size"),
    "width of 0": ({"hidden_size": 0}, ModelLoadError, "hidden_size is 0"),
    "width as text": ({"hidden_size": "64"}, ModelLoadError, "hidden_size is '64'"),
    "absurd width": ({"hidden_size": 10**12}, ModelLoadError, "hidden_size is 1000000000000"),
    "odd heads": ({"head_dim": 15}, ModelLoadError, "head_dim is 15"),
    "heads": ({"num_key_value_heads": 3}, ModelLoadError, "4 attention heads cannot share 3"),
    "epsilon of nothing": ({"rms_norm_eps": 1e-60}, ModelLoadError, "rms_norm_eps is 1e-60"),
    "endless rotations": ({"rope_theta": 1e60}, ModelLoadError, r"rope_theta is 1e\+60"),
    "epsilon": ({"rms_norm_eps": -1e-5}, ModelLoadError, "rms_norm_eps is -1e-05"),
    "more blocks": ({"num_hidden_layers": 3}, ModelNotFoundError, r"no tensor 'model\.layers\.2\."),
    "absurdly many blocks": ({"num_hidden_layers": 10**9}, ModelNotFoundError, r"no tensor 'model\.layers\.2\."),
    "fewer blocks": ({"num_hidden_layers": 1}, UnsupportedArchitectureError, r"9 tensors .* 'model\.layers\.1\."),
    "more tokens": ({"vocab_size": 271}, ModelLoadError, r"shape \(270, 64\); by config.json it must be \(271, 64\)"),
    "biases": ({"attention_bias": True}, ModelNotFoundError, r"'model\.layers\.0\.self_attn\.q_proj\.bias'"),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_that_cannot_be_carried(tmp_path: Path, name: str) -> None:
    change, kind, message = CONFIGURATIONS[name]
    llama = HFLlama()
    llama.config = {key: value for key, value in {**llama.config, **change}.items() if value is not None}
    llama.write(tmp_path / "hf")
    require_quick_error(lambda: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf"), kind, message, tmp_path)


def test_tensors_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.weights["model.layers.1.self_attn.q_proj.bias"] = np.ones(64, np.float32)
    llama.write(tmp_path / "hf")
    with pytest.raises(UnsupportedArchitectureError, match=r"'model\.layers\.1\.self_attn\.q_proj\.bias'"):
        pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf")


def test_saved_tables_are_no_weights(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(8, np.float32)
    pyggml.convert(llama.write(tmp_path / "hf"), tmp_path / "out.gguf")


def test_biases_that_add_nothing_are_no_weights(tmp_path: Path) -> None:
    """Some quantisers write them for every layer."""
    llama = HFLlama()
    llama.weights["model.layers.1.self_attn.q_proj.bias"] = np.zeros(64, np.float32)
    pyggml.convert(llama.write(tmp_path / "hf"), tmp_path / "out.gguf")


def test_integers_are_no_weights(tmp_path: Path) -> None:
    llama = HFLlama()
    tensors: dict[str, Any] = dict(llama.weights)
    tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((96, 64), np.int8)
    llama.write_tensors(tmp_path / "hf", tensors)
    with pytest.raises(ModelLoadError, match=r"'model\.layers\.0\.mlp\.up_proj\.weight' is of type I8"):
        pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf")


def link_to_itself(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def grow(path: Path) -> None:
    """A terabyte that takes no room on the disk."""
    with path.open("ab") as file:
        file.truncate(2**40)


def replace_by_link_to_itself(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.symlink_to(directory.name)


def write_huge_model(directory: Path) -> None:
    """A Llama of 70 billion weights, which take no room on the disk, without a tokenizer."""
    n_embd, n_ff, n_layer, n_vocab = 8192, 28672, 80, 128_256
    llama = HFLlama(n_layer=1)
    llama.config |= {"hidden_size": n_embd, "intermediate_size": n_ff, "num_hidden_layers": n_layer}
    llama.config |= {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": n_vocab}
    widths = {64: n_embd, 96: n_ff, N_VOCAB: n_vocab}
    shapes: dict[str, list[int]] = {}
    for name, weight in llama.weights.items():
        for i in range(n_layer if ".layers." in name else 1):
            shapes[name.replace(".0.", f".{i}.")] = [widths.get(int(n), int(n)) for n in weight.shape]
    for i in range(n_layer):
        shapes[f"model.layers.{i}.self_attn.k_proj.weight"] = [1024, n_embd]
        shapes[f"model.layers.{i}.self_attn.v_proj.weight"] = [1024, n_embd]
    end, header = 0, {}
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    content = checkpoints.file(header, b"")
    with (directory / "model.safetensors").open("wb") as file:
        file.write(content)
        file.truncate(len(content) + end)
    (directory / "config.json").write_text(json.dumps(llama.config))
    (directory / "tokenizer.json").unlink()


def write_looping_index(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    link_to_itself(directory / "model.safetensors.index.json")


def write_many_tensors(directory: Path) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    content = checkpoints.file({f"tensor.{i}": empty for i in range(10_000)}, b"")
    (directory / "model.safetensors").write_bytes(content)


def write_many_dimensions(directory: Path) -> None:
    entry = {"dtype": "F32", "shape": [1] * 1_000_000, "data_offsets": [0, 4]}
    (directory / "model.safetensors").write_bytes(checkpoints.file({"a": entry}, bytes(4)))


def add_token(directory: Path, token_id: int) -> None:
    content = json.loads((directory / "tokenizer.json").read_text())
    content["model"]["vocab"]["<a token>"] = token_id
    (directory / "tokenizer.json").write_text(json.dumps(content))


DAMAGES: dict[str, tuple[Callable[[Path], object], type[InferError]]] = {
    "no directory": (shutil.rmtree, ModelNotFoundError),
    "no config": (lambda d: (d / "config.json").unlink(), ModelNotFoundError),
    "config is no JSON": (lambda d: (d / "config.json").write_text("{"), ModelLoadError),
    "config is a list": (lambda d: (d / "config.json").write_text("[]"), ModelLoadError),
    "config is a loop": (lambda d: link_to_itself(d / "config.json"), ModelLoadError),
    "no tokenizer": (lambda d: (d / "tokenizer.json").unlink(), TokenizerError),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), ModelNotFoundError),
    "weights cut": (lambda d: (d / "model.safetensors").write_bytes(b"\x80" + bytes(7)), ModelLoadError),
    "directory is a loop": (replace_by_link_to_itself, ModelLoadError),
    "weights are a loop": (lambda d: link_to_itself(d / "model.safetensors"), ModelLoadError),
    "index is a loop": (write_looping_index, ModelLoadError),
    "tokenizer is a loop": (lambda d: link_to_itself(d / "tokenizer.json"), TokenizerError),
    "settings are a loop": (lambda d: link_to_itself(d / "generation_config.json"), TokenizerError),
    "config is a pipe": (lambda d: make_pipe(d / "config.json"), ModelLoadError),
    "weights are a pipe": (lambda d: make_pipe(d / "model.safetensors"), ModelLoadError),
    "tokenizer is a pipe": (lambda d: make_pipe(d / "tokenizer.json"), TokenizerError),
    "config is huge": (lambda d: grow(d / "config.json"), ModelLoadError),
    "weights are huge": (lambda d: grow(d / "model.safetensors"), ModelLoadError),
    "tokenizer is huge": (lambda d: grow(d / "tokenizer.json"), TokenizerError),
    "settings are huge": (lambda d: grow(d / "tokenizer_config.json"), TokenizerError),
    "template is huge": (lambda d: grow(d / "chat_template.jinja"), TokenizerError),
    "all zeros": (lambda d: (d / "tokenizer.json").write_bytes(bytes(10_000_000)), TokenizerError),
    "huge, and no tokenizer": (write_huge_model, TokenizerError),
    "many tensors": (write_many_tensors, ModelNotFoundError),
    "many dimensions": (write_many_dimensions, ModelLoadError),
    "a token beyond the embedding": (lambda d: add_token(d, 10**6), TokenizerError),
    "a token beyond all bounds": (lambda d: add_token(d, 10**12), TokenizerError),
    "a token before the first": (lambda d: add_token(d, -1), TokenizerError),
    "two tokens with an id": (lambda d: add_token(d, 0), TokenizerError),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_broken_directories(tmp_path: Path, name: str) -> None:
    damage, kind = DAMAGES[name]
    damage(HFLlama().write(tmp_path / "hf"))
    require_quick_error(
        lambda: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf"), kind, "tokenizer|config|hf", tmp_path
    )


# --- the file ---------------------------------------------------------------------------------------------------


def test_a_full_disk_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HFLlama().write(tmp_path / "hf")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=100_000))
    require_quick_error(
        lambda: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf"), DiskFullError, "only 100 kB free", tmp_path
    )


def test_a_full_disk_names_the_largest_type_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size that it names is that of the file, and the next larger type would not fit."""
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    HFLlama(n_embd=256, n_ff=512, head_dim=64).write(tmp_path / "hf")
    sizes = {
        each: pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf", each, dry_run=True).n_bytes
        for each in ("q6_k", "q5_k_m")
    }
    free = (sizes["q6_k"] + sizes["q5_k_m"]) // 2
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(0, 0, free))
    with pytest.raises(DiskFullError) as raised:
        pyggml.load(tmp_path / "hf")
    assert f"; q5_k_m would fit, in {bytes_text(sizes['q5_k_m'])}: pyggml convert {tmp_path / 'hf'} OUT.gguf" in str(
        raised.value
    )
    with pyggml.load(tmp_path / "hf", outtype="q5_k_m", n_ctx=64) as llm:
        assert "Q5_K - Medium" in llm.model.desc
        assert Path(llm.model.path).stat().st_size == sizes["q5_k_m"]
    free = 1000
    with pytest.raises(DiskFullError, match="no smaller type of the weights would fit either"):
        pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf")


def test_a_type_is_only_for_what_is_imported(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"is a GGUF file: pyggml\.quantize\(path, out, 'q4_k_m'\)"):
        pyggml.load(outtype="Q4_K_M")
    with pytest.raises(InvalidParameterError, match="did you mean q4_k_m"):
        pyggml.load(HFLlama().write(tmp_path / "hf"), outtype="q4_k")


def test_progress_is_told_and_can_stop(tmp_path: Path) -> None:
    HFLlama().write(tmp_path / "hf")
    told: list[float] = []
    pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf", progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    (tmp_path / "out.gguf").unlink()
    with pytest.raises(ModelLoadError, match="stopped by its progress callback"):
        pyggml.convert(tmp_path / "hf", tmp_path / "out.gguf", progress=lambda part: part < 0.5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"]


def test_killed_it_leaves_no_model(tmp_path: Path) -> None:
    HFLlama().write(tmp_path / "hf")
    code = (
        "import sys, time, pyggml\n"
        "def wait(part):\n    print(part, flush=True)\n    time.sleep(60)\n"
        "pyggml.convert(sys.argv[1], sys.argv[2], progress=wait)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "hf"), str(tmp_path / "out.gguf")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert not list(tmp_path.glob("*.gguf"))


# --- loading a directory ----------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_directory_just_loads(tmp_path: Path, cache: Path) -> None:
    llama = HFLlama()
    llama.write(tmp_path / "hf", stored="BF16", n_shards=2)
    told: list[float] = []
    for is_cached in (False, True):
        told.clear()
        with pyggml.load(tmp_path / "hf", n_threads=1, n_parallel=1, progress=told.append) as llm:
            assert llm.tokenize("the", add_special=False) == [260]
            assert llm.n_ctx == 256
            assert (told.count(1) == 2) != is_cached
            same = llm.logits(PROMPT).argmax(-1) == llama.logits(PROMPT).argmax(-1)
            assert same.mean() > 0.9  # bfloat16 and float16 along the way
    assert len(list(cache.iterdir())) == 1


@pytest.mark.usefixtures("cache")
def test_every_end_that_the_directory_names_ends(tmp_path: Path) -> None:
    """GGUF has room for three; lists are longer in some ``generation_config.json``, and name ordinary tokens too."""
    ends = [2, 99, 100, 101]
    HFLlama().write(tmp_path / "hf")
    (tmp_path / "hf" / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with pyggml.load(tmp_path / "hf", n_threads=1) as llm:
        assert llm.stop_tokens.keys() >= set(ends)
        for token_id in ends:
            assert llm.generate("a", logit_bias={token_id: 1e6}, max_tokens=5).stop_reason == token_id


def test_the_cache_notices_changes(tmp_path: Path, cache: Path) -> None:
    for seed in (0, 1):
        llama = HFLlama(seed=seed)
        llama.write(tmp_path / "hf")
        with pyggml.load(tmp_path / "hf", n_threads=1, n_parallel=1, cache_type="f32") as llm:
            require_close(llm.logits(PROMPT), llama.logits(PROMPT), 2e-2)
    assert len(pyggml.importer.cache_entries()) == 2
    assert pyggml.importer.clear_cache() > 0
    assert not list(cache.iterdir())


def test_the_cache_has_a_limit(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYGGML_CACHE_GB", "0.0000001")
    for name in ("a", "b"):
        HFLlama().write(tmp_path / name)
        pyggml.load(tmp_path / name).close()
        time.sleep(0.01)
    assert [path.name[0] for path in cache.iterdir()] == ["b"]


def test_a_broken_directory_leaves_nothing_in_the_cache(tmp_path: Path, cache: Path) -> None:
    llama = HFLlama()
    llama.write(tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError):
        pyggml.load(tmp_path / "hf")
    assert not cache.exists()


def test_a_window_the_engine_has_not_limits_the_context(tmp_path: Path, cache: Path) -> None:
    llama = HFLlama()
    llama.config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 100}
    llama.write(tmp_path / "hf")
    with pyggml.load(tmp_path / "hf", n_threads=1) as llm:
        assert llm.n_ctx == 100
    with pytest.raises(InvalidParameterError, match="at most 100 for this model"):
        pyggml.load(tmp_path / "hf", n_ctx=101)
    assert len(list(cache.iterdir())) == 1


def test_a_family_opens_its_directory(tmp_path: Path, cache: Path) -> None:
    llama = HFLlama()
    (tmp_path / "smollm2").mkdir()
    llama.write(tmp_path / "smollm2")
    with pyggml.Inference.cpu().use_auto(tmp_path / "smollm2") as llm:
        assert llm.generate("a", max_tokens=1).prompt_tokens > 0
    assert json.loads((tmp_path / "smollm2" / "config.json").read_text())["model_type"] == "llama"
    assert list(cache.iterdir())


def test_where_the_engine_would_cut_otherwise_the_own_tokenizer_encodes(tmp_path: Path, cache: Path) -> None:
    path = HFLlama().write(tmp_path / "hf") / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": {"type": "NFC"}}))
    report = pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    assert any("carries the model's own tokenizer" in note for note in report.notes)
    for source in ("hf", "hf", "model.gguf"):  # made, found in the cache, and converted
        with pyggml.load(tmp_path / source, n_threads=1) as llm:
            composed, combining = (llm.tokenize(text, add_special=False) for text in ("\u00e9", "e\u0301"))
            assert composed == combining
    assert len(list(cache.iterdir())) == 1

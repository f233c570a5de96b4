"""Tensors of published checkpoints: other names, additional tensors, and the formats of quantisers.

Each form loads like the plain one, or an error names it and the alternative. FORMS says where a form is in use.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import checkpoints, formats, published, published_checkpoints

import pyggml

#: Changes a configuration and tensors in place, and returns the tensors of the plain form.
Change = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]

LLAMA, TIED_LLAMA, QWEN3 = "llama-3.1-8b-instruct", "llama-3.2-1b-instruct", "qwen3-0.6b"
MINISTRAL, MISTRAL_SMALL = "ministral-3-3b-reasoning-2512", "mistral-small-3.1-24b-instruct-2503"
GPT_OSS = "gpt-oss-20b-bf16"
PROMPT = list(range(5, 45))


@dataclass(frozen=True)
class Form:
    """A form of a published configuration's tensors.

    Attributes:
        name: the configuration.
        change: makes the form.
        refusal: what the message says; "" if it loads.
    """

    name: str
    change: Change
    refusal: str = ""


def renamed(*pairs: tuple[str, str]) -> Change:
    """Other prefixes of names, of which the first that fits counts."""

    def change(_config: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
        plain = dict(tensors)
        tensors.clear()
        for name, tensor in plain.items():
            old, new = next((pair for pair in pairs if name.startswith(pair[0])), ("", ""))
            tensors[new + name.removeprefix(old)] = tensor
        return plain

    return change


def adjacent(*names: str, shape: tuple[int, ...] = (1,)) -> Change:
    """Further tensors."""

    def change(_config: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
        plain = dict(tensors)
        tensors.update({name: np.ones(shape, np.float32) for name in names})
        return plain

    return change


def only_the_output(_config: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Weights that two layers share, under the second layer's name."""
    plain = dict(tensors)
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    return plain


def float8(
    settings: dict[str, Any],
    scale: str = "weight_scale_inv",
    shape: tuple[int, ...] = (),
    activations: str = "",
    section: str = "",
) -> Change:
    """Projections as 8-bit floats.

    Args:
        settings: the ``quantization_config``.
        scale: the tensor with a weight's scale.
        shape: its shape.
        activations: the tensor with the scale of activations.
        section: the object in the configuration that gets the settings.
    """

    def change(config: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
        (config[section] if section else config)["quantization_config"] = settings
        plain = dict(tensors)
        for name, tensor in plain.items():
            if not name.endswith("_proj.weight") or "vision" in name:
                continue
            module = name.removesuffix("weight")
            weight = checkpoints.widened(tensor)
            layer, plain[name] = formats.float8(weight, block=weight.shape)
            tensors[name] = layer["weight"]
            tensors[module + scale] = np.reshape(layer["weight_scale"], shape)
            if activations:
                tensors[module + activations] = np.full(shape, 0.5, np.float32)
        return plain

    return change


def of_mlx(module: str, new: str, names: dict[str, str]) -> Change:
    """Experts as stacks, gate and up apart.

    Args:
        module: the list of experts.
        new: its name in the form.
        names: projection -> its name in the form.
    """

    def change(_config: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
        plain = dict(tensors)
        for name in plain:
            block, _, expert = name.partition(f".{module}.")
            number, _, projection = expert.removesuffix(".weight").partition(".")
            if number != "0":
                continue
            each = [n for n in plain if n.startswith(f"{block}.{module}.") and n.endswith(f".{projection}.weight")]
            stack = np.stack([tensors.pop(f"{block}.{module}.{i}.{projection}.weight").data for i in range(len(each))])
            tensors[f"{block}.{new}.{names[projection]}.weight"] = checkpoints.Stored("BF16", stack)
        return plain

    return change


def without_output(config: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """A model for embeddings, whose plain form has the embedding as its output layer."""
    plain = dict(tensors, **{"lm_head.weight": tensors["model.embed_tokens.weight"]})
    renamed(("model.", ""))(config, tensors)
    del tensors["lm_head.weight"]
    return plain


def stored_as(ends: tuple[str, ...], dtype: str, config: dict[str, Any] | None = None) -> Change:
    """Stacks of experts in a form that is not imported: zeros under their names with other ends."""

    def change(values: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
        plain = dict(tensors)
        values.update(config or {})
        for name, tensor in plain.items():
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                del tensors[name]
                zeros = np.zeros(tensor.data.shape, np.uint8)
                tensors.update({name + end: checkpoints.Stored(dtype, zeros) for end in ends})
        return plain

    return change


_INSIDE = "language_model.model."
_SAME = {name: name for name in ("gate_proj", "up_proj", "down_proj")}
_MINISTRAL_FP8 = {
    "activation_scheme": "static",
    "dequantize": False,
    "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
    "quant_method": "fp8",
    "weight_block_size": None,
}
_AUTO_FP8 = {"activation_scheme": "static", "ignored_layers": ["lm_head"], "quant_method": "fp8"}
#: nvidia's models
_MODELOPT = {
    "quant_method": "modelopt",
    "quant_algo": "FP8",
    "config_groups": {
        "group_0": {
            "input_activations": {"dynamic": False, "num_bits": 8, "type": "float"},
            "weights": {"dynamic": False, "num_bits": 8, "type": "float"},
            "targets": ["Linear"],
        }
    },
    "ignore": ["lm_head"],
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt", "version": "0.33.0"},
}
_STACKED_FP8 = {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.*.self_attn"]}}

FORMS = {
    # Qwen3-Embedding and whatever else sentence-transformers saved
    "no output layer": Form(QWEN3, renamed(("model.", ""))),
    "no output layer, not tied": Form("qwen3-8b", without_output),
    "no prefix": Form(LLAMA, renamed(("model.", ""))),
    "no prefix: Falcon": Form("falcon-7b-instruct", renamed(("transformer.", ""))),
    # safetensors.torch.save_model keeps one of two names of a shared weight
    "embedding as output": Form(TIED_LLAMA, only_the_output),
    "multimodal, transformers 5": Form(
        MISTRAL_SMALL, renamed((_INSIDE, "model.language_model."), ("language_model.", ""), ("", "model."))
    ),
    "multimodal, no prefix": Form(MISTRAL_SMALL, renamed((_INSIDE, "language_model."))),
    "multimodal, text alone": Form("gemma-3-1b-it", renamed(("model.", _INSIDE))),
    "MLX, Mixtral": Form(
        "mixtral-8x7b-v0.1",
        of_mlx(
            "block_sparse_moe.experts",
            "block_sparse_moe.switch_mlp",
            {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"},
        ),
    ),
    "MLX, Qwen3": Form("qwen3-30b-a3b", of_mlx("mlp.experts", "mlp.switch_mlp", _SAME)),
    "MLX, Qwen1.5": Form("qwen1.5-moe-a2.7b-chat", of_mlx("mlp.experts", "mlp.switch_mlp", _SAME)),
    # mistralai/Ministral-3-*-Instruct-2512 and Devstral Small 2
    "Ministral 3, FP8": Form(MINISTRAL, float8(_MINISTRAL_FP8, activations="activation_scale")),
    "settings in the text section": Form(MINISTRAL, float8(_MINISTRAL_FP8, section="text_config")),
    # neuralmagic's models before compressed-tensors
    "AutoFP8": Form(LLAMA, float8(_AUTO_FP8, "weight_scale", (1,), "input_scale")),
    "first AutoFP8": Form(LLAMA, float8(_AUTO_FP8, "weight_scale", (1,), "act_scale")),
    "ModelOpt": Form(LLAMA, float8(_MODELOPT, "weight_scale", (), "input_scale")),
    "ModelOpt of another kind": Form(
        LLAMA,
        float8({**_MODELOPT, "quant_algo": "W4A16_AWQ"}, "weight_scale"),
        "quant_algo is 'W4A16_AWQ'; of ModelOpt's, pyggml imports FP8,",
    ),
    "stacks of FP8": Form(
        GPT_OSS,
        stored_as(("", "_scale_inv"), "F8_E4M3", _STACKED_FP8),
        "gate_up_proj_scale_inv is stored: experts stacked as 8-bit floats",
    ),
    "MXFP4 without its settings": Form(
        GPT_OSS, stored_as(("_blocks", "_scales"), "U8"), "gate_up_proj_blocks is stored, as in gpt-oss's MXFP4"
    ),
    "scales of the cache": Form(
        LLAMA,
        adjacent(
            *(f"model.layers.0.self_attn.{name}_scale" for name in ("k", "v", "q", "kv", "k_proj.k", "k_proj.output")),
            *(f"model.layers.0.self_attn.{name}_zero_point" for name in "kvq"),
            "model.layers.0.self_attn.prob_output_scale",
        ),
    ),
    "a draft of further tokens": Form("qwen3-next-80b-a3b-instruct", adjacent("mtp.fc.weight", "mtp.norm.weight")),
    "tables of rotations": Form(LLAMA, adjacent("model.layers.0.self_attn.rotary_emb.inv_freq", shape=(8,))),
    "a value head": Form(QWEN3, adjacent("v_head.summary.weight"), "do not have, such as 'v_head.summary.weight'"),
    "the same twice": Form(LLAMA, adjacent("norm.weight", shape=(64,)), "do not have, such as 'norm.weight'"),
}


@pytest.mark.slow_except(every=4)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_loads_like_the_plain_form_or_says_why_not(tmp_path: Path, form: Form) -> None:
    config, tensors = published.config_of(form.name), published.tensors_of(form.name)
    plain_config = published.config_of(form.name)
    plain = form.change(config, tensors)
    assert (config, list(tensors)) != (plain_config, list(plain))
    hf = published_checkpoints.write(tmp_path / "form", config, tensors)
    if form.refusal:
        with pytest.raises(pyggml.InferError) as caught:
            pyggml.convert(hf, tmp_path / "form.gguf", "f32")
        assert form.refusal in str(caught.value)
        return
    pyggml.convert(hf, tmp_path / "form.gguf", "f32")
    pyggml.convert(published_checkpoints.write(tmp_path / "plain", plain_config, plain), tmp_path / "plain.gguf", "f32")
    found, expected = (published_checkpoints.logits_of(tmp_path / f"{each}.gguf", PROMPT) for each in ("form", "plain"))
    assert (found == expected).all()


def _other(where: dict[str, str], name: str) -> str:
    return next(file for file in where.values() if file != where[name])


def test_settings_in_a_file_of_their_own(tmp_path: Path) -> None:
    config, tensors = published.config_of(LLAMA), published.tensors_of(LLAMA)
    plain = float8(_MODELOPT, "weight_scale", (), "input_scale")(config, tensors)
    del config["quantization_config"]
    hf = published_checkpoints.write(tmp_path / "hf", config, tensors)
    with pytest.raises(pyggml.ModelLoadError, match=r"by config\.json this module is not"):
        pyggml.convert(hf, tmp_path / "form.gguf", "f32")
    settings = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    content = {"producer": {"name": "modelopt", "version": "0.15.0"}, "quantization": settings}
    (hf / "hf_quant_config.json").write_text(json.dumps(content))
    pyggml.convert(hf, tmp_path / "form.gguf", "f32")
    published_checkpoints.write(tmp_path / "plain", published.config_of(LLAMA), plain)
    pyggml.convert(tmp_path / "plain", tmp_path / "plain.gguf", "f32")
    found, expected = (published_checkpoints.logits_of(tmp_path / f"{each}.gguf", PROMPT) for each in ("form", "plain"))
    assert (found == expected).all()


#: What an index says otherwise than its files -> what the message says, "" if it loads as in transformers.
INDICES: dict[str, tuple[str, Callable[[dict[str, str]], object], str]] = {
    "lacks a tensor": (LLAMA, lambda where: where.pop("model.norm.weight"), ""),
    "has another file": (
        LLAMA,
        lambda where: where.update({"model.norm.weight": _other(where, "model.norm.weight")}),
        "",
    ),
    "lists shared weights twice": (
        TIED_LLAMA,
        lambda where: where.update({"lm_head.weight": where["model.embed_tokens.weight"]}),
        "",
    ),
    "lists what is needed and not there": (
        LLAMA,
        lambda where: where.update({"model.layers.0.input_layernorm.weight": where["model.norm.weight"]}),
        r"lists tensor 'model.layers.0.input_layernorm.weight' in model-\d+-of-\d+.safetensors, which does not have it",
    ),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_only_names_files(tmp_path: Path, name: str) -> None:
    model, change, refusal = INDICES[name]
    hf = published_checkpoints.write(tmp_path / "hf", published.config_of(model), published.tensors_of(model))
    pyggml.convert(hf, tmp_path / "plain.gguf", "f32")
    (hf / "model.safetensors").unlink()
    tensors = published.tensors_of(model)
    if refusal:
        del tensors["model.layers.0.input_layernorm.weight"]
    checkpoints.write_shards(hf, tensors, 2)
    index = hf / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    change(content["weight_map"])
    assert json.dumps(content) != index.read_text()
    index.write_text(json.dumps(content))
    if refusal:
        with pytest.raises(pyggml.ModelNotFoundError, match=refusal):
            pyggml.convert(hf, tmp_path / "sharded.gguf", "f32")
        return
    pyggml.convert(hf, tmp_path / "sharded.gguf", "f32")
    found, expected = (
        published_checkpoints.logits_of(tmp_path / f"{each}.gguf", PROMPT) for each in ("sharded", "plain")
    )
    assert (found == expected).all()


LLAMA_FILES = ("config.json", "tokenizer.json")

#: Files of repositories that cannot be loaded -> what the message says.
FILES = {
    "an adapter": (("adapter_config.json", "adapter_model.safetensors"), r"is an adapter .* llm\.load_adapter"),
    "an adapter with a configuration": (
        (*LLAMA_FILES, "adapter_config.json", "adapter_model.safetensors"),
        "is an adapter",
    ),
    "one shard": ((*LLAMA_FILES, "model-00001-of-00001.safetensors"), "rename it to model.safetensors"),
    "AutoGPTQ's name": ((*LLAMA_FILES, "gptq_model-4bit-128g.safetensors"), "rename it to model.safetensors"),
    "pickles": ((*LLAMA_FILES, "pytorch_model.bin"), "save them as safetensors"),
}


@pytest.mark.parametrize("name", FILES)
def test_other_files_are_named_with_the_way_out(tmp_path: Path, name: str) -> None:
    names, message = FILES[name]
    published_checkpoints.write(tmp_path / "llama", published.config_of(LLAMA), published.tensors_of(LLAMA))
    (tmp_path / "hf").mkdir()
    for each in names:
        source = tmp_path / "llama" / each
        (tmp_path / "hf" / each).write_bytes(source.read_bytes() if source.exists() else b"{}")
    convert: Callable[[Path], object] = partial(pyggml.convert, out=tmp_path / "model.gguf")
    for load in (pyggml.load,) if "adapter" in name else (pyggml.load, convert):
        with pytest.raises(pyggml.InferError, match=message):
            load(tmp_path / "hf")


def test_a_model_for_embeddings_says_so(tmp_path: Path) -> None:
    config, tensors = published.config_of("qwen3-8b"), published.tensors_of("qwen3-8b")
    without_output(config, tensors)
    hf = published_checkpoints.write(tmp_path / "hf", config, tensors)
    notes = pyggml.convert(hf, tmp_path / "model.gguf").notes
    assert any("the checkpoint has no output layer" in note for note in notes)
    with pyggml.load(hf, device="cpu", n_ctx=64) as llm:
        assert np.isfinite(llm.embed("a")).all()


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("name", "message"),
    [("tekken.json", "use a version with a tokenizer.json"), ("tokenizer.model.v3", "rename it to tokenizer.model")],
)
def test_mistrals_tokenizers_are_named(tmp_path: Path, name: str, message: str) -> None:
    hf = published_checkpoints.write(tmp_path / "hf", published.config_of(LLAMA), published.tensors_of(LLAMA))
    (hf / "tokenizer.json").rename(hf / name)
    with pytest.raises(pyggml.TokenizerNotFoundError, match=f"{name} is .*{message}"):
        pyggml.load(hf)

"""inspect() of Hugging Face directories: the result of importing them, or the reason why they cannot be imported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from importer import test_quantized as quantized
from importer import test_references as references
from support.checkpoints import family_models, models, tokenizer_files
from support.checkpoints.formats import FORMATS, IMPORTED
from support.checkpoints.hf_llama import N_VOCAB, HFLlama

import pyggml
from pyggml import ModelReport
from pyggml.errors import ModelLoadError, ModelNotFoundError
from pyggml.importer.vocabulary import read_vocabulary


def codes(report: ModelReport) -> list[str]:
    return [problem.code for problem in report.problems]


def require_same_as_imported(directory: Path, report: ModelReport) -> None:
    """A report tells of a directory what one on the imported file does."""
    conversion = pyggml.convert(directory, directory.parent / "model.gguf")
    imported = pyggml.inspect(directory.parent / "model.gguf")
    assert (report.problems, imported.problems) == ((), ())
    assert report.n_params == conversion.n_params == imported.n_params
    for name in ("architecture", "family", "n_layer", "n_embd", "n_head", "n_head_kv", "head_dim", "n_ff", "n_expert"):
        assert getattr(report, name) == getattr(imported, name), name
    for name in ("n_ctx_train", "sliding_window", "per_layer", "tied_embeddings"):
        assert getattr(report, name) == getattr(imported, name), name
    assert (report.rope.base, report.rope.n_dims) == (imported.rope.base, imported.rope.n_dims)
    assert (report.plan.n_ctx, report.plan.n_ctx_limit) == (imported.plan.n_ctx, imported.plan.n_ctx_limit)
    assert report.plan.import_type == max(imported.types, key=lambda share: share.n_params).name
    assert report.vocabulary is not None
    assert imported.vocabulary is not None
    assert report.vocabulary.stop_tokens == imported.vocabulary.stop_tokens
    assert report.vocabulary.n_tokens == imported.vocabulary.n_tokens
    assert report.vocabulary.type == imported.vocabulary.type
    assert report.vocabulary.pre_tokenizer == imported.vocabulary.pre_tokenizer
    for part in ("bos", "eos", "eot"):
        assert report.vocabulary.special.get(part) == imported.vocabulary.special.get(part), part


@pytest.mark.slow_except(every=15)
@pytest.mark.parametrize("name", references.CASES)
def test_every_architecture_is_told_as_it_is_imported(tmp_path: Path, name: str) -> None:
    references.write(tmp_path / "hf", name)
    require_same_as_imported(tmp_path / "hf", pyggml.inspect(tmp_path / "hf"))


STORED = {
    "w8a8": ("compressed-tensors 8 bits", 8, None),
    "mixed": ("compressed-tensors", None, None),
    "fp8": ("fp8 8 bits in groups of 48", 8, 48),
    "gptq": ("gptq 4 bits in groups of 32", 4, 32),
    "awq": ("awq 4 bits in groups of 32", 4, 32),
}


@pytest.mark.slow_except(every=4)
@pytest.mark.parametrize("name", IMPORTED)
def test_quantised_checkpoints(tmp_path: Path, name: str) -> None:
    format = FORMATS[name]
    quantized.written(tmp_path / "hf", format)
    report = pyggml.inspect(tmp_path / "hf")
    require_same_as_imported(tmp_path / "hf", report)
    assert report.plan.import_type in (format.type, "BF16") or name == "mixed"  # BF16 is what the embedding is
    assert report.quantization.method == format.config["quantization_config"]["quant_method"]
    if name in STORED:
        found = report.quantization
        assert (found.name, found.bits, found.group_size) == STORED[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["llama-spm", "phi-3", "gpt-2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama-bpe", "qwen2"))],
)
def test_real_vocabularies(tmp_path: Path, name: str) -> None:
    vocabulary = models.real_vocabulary(name)
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(tokens, tuple)
    eos = vocabulary.get("tokenizer.ggml.eos_token_id")
    assert isinstance(eos, int)
    llama = HFLlama()
    llama.config |= {"vocab_size": len(tokens), "eos_token_id": eos, "tie_word_embeddings": True}
    llama.weights["model.embed_tokens.weight"] = np.zeros((len(tokens), 64), np.float32)
    del llama.weights["lm_head.weight"]
    llama.write(tmp_path / "hf", stored="BF16")
    tokenizer_files.write_json(tmp_path / "hf", vocabulary)
    require_same_as_imported(tmp_path / "hf", pyggml.inspect(tmp_path / "hf"))


def test_what_there_is_to_say(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.config |= {"_name_or_path": "someone/Llama-3.2-1B", "rope_theta": 500_000.0}
    llama.config["rope_scaling"] = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    llama.write(tmp_path / "hf", stored="BF16", n_shards=2)
    (tmp_path / "hf" / "chat_template.jinja").write_text(models.BYTE_CHAT_TEMPLATE)
    report = pyggml.inspect(tmp_path / "hf")
    assert report.problems == ()
    assert (report.format, report.name, report.quantization.name) == ("huggingface", "Llama-3.2-1B", "BF16")
    assert [file.path.name for file in report.files] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert (report.rope.scaling, report.rope.factor, report.rope.n_ctx_original) == ("llama3", 32.0, 64)
    assert report.chat_template is not None
    assert report.chat_template.source == models.BYTE_CHAT_TEMPLATE
    assert {share.name for share in report.parts} == {"embedding", "output", "norms", "attention", "feed-forward"}
    assert [layer.types for layer in report.layers] == [{"BF16": report.layers[0].n_bytes}] * 2
    assert report.plan.imports
    assert json.loads(json.dumps(report.to_dict()))["plan"]["import_type"] == "BF16"
    assert "imported as  BF16" in str(report)


def test_the_end_of_one_message_of_a_turn_is_no_end(tmp_path: Path) -> None:
    """An answer of gpt-oss has several messages, each with the token at its end that ends the turn of a Phi-3."""
    for others, is_end in (((), True), (("<|return|>",), False)):
        tokenizer_files.write_json(tmp_path, family_models.small_vocabulary("<|endoftext|>", "<|end|>", *others))
        metadata = read_vocabulary(tmp_path, {"vocab_size": 270, "eos_token_id": 257}).metadata
        assert ("tokenizer.ggml.eot_token_id" in metadata) is is_end


def test_every_end_that_is_named_stops(tmp_path: Path) -> None:
    directory = HFLlama().write(tmp_path / "hf")
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [models.EOS, models.THE]}))
    report = pyggml.inspect(directory)
    assert report.vocabulary is not None
    assert report.vocabulary.stop_tokens.keys() == {models.EOS, models.EOT, models.THE}
    require_same_as_imported(directory, report)


def test_a_window_the_engine_has_not_limits_the_context(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 32}
    report = pyggml.inspect(llama.write(tmp_path / "hf"))
    assert report.plan.n_ctx_limit == 32


# --- broken directories -----------------------------------------------------------------------------------------

Change = Callable[[HFLlama], object]

CONFIGURATIONS: dict[str, tuple[dict[str, Any], list[str], str]] = {
    # what is set, what is found, and what the first message names
    "model type": ({"model_type": "gpt9"}, ["unknown-architecture"], "gpt9"),
    "quantisation": ({"quantization_config": {"quant_method": "twist"}}, ["unknown-quantization"], "twist"),
    "activation": ({"hidden_act": "relu"}, ["unsupported-setting"], "hidden_act is 'relu'"),
    "key of no use": ({"is_causal": False}, ["unsupported-setting"], "is_causal"),
    "rope type": ({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, ["unsupported-setting"], "spiral"),
    "no width": ({"hidden_size": None}, ["broken-metadata"], "hidden_size"),
    "more blocks": ({"num_hidden_layers": 3}, ["missing-tensor"], "and 8 more like this"),
    "absurdly many blocks": ({"num_hidden_layers": 10**9}, ["missing-tensor"], "model.layers.2."),
    "fewer blocks": ({"num_hidden_layers": 1}, ["unknown-tensor"], "9 tensors"),
    "another width": ({"hidden_size": 4096, "head_dim": 16}, ["wrong-shape"], "and 20 more like this"),
    "wrong feed-forward": ({"intermediate_size": 128}, ["wrong-shape"], "and 5 more like this"),
    "biases": ({"attention_bias": True}, ["missing-tensor"], "q_proj.bias"),
    "more tokens": ({"vocab_size": N_VOCAB + 1}, ["wrong-shape"], str(N_VOCAB)),
    "fewer tokens than the tokenizer": (
        {"vocab_size": 200},
        ["wrong-shape", "tokenizer-disagrees"],
        "(200, 64)",
    ),
    "no end": ({"eos_token_id": None}, ["no-stop-token"], "eos_token"),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_that_are_wrong(tmp_path: Path, name: str) -> None:
    change, expected, message = CONFIGURATIONS[name]
    llama = HFLlama()
    llama.config = {key: value for key, value in {**llama.config, **change}.items() if value is not None}
    directory = llama.write(tmp_path / "hf")
    report = pyggml.inspect(directory)
    assert codes(report) == expected
    assert message in report.problems[0].message
    assert not report.plan.loads
    with pytest.raises(pyggml.InferError):
        pyggml.convert(directory, tmp_path / "out.gguf")


def cut(directory: Path) -> None:
    path = directory / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)


def change_tokenizer(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def edit(directory: Path) -> None:
        content = json.loads((directory / "tokenizer.json").read_text())
        change(content)
        (directory / "tokenizer.json").write_text(json.dumps(content))

    return edit


def template(text: str) -> Callable[[Path], object]:
    return lambda directory: (directory / "chat_template.jinja").write_text(text)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "missing-file", "model.safetensors"),
    "weights cut": (cut, "truncated", "download it again"),
    "weights are text": (lambda d: (d / "model.safetensors").write_text("hello world"), "broken-file", "safetensors"),
    "no tokenizer": (lambda d: (d / "tokenizer.json").unlink(), "no-tokenizer", "tokenizer.json"),
    "tokenizer is no JSON": (lambda d: (d / "tokenizer.json").write_text("{"), "broken-vocabulary", "not JSON"),
    "an id twice": (
        change_tokenizer(lambda t: t["model"]["vocab"].update({"the": t["model"]["vocab"]["th"]})),
        "broken-vocabulary",
        "without a gap",
    ),
    "merges of nothing": (
        change_tokenizer(lambda t: t["model"]["merges"].append(["th", "ere"])),
        "broken-vocabulary",
        "'ere'",
    ),
    "added token with another's id": (
        change_tokenizer(lambda t: t["added_tokens"][0].update(id=5)),
        "broken-vocabulary",
        "id",
    ),
    "added tokens beyond the embedding": (
        change_tokenizer(
            lambda t: t["added_tokens"].append({"id": 400, "content": "<far>", "special": True, "normalized": False})
        ),
        "tokenizer-disagrees",
        "<far>",
    ),
    "template that cannot be read": (template("{% for m in %}"), "template-unreadable", "Unexpected token: %}"),
    "template that fails": (template("{{ raise_exception('never') }}"), "template-fails", "never"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_directories(tmp_path: Path, name: str) -> None:
    damage, code, message = DAMAGES[name]
    directory = HFLlama().write(tmp_path / "hf")
    damage(directory)
    report = pyggml.inspect(directory)
    assert codes(report) == [code]
    assert message in report.problems[0].message
    assert (report.n_layer, report.n_embd) == (2, 64)
    loads = code.startswith("template") or report.ok
    assert report.plan.loads == loads
    if loads:
        pyggml.convert(directory, tmp_path / "out.gguf")
    else:
        with pytest.raises(pyggml.InferError):
            pyggml.convert(directory, tmp_path / "out.gguf")


def test_tensors_that_are_wrong(tmp_path: Path) -> None:
    llama = HFLlama()
    tensors: dict[str, Any] = dict(llama.weights)
    del tensors["model.layers.1.self_attn.q_proj.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((96, 64), np.int8)
    tensors["model.layers.0.mlp.down_proj.weight"] = np.ones((64, 95), np.float32)
    tensors["model.twist"] = np.ones(3, np.float32)
    report = pyggml.inspect(llama.write_tensors(tmp_path / "hf", tensors))
    assert sorted(codes(report)) == ["broken-tensor", "missing-tensor", "unknown-tensor", "wrong-shape"]
    assert report.n_tensors == len(tensors)


def test_a_missing_shard(tmp_path: Path) -> None:
    directory = HFLlama().write(tmp_path / "hf", n_shards=3)
    (directory / "model-00002-of-00003.safetensors").unlink()
    report = pyggml.inspect(directory)
    assert codes(report) == ["missing-file"]
    assert "model-00002-of-00003.safetensors, which model.safetensors.index.json lists" in report.problems[0].message


def test_of_a_model_that_is_not_imported_its_sizes_are_told(tmp_path: Path) -> None:
    llama = HFLlama()
    llama.config["model_type"] = "gpt9"
    report = pyggml.inspect(llama.write(tmp_path / "hf"))
    assert (report.architecture, report.n_layer, report.n_embd, report.n_head) == ("gpt9", 2, 64, 4)
    assert report.n_params == sum(weight.size for weight in llama.weights.values())
    assert report.vocabulary is not None
    assert report.vocabulary.special["eos"].id == models.EOS
    assert report.rope.type == ""
    assert "positions" not in str(report)  # rather than that there are no rotations
    assert not report.tied_embeddings
    llama.config["tie_word_embeddings"] = True
    assert pyggml.inspect(llama.write(tmp_path / "hf")).tied_embeddings


@pytest.mark.parametrize("content", ["{", "[]"])
def test_without_a_configuration_nothing_is_known(tmp_path: Path, content: str) -> None:
    directory = HFLlama().write(tmp_path / "hf")
    (directory / "config.json").write_text(content)
    with pytest.raises(ModelLoadError):
        pyggml.inspect(directory)
    with pytest.raises(ModelNotFoundError):
        pyggml.inspect(tmp_path / "nothing")


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    directory = HFLlama().write(tmp_path / "hf")
    before = sorted(path.name for path in directory.iterdir())
    pyggml.inspect(directory)
    assert sorted(path.name for path in directory.iterdir()) == before
    assert not list(tmp_path.glob("*.gguf"))

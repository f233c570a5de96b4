"""Keys of ``config.json`` are used, ignored or refused as in transformers."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from importer import test_encoders
from importer.test_references import CASES, RECORD, write
from support.checkpoints.hf_llama import HFLlama

import pyggml
from pyggml.errors import InferError, UnsupportedArchitectureError
from pyggml.families import LAYOUTS
from pyggml.files.model_files import checkpoint_at
from pyggml.files.regular_file import RegularFile
from pyggml.importer.plan import ImportPlan, read_plan
from pyggml.importer.transformers_keys import DATA

KEYS: dict[str, Any] = json.loads(DATA.read_text("utf-8"))
MODEL_TYPES = sorted({name for layout in LAYOUTS for name in layout.model_types})
#: Model types that transformers has under no name: their checkpoints came with code of their own.
OWN_CODE = ["RefinedWeb", "RefinedWebModel", "Yi", "neobert", "params.json", "stablelm_epoch"]
ENCODERS = {name for layout in LAYOUTS if layout.is_encoder for name in layout.model_types}
#: Model types whose positions do not enter by rotations.
UNROTATED = {name for layout in LAYOUTS if layout.positions != "rotary" for name in layout.model_types}


def plan_of(directory: Path, config: dict[str, Any], **changes: Any) -> ImportPlan:
    values = {**config, **changes}
    (directory / "config.json").write_text(json.dumps(values))
    return read_plan(checkpoint_at(directory))


def llama_plan(tmp_path: Path, **changes: Any) -> ImportPlan:
    llama = HFLlama()
    return plan_of(llama.write(tmp_path / "hf"), llama.config, **changes)


# --- the data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_model_type_has_its_keys(model_type: str) -> None:
    assert model_type in KEYS["model_types"], "run tools/make_config_keys.py with an interpreter that has transformers"
    entry = KEYS["model_types"][model_type]
    assert (entry is None) == (model_type in OWN_CODE)
    if entry and "text" not in entry:
        shared = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}
        shared |= set() if model_type in ENCODERS else {"tie_word_embeddings"}
        rotations = {"rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings"}
        expected = shared | (set() if model_type in UNROTATED else rotations)
        assert {entry["aliases"].get(key, key) for key in expected} <= set(entry["computes"])


@pytest.mark.parametrize("model_type", [name for name in MODEL_TYPES if name not in OWN_CODE])
def test_what_the_data_says_no_layout_repeats(model_type: str) -> None:
    layout = next(layout for layout in LAYOUTS if model_type in layout.model_types)
    entry = KEYS["model_types"][model_type]
    entry = KEYS["model_types"][entry.get("text", model_type)]
    said = {key: value for key, value in entry["computes"].items() if value is not None}
    for key, value in layout.switches.items():
        assert value == said.get(entry["aliases"].get(key, key), value), key
    if not set(layout.model_types) & set(OWN_CODE):  # for which the layout has to say everything
        repeated = {key for key, value in layout.defaults.items() if said.get(entry["aliases"].get(key, key)) == value}
        assert not repeated


def test_what_was_read_is_what_the_sources_say() -> None:
    """Samples of every way in which a key is read."""
    types = KEYS["model_types"]
    assert types["gemma2"]["computes"]["final_logit_softcapping"] == 30.0  # the model reads it
    assert types["qwen2"]["computes"]["use_sliding_window"] is False  # the configuration does
    assert types["llama"]["computes"]["is_causal"] is True  # the masks do, with a default
    assert types["falcon"]["computes"]["multi_query"] is True  # a class from a table of classes does
    assert types["phi"]["computes"]["partial_rotary_factor"] == 0.5  # it is set before the base class reads it
    assert types["mixtral"]["aliases"] == {"num_experts": "num_local_experts"}
    assert types["gemma3"]["text"] == "gemma3_text"
    assert KEYS["rope"]["yarn"]["truncate"] is True
    assert {"cache_implementation", "architectures", "attention_dropout", "torch_dtype"} <= set(KEYS["common"])


# --- every key ----------------------------------------------------------------------------------------------------


def samples() -> dict[str, str]:
    """A recorded case of each model type."""
    configs = {name: json.loads(str(RECORD[f"{name}/model"]))["config"] for name in CASES}
    configs |= {name: model["config"] for name, model in test_encoders.MODELS.items()}
    found: dict[str, str] = {}
    for name, config in configs.items():
        found.setdefault(config["model_type"], name)
    return found


def write_sample(directory: Path, name: str) -> dict[str, Any]:
    """Write a recorded case, and return its configuration."""
    if name in test_encoders.MODELS:
        return test_encoders.write(directory, name)
    config: dict[str, Any] = write(directory, name)["config"]
    return config


SAMPLES = samples()


def is_met(key: str, directory: Path, config: dict[str, Any]) -> bool:
    """Check that a key's value is refused by name, or at least read."""
    try:
        plan = plan_of(directory, config)
    except InferError as error:
        return key in str(error) or "'no sense'" in str(error)
    return key not in plan.config.unread


@pytest.mark.slow_except(every=4)
@pytest.mark.parametrize("model_type", [name for name in MODEL_TYPES if KEYS["model_types"].get(name)])
def test_no_key_that_changes_the_model_is_passed_over(tmp_path: Path, model_type: str) -> None:
    """A value that makes no sense shows who reads a key: it is refused by name, or what follows from it is not used."""
    entry = KEYS["model_types"][model_type]
    section = entry.get("text")
    config = write_sample(tmp_path / "hf", SAMPLES[model_type if model_type in SAMPLES else section])
    if model_type not in SAMPLES:  # what transformers cannot make without other packages, around what it can
        config = {"model_type": model_type, "text_config": config}
    for key in KEYS["model_types"][section or model_type]["computes"]:
        change = {"text_config": {**config["text_config"], key: "no sense"}} if section else {key: "no sense"}
        assert is_met(key, tmp_path / "hf", {**config, **change}), f"{key} does not matter to the importer"


def test_a_key_that_the_model_depends_on_is_refused_by_name(tmp_path: Path) -> None:
    for change in ({"is_causal": False}, {"per_layer_config": {"0": {"head_dim": 8}}}, {"layer_types": ["chunked"]}):
        with pytest.raises(UnsupportedArchitectureError, match=f"{next(iter(change))} is "):
            llama_plan(tmp_path, **change)
    llama_plan(tmp_path, is_causal=True, per_layer_config=None, layer_types=["full_attention"] * 2)


def test_missing_keys_mean_what_they_mean_to_transformers(tmp_path: Path) -> None:
    """The first conversion of Llama called the context length max_sequence_length, which transformers ignores."""
    llama = HFLlama()
    del llama.config["max_position_embeddings"]
    plan = plan_of(llama.write(tmp_path / "hf"), llama.config, max_sequence_length=4096)
    assert plan.metadata["llama.context_length"] == 2048
    assert plan.ignored == ("max_sequence_length",)


def test_null_is_a_value(tmp_path: Path) -> None:
    mistral = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "max_position_embeddings": 32768}
    assert llama_plan(tmp_path / "no", **mistral, sliding_window=None).metadata["llama.context_length"] == 32768
    assert llama_plan(tmp_path / "missing", **mistral).metadata["llama.context_length"] == 4096


def test_of_two_descriptions_of_rotations_the_old_one_counts(tmp_path: Path) -> None:
    new, old = {"rope_type": "linear", "factor": 2.0}, {"type": "linear", "factor": 4.0}
    metadata = llama_plan(tmp_path, rope_parameters=new, rope_scaling=old).metadata
    assert metadata["llama.rope.scaling.factor"] == 4.0


def test_the_first_names_of_longrope(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    for name in ("su", "yarn", "longrope"):
        plan = llama_plan(tmp_path / name, rope_scaling={"type": name, **factors})
        assert plan.metadata["llama.rope.scaling.type"] == "longrope"


# --- keys that are ignored ----------------------------------------------------------------------------------------

LEFTOVERS = {
    "is_llama_config": True,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "neftune_noise_alpha": 5,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0, "finetuned": True},
    # without a word: transformers knows them
    "use_cache": True,
    "attention_dropout": 0.1,
    "cache_implementation": "hybrid",
    "temperature": 0.7,
    "_private": 1,
    "rope_interleaved": False,  # off
}
IGNORED = ("rope_scaling.finetuned", "is_llama_config", "transformers.js_config", "neftune_noise_alpha")


def test_ignored_keys_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    llama = HFLlama()
    llama.config |= LEFTOVERS
    with caplog.at_level(logging.INFO, "pyggml"):
        pyggml.convert(llama.write(tmp_path / "hf"), tmp_path / "model.gguf")
    (record,) = [each for each in caplog.records if "ignored" in each.getMessage()]
    assert record.levelno == logging.INFO
    assert f"ignored {', '.join(IGNORED)}, as transformers does" in record.getMessage()
    report = pyggml.inspect(tmp_path / "hf")
    assert report.ok
    assert report.plan.ignored_keys == IGNORED
    assert f"ignored keys  {', '.join(IGNORED)}" in str(report)


def test_where_code_could_read_them_that_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    llama = HFLlama()
    llama.config |= {"auto_map": {"AutoModelForCausalLM": "modeling_twist.Twist"}, "use_twist": True}
    pyggml.convert(llama.write(tmp_path / "hf"), tmp_path / "model.gguf")
    (record,) = [each for each in caplog.records if "ignored" in each.getMessage()]
    assert record.levelno == logging.WARNING
    assert "ignored use_twist, as transformers does; the Python code" in record.getMessage()


def test_in_the_language_model_of_another_they_are_named_with_it(tmp_path: Path) -> None:
    config = write(tmp_path / "hf", "gemma 3 that sees")["config"]
    text = {**config["text_config"], "neftune_noise_alpha": 5}
    plan = plan_of(tmp_path / "hf", config, text_config=text, is_seeing=True)
    assert plan.ignored == ("is_seeing", "text_config.neftune_noise_alpha")


@pytest.mark.parametrize("model_type", [None, [], {}, 3, "llama", "gemma3"])
def test_a_language_model_inside_is_what_the_whole_says(tmp_path: Path, model_type: Any) -> None:
    config = write(tmp_path / "hf", "gemma 3 that sees")["config"]
    text = {**config["text_config"], "model_type": model_type}
    plan = plan_of(tmp_path / "hf", config, text_config=text)
    assert plan.metadata["gemma3.context_length"] == config["text_config"]["max_position_embeddings"]
    with pytest.raises(UnsupportedArchitectureError, match="attn_logit_softcapping"):  # which Llama does not know
        plan_of(tmp_path / "hf", config, text_config={**text, "attn_logit_softcapping": 50.0})


# --- model types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["RefinedWebModel", "Yi", "stablelm_epoch"])
def test_of_code_that_transformers_does_not_have_every_key_must_be_known(model_type: str, tmp_path: Path) -> None:
    layout = next(layout for layout in LAYOUTS if model_type in layout.model_types)
    kind = next(name for name in (*layout.model_types, "llama") if name in SAMPLES)
    config = write(tmp_path / "hf", SAMPLES[kind])["config"]
    del config["rope_parameters"]  # which is younger than this code
    if model_type == "RefinedWebModel":
        config |= {"n_layer": config.pop("num_hidden_layers"), "n_head": config.pop("num_attention_heads")}
        for key in ("num_kv_heads", "num_ln_in_parallel_attn", "ffn_hidden_size", "activation"):
            config.pop(key, None)
    config |= {"model_type": model_type, "architectures": list(layout.hf_architectures[-1:]), "temperature": 0.5}
    plan_of(tmp_path / "hf", config)
    with pytest.raises(UnsupportedArchitectureError, match="does not know what use_twist = True does"):
        plan_of(tmp_path / "hf", config, use_twist=True)


def test_the_first_names_of_stablelm(tmp_path: Path) -> None:
    config = write(tmp_path / "hf", "stablelm")["config"]
    config |= {"rope_parameters": None, "rope_theta": 10000}
    new = plan_of(tmp_path / "hf", config, partial_rotary_factor=0.5, layer_norm_eps=1e-4).metadata
    config |= {"model_type": "stablelm_epoch", "architectures": ["StableLMEpochForCausalLM"]}
    del config["layer_norm_eps"]
    names = {"rope_pct": 0.5, "norm_eps": 1e-4, "rotary_scaling_factor": 1.0, "num_heads": 4}
    assert plan_of(tmp_path / "hf", config, **names).metadata == new


@pytest.mark.parametrize("model_type", ["LLaMA", "Llama", "llama"])
def test_case_does_not_matter(tmp_path: Path, model_type: str) -> None:
    plan = llama_plan(tmp_path, model_type=model_type, is_llama_config=True)
    assert plan.layout.name == "Llama"
    assert plan.ignored == ("is_llama_config",)  # so the reference was found as well


def test_the_model_type_decides_among_names_of_the_same_tensors(tmp_path: Path) -> None:
    assert llama_plan(tmp_path, architectures=["YiForCausalLM"]).layout.name == "Llama"
    with pytest.raises(UnsupportedArchitectureError, match="imports only LlamaForCausalLM"):
        llama_plan(tmp_path, architectures=["MixtralForCausalLM"])


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["inspect", "convert", "load"])
def test_each_file_of_a_directory_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    directory = HFLlama().write(tmp_path / "hf")
    monkeypatch.setenv("PYGGML_CACHE", str(tmp_path / "cache"))
    opened: Counter[str] = Counter()
    original = RegularFile.__init__

    def counting(self: RegularFile, path: Path, failure: type[pyggml.InferError] = pyggml.ModelLoadError) -> None:
        opened[path.name] += 1
        original(self, path, failure)

    monkeypatch.setattr(RegularFile, "__init__", counting)
    if name == "load":
        pyggml.load(directory).close()
    elif name == "convert":
        pyggml.convert(directory, tmp_path / "model.gguf")
    else:
        pyggml.inspect(directory)
    assert opened == {"config.json": 1, "model.safetensors": 1, "tokenizer.json": 1}

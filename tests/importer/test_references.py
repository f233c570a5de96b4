"""Imported models of every architecture give the results of transformers with the same weights.

``tools/compare_with_transformers.py --record`` wrote down what that was, with the configurations and tensor names that
transformers gave. The weights follow from the names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import checkpoints, models, tokenizer_files
from support.paths import DATA

import pyggml
from pyggml import Context, Model
from pyggml.errors import UnsupportedArchitectureError
from pyggml.gguf import GGUFReader

RECORD = np.load(DATA / "transformers.npz")
MODELS: dict[str, dict[str, Any]] = {
    name.removesuffix("/model"): json.loads(str(RECORD[name])) for name in RECORD.files if name.endswith("/model")
}
CASES = list(MODELS)
#: The first case of each ``model_type``.
ONE_OF_EACH = list({model["config"]["model_type"]: name for name, model in reversed(MODELS.items())}.values())


def write(directory: Path, name: str, prefix: str = "language_model.model.") -> dict[str, Any]:
    model = MODELS[name]
    directory.mkdir()
    tensors = {
        tensor.replace("language_model.model.", prefix): checkpoints.drawn(tensor, tuple(shape))
        for tensor, shape in model["shapes"].items()
    }
    checkpoints.write_shards(directory, tensors, 2)
    (directory / "config.json").write_text(json.dumps(model["config"]))
    tokenizer_files.write_json(directory, models.byte_vocabulary())
    return model


@pytest.mark.slow_except(every=13)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if RECORD[f"{name}/prompt"].size > 1000 else ()) for name in CASES],
)
def test_computes_what_transformers_did(tmp_path: Path, name: str) -> None:
    model = write(tmp_path / "hf", name)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", "f32")
    prompt, expected = RECORD[f"{name}/prompt"].tolist(), RECORD[f"{name}/logits"]
    with (
        Model(tmp_path / "model.gguf", device="cpu") as loaded,
        Context(
            loaded, n_ctx=model["n_ctx"], n_batch=model["n_ctx"], n_threads=1, flash_attn="off", cache_type="f32"
        ) as context,
    ):
        context.decode(prompt, output="all")
        found = context.logits()[-len(expected) :]
    # A few activations come out of tables of float16; everything else is float32.
    assert np.abs(found - expected).max() <= 5e-3 * expected.std()
    assert (found.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.slow_except(every=15)
@pytest.mark.parametrize("name", CASES)
def test_transformers_4_spelled_it_otherwise(tmp_path: Path, name: str) -> None:
    """The same model with the keys of version 4, and with names that others use, makes the same file."""
    model = write(tmp_path / "new", name)
    write(tmp_path / "old", name, prefix="model.language_model.")
    (tmp_path / "old" / "config.json").write_text(json.dumps(as_version_4(model["config"])))
    for directory in ("new", "old"):
        pyggml.convert(tmp_path / directory, tmp_path / f"{directory}.gguf", "auto")
    new, old = (models.metadata_of(tmp_path / f"{directory}.gguf") for directory in ("new", "old"))
    for metadata in (new, old):
        del metadata["general.name"]
    assert {key: str(value) for key, value in new.items()} == {key: str(value) for key, value in old.items()}


@pytest.mark.slow_except("gemma 2")
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_smaller_weights_load(tmp_path: Path, name: str) -> None:
    write(tmp_path / "hf", name)
    for outtype in ("q8_0", "q4_k_m"):
        planned = pyggml.inspect(tmp_path / "hf").estimate(n_ctx=64, outtype=outtype)
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf", outtype)
        real = pyggml.inspect(tmp_path / "model.gguf").estimate(n_ctx=64)
        for part in ("weights_bytes", "cache_bytes", "compute_bytes"):
            assert getattr(planned, part) == getattr(real, part)
        with pyggml.load(tmp_path / "model.gguf", n_ctx=64, n_threads=1) as llm:
            assert len(llm.generate([1, 2, 3], max_tokens=4, ignore_eos=True).token_ids) == 4


#: What the engine would compute otherwise: case, change to its configuration, message.
REFUSED = (
    ("gemma 1", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
    ("gemma 1", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("gemma 1", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ("granite", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("olmo 2", {"attention_bias": True}, "attention_bias is True"),
    ("olmo 2", {"head_dim": 32}, "4 heads of 32 columns do not add up to the width 64"),
    (
        "olmo 3",
        {"rope_parameters": {"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e4}}},
        r"rope_theta is 10000 in the sliding-window layers and 500000 in the others",
    ),
    ("glm 4 (2024)", {"hidden_size": 96}, "4 heads of 16 columns do not add up to the width 96"),
    (
        "command-r",
        {"use_qk_norm": True},
        "use_qk_norm is True; for a model of 3 blocks, the engine only supports False",
    ),
    ("command-r+", {"use_qk_norm": False}, "use_qk_norm is False; for a model of 64 blocks"),
    ("command-r", {"attention_bias": True}, "attention_bias is True"),
    ("gemma 2", {"layer_types": ["full_attention"] * 4}, "no layer has a sliding window"),
    ("command-r7b", {"sliding_window": None}, "no layer has a sliding window"),
    ("smollm3", {"no_rope_layers": [1, 1, 1, 1, 0]}, r"no_rope_layers is \[1, 1, 1, 1, 0\]"),
    ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 2}, r"no_rope_layers is \[1, 0, 1, 0, 1\]"),
    ("smollm3", {"attention_bias": True}, "attention_bias is True"),
    ("ministral 3", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    (
        "llama",
        {"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1}},
        "does not support llama_4_scaling_beta for Llama models",
    ),
    ("gemma 3n", {"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4 of 25"),
    ("gemma 3n", {"activation_sparsity_pattern": [0.5] * 25}, "activation_sparsity_pattern is"),
    ("gemma 3n", {"layer_types": ["sliding_attention"] * 25}, "layer_types has"),
    ("gemma 3n", {"final_logit_softcapping": 20.0}, r"final_logit_softcapping is 20\.0"),
    ("gemma 3n", {"altup_num_inputs": 3}, "altup_num_inputs is 3"),
    ("gemma 3n", {"laurel_rank": 32}, "laurel_rank is 32"),
    ("command-r7b", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ("qwen2 moe", {"norm_topk_prob": True}, "norm_topk_prob is True"),
    ("qwen2 moe", {"mlp_only_layers": [0]}, r"mlp_only_layers is \[0\]"),
    ("qwen3 moe", {"norm_topk_prob": None}, "norm_topk_prob is False"),
    ("qwen3 moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
    ("llama 4", {"num_hidden_layers": 3, "moe_layers": None, "no_rope_layers": None}, "num_hidden_layers is 3"),
    (
        "qwen3-next",
        {"linear_value_head_dim": 32},
        "linear attention has 2 key heads of 16 columns and 4 value heads of 32",
    ),
    ("qwen3-next", {"linear_num_value_heads": 3}, "linear attention has 2 key heads of 16 columns and 3 value heads"),
    ("qwen3-next", {"layer_types": ["sliding_attention"] * 5}, "layer_types has 'sliding_attention'"),
    ("qwen3-next", {"norm_topk_prob": False}, "norm_topk_prob is False"),
    ("qwen3-next", {"mlp_only_layers": [1]}, r"mlp_only_layers is \[1\]"),
    ("llama 4", {"moe_layers": [1, 3]}, r"moe_layers is \[1, 3\]"),
    ("llama 4", {"no_rope_layers": [1, 1, 1, 1, 0]}, "no_rope_layers is"),
    ("llama 4", {"layer_types": ["full_attention"] * 5}, "layer_types is"),
    ("llama 4", {"use_qk_norm": False}, "use_qk_norm is False"),
    ("llama 4", {"attention_chunk_size": 4096}, "attention_chunk_size is 4096"),
    ("llama 4", {"attn_temperature_tuning": False}, "attn_temperature_tuning is False"),
    ("gpt-oss", {"swiglu_limit": 10.0}, "swiglu_limit is 10.0"),
    ("gpt-oss", {"attention_bias": False}, "attention_bias is False"),
)


@pytest.mark.slow_except(every=3)
@pytest.mark.parametrize(
    ("name", "change", "message"), REFUSED, ids=[f"{name}, {next(iter(change))}" for name, change, _ in REFUSED]
)
def test_is_refused_by_name(tmp_path: Path, name: str, change: dict[str, Any], message: str) -> None:
    model = write(tmp_path / "hf", name)
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**model["config"], **change}))
    with pytest.raises(UnsupportedArchitectureError, match=message):
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")


@pytest.mark.parametrize("name", ["gemma 1", "gemma 2", "command-r", "command-r7b"])
def test_output_weights_that_say_the_embedding_again(tmp_path: Path, name: str) -> None:
    """Tools write them to checkpoints whose architecture has none in the engine."""
    model = write(tmp_path / "hf", name)
    tensors = {each: checkpoints.drawn(each, tuple(shape)) for each, shape in model["shapes"].items()}
    embedding = "model.embed_tokens.weight"
    checkpoints.write_shards(tmp_path / "hf", {**tensors, "lm_head.weight": tensors[embedding]}, 2)
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    other = checkpoints.drawn("lm_head.weight", tuple(model["shapes"][embedding]))
    checkpoints.write_shards(tmp_path / "hf", {**tensors, "lm_head.weight": other}, 2)
    with pytest.raises(UnsupportedArchitectureError, match=r"lm_head\.weight and model\.embed_tokens\.weight differ"):
        pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")


@pytest.mark.slow
def test_a_gemma_3n_as_published(tmp_path: Path) -> None:
    """It also sees and hears, and holds keys and values that nothing is computed with."""
    model = write(tmp_path / "text", "gemma 3n")
    (tmp_path / "whole").mkdir()
    config = {"model_type": "gemma3n", "architectures": ["Gemma3nForConditionalGeneration"]}
    (tmp_path / "whole" / "config.json").write_text(json.dumps({**config, "text_config": model["config"]}))
    tokenizer_files.write_json(tmp_path / "whole", models.byte_vocabulary())
    tensors = {
        name.replace("model.", "model.language_model.", 1): checkpoints.drawn(name, tuple(shape))
        for name, shape in model["shapes"].items()
    }
    of_no_effect = (
        "model.language_model.layers.24.self_attn.v_proj.weight",
        "model.audio_tower.x",
        "model.embed_vision.y",
    )
    tensors |= {name: checkpoints.drawn(name, (32, 32)) for name in of_no_effect}
    checkpoints.write(tmp_path / "whole" / "model.safetensors", tensors)
    for name in ("text", "whole"):
        pyggml.convert(tmp_path / name, tmp_path / f"{name}.gguf", "f32")
    with GGUFReader(tmp_path / "text.gguf") as text, GGUFReader(tmp_path / "whole.gguf") as whole:
        assert list(text.tensors) == list(whole.tensors)
        for name in text.tensors:
            np.testing.assert_array_equal(text.dequantized(name), whole.dequantized(name))


def test_bases_of_rotations_that_are_left_out(tmp_path: Path) -> None:
    """The sliding-window layers of a Gemma 3 have a base of their own, those of an OLMo 3 the others'."""
    for name, bases in (("gemma 3", (1e6, 1e4)), ("olmo 3", (5e5, 5e5))):
        config = write(tmp_path / name, name)["config"]
        plain = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}
        (tmp_path / name / "config.json").write_text(json.dumps({**config, "rope_parameters": plain}))
        pyggml.convert(tmp_path / name, tmp_path / "model.gguf")
        metadata = models.metadata_of(tmp_path / "model.gguf")
        architecture = metadata["general.architecture"]
        found = [metadata[f"{architecture}.rope.{key}"] for key in ("freq_base", "freq_base_swa")]
        assert tuple(found) == bases


@pytest.mark.slow
def test_what_a_ministral_3_leaves_out(tmp_path: Path) -> None:
    """The rotations that transformers then assumes."""
    config = dict(write(tmp_path / "hf", "ministral 3")["config"])
    del config["rope_parameters"]
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    pyggml.convert(tmp_path / "hf", tmp_path / "model.gguf")
    metadata = models.metadata_of(tmp_path / "model.gguf")
    assert metadata["mistral3.rope.freq_base"] == 1e6
    assert metadata["mistral3.rope.scaling.factor"] == 16
    assert metadata["mistral3.rope.scaling.original_context_length"] == 16_384
    assert metadata["mistral3.attention.temperature_scale"] == np.float32(0.1)


def as_version_4(config: dict[str, Any]) -> dict[str, Any]:
    if "text_config" in config:
        return {**config, "text_config": as_version_4({"dtype": config["dtype"], **config["text_config"]})}
    old = {key: value for key, value in config.items() if key not in ("rope_parameters", "dtype", "layer_types")}
    if "linear_attention" in (config.get("layer_types") or ()):  # which is not older than the key
        old["layer_types"] = config["layer_types"]
    old["torch_dtype"] = config["dtype"]
    rope = dict(config["rope_parameters"])
    if "full_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    old["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        old["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if rope["rope_type"] != "default":
        old["rope_scaling"] = rope
    return old

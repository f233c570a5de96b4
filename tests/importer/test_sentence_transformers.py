"""sentence-transformers' files of a directory: what they say is in the GGUF file, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from importer.test_encoders import MODELS, metadata_of, scores, token_vectors, write
from support.checkpoints import checkpoints, models

import pyggml
from pyggml.errors import ModelLoadError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.gguf import GGUFReader
from pyggml.options.embedding_profile import DenseLayer, EmbeddingProfile, apply_dense, read_profile

TRANSFORMER = "sentence_transformers.models.Transformer"
POOLING = "sentence_transformers.models.Pooling"
DENSE = "sentence_transformers.models.Dense"
NORMALIZE = "sentence_transformers.models.Normalize"
MEAN = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}


def write_modules(directory: Path, *types: str, **files: Any) -> None:
    """Write ``modules.json`` with folders 1_X, 2_X ..., and files by name, with ``__`` for a slash."""
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{type.rpartition('.')[2]}" if i else "", "type": type}
        for i, type in enumerate(types)
    ]
    write_files(directory, modules=modules, **files)


def write_files(directory: Path, **files: Any) -> None:
    for name, content in files.items():
        path = directory / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def write_dense(directory: Path, folder: str, n_in: int, n_out: int, **config: Any) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(n_in + n_out)
    (directory / folder).mkdir(exist_ok=True)
    tensors = {"linear.weight": draw.standard_normal((n_out, n_in), np.float32)}
    if config.get("bias", True):
        tensors["linear.bias"] = draw.standard_normal(n_out, np.float32)
    checkpoints.write(directory / folder / "model.safetensors", tensors)
    content = {"in_features": n_in, "out_features": n_out, "bias": True, **config}
    (directory / folder / "config.json").write_text(json.dumps(content))
    return tensors


def profile_of(directory: Path) -> EmbeddingProfile:
    path = directory.parent / "model.gguf"
    pyggml.convert(directory, path)
    return read_profile(metadata_of(path))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path / "hf", "bert")
    return tmp_path / "hf"


# --- what is read -------------------------------------------------------------------------------------------------


def test_without_files_an_encoder_says_nothing(directory: Path) -> None:
    assert profile_of(directory) == EmbeddingProfile()


def test_a_model_that_generates_has_no_profile(tmp_path: Path) -> None:
    write(tmp_path / "hf", "qwen3 embedding", architectures=["Qwen3ForCausalLM"])
    write_files(tmp_path / "hf", tokenizer_config={"eos_token": "<|endoftext|>", "model_max_length": 100})
    assert profile_of(tmp_path / "hf") == EmbeddingProfile()


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"pooling_mode_cls_token": True}, ("cls",)),
        ({"pooling_mode_max_tokens": True}, ("max",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ("cls", "mean")),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len",)),
        ({"pooling_mode_weightedmean_tokens": True}, ("weighted_mean",)),
        ({"pooling_mode_lasttoken": True}, ("last",)),
        ({}, ("mean",)),
        ({"pooling_mode": "weightedmean"}, ("weighted_mean",)),
        ({"pooling_mode": ["mean", "cls"], "pooling_mode_max_tokens": True}, ("mean", "cls")),
    ],
)
def test_pooling(directory: Path, config: dict[str, Any], kinds: tuple[str, ...]) -> None:
    write_modules(directory, TRANSFORMER, POOLING, **{"1_Pooling__config": config})
    assert profile_of(directory).pooling == kinds
    number = {"mean": 1, "cls": 2, "last": 3}.get("+".join(kinds))
    assert models.metadata_of(directory.parent / "model.gguf").get("bert.pooling_type") == number


def test_all_settings(directory: Path) -> None:
    write_modules(
        directory,
        TRANSFORMER,
        POOLING,
        NORMALIZE,
        **{"1_Pooling__config": {**MEAN, "include_prompt": False}},
        sentence_bert_config={"max_seq_length": 100, "do_lower_case": True},
        config_sentence_transformers={
            "prompts": {"query": "frage: \n", "document": ""},
            "default_prompt_name": "query",
            "similarity_fn_name": "dot",
            "matryoshka_dims": [64, 32, 16, 999],
        },
    )
    assert profile_of(directory) == EmbeddingProfile(
        pooling=("mean",),
        normalize=True,
        max_tokens=100,
        lowercase=True,
        prompts={"query": "frage: \n", "document": ""},
        default_prompt="query",
        include_prompt=False,
        similarity="dot",
        dimensions=(16, 32, 64),
    )


@pytest.mark.parametrize(
    ("files", "max_tokens"),
    [
        ({}, 128),
        ({"sentence_bert_config": {"max_seq_length": 1000}}, 128),
        ({"sentence_roberta_config": {"max_seq_length": 50}}, 50),
        ({"tokenizer_config": {"eos_token": "<|endoftext|>", "model_max_length": 64}}, 64),
        ({"tokenizer_config": {"eos_token": "<|endoftext|>", "model_max_length": 10**30}}, 128),
    ],
)
def test_the_longest_text(directory: Path, files: dict[str, Any], max_tokens: int) -> None:
    write_modules(directory, TRANSFORMER, POOLING, **{"1_Pooling__config": MEAN}, **files)
    assert profile_of(directory).max_tokens == max_tokens


@pytest.mark.parametrize("spelled", ["sentence_transformers.base.modules.{}.{}", "sentence_transformers.{}.{}"])
def test_every_version_spells_the_classes_otherwise(directory: Path, spelled: str) -> None:
    types = [spelled.format(name.lower(), name) for name in ("Transformer", "Pooling", "Dropout", "Normalize")]
    write_modules(directory, *types, **{"1_Pooling__config": MEAN})
    assert profile_of(directory).normalize


# --- dense layers -------------------------------------------------------------------------------------------------


def test_dense_layers(directory: Path) -> None:
    write_modules(directory, TRANSFORMER, POOLING, DENSE, DENSE, NORMALIZE, **{"1_Pooling__config": MEAN})
    first = write_dense(directory, "2_Dense", 64, 96, activation_function="torch.nn.modules.activation.Tanh")
    write_dense(directory, "3_Dense", 96, 16, activation_function="torch.nn.modules.linear.Identity", bias=False)
    profile = profile_of(directory)
    assert profile.dense == (DenseLayer(0, 64, 96, True, "tanh"), DenseLayer(1, 96, 16, False, "identity"))
    assert profile.n_out(64) == 16
    layer = profile.dense[0]
    with GGUFReader(directory.parent / "model.gguf") as reader:
        weight = np.asarray(reader.metadata[layer.weight_key]).reshape(layer.n_out, layer.n_in)
        bias = np.asarray(reader.metadata[layer.bias_key])
        assert profile.dense[1].bias_key not in reader.metadata
    np.testing.assert_array_equal(weight, first["linear.weight"])
    x = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    expected = np.tanh(x.astype(np.float64) @ weight.T.astype(np.float64) + bias)
    np.testing.assert_allclose(apply_dense(layer, weight, bias, x), expected, atol=1e-5)


def test_the_engine_computes_those_that_it_has_a_place_for(tmp_path: Path) -> None:
    write(tmp_path / "hf", "embeddinggemma")
    write_modules(tmp_path / "hf", TRANSFORMER, POOLING, DENSE, DENSE, NORMALIZE, **{"1_Pooling__config": MEAN})
    for folder, n_in, n_out in (("2_Dense", 64, 96), ("3_Dense", 96, 64)):
        write_dense(tmp_path / "hf", folder, n_in, n_out, bias=False, activation_function="torch.nn.Identity")
    profile = profile_of(tmp_path / "hf")
    assert profile == EmbeddingProfile(pooling=("mean",), normalize=True, max_tokens=128)
    metadata = models.metadata_of(tmp_path / "model.gguf")
    assert metadata["gemma-embedding.dense_2_feat_out"] == metadata["gemma-embedding.dense_3_feat_in"] == 96
    with pyggml.load(tmp_path / "model.gguf", n_threads=1) as llm:
        assert llm.embed([[1, 2, 3]]).shape == (1, 64)


def test_weights_in_pickles_are_not_opened(directory: Path) -> None:
    write_modules(directory, TRANSFORMER, POOLING, DENSE, **{"1_Pooling__config": MEAN})
    write_dense(directory, "2_Dense", 64, 8)
    (directory / "2_Dense" / "model.safetensors").rename(directory / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ModelNotFoundError, match=r"pytorch_model\.bin, a format that pyggml does not open"):
        profile_of(directory)


# --- models of token vectors --------------------------------------------------------------------------------------


def test_pylates_files(directory: Path) -> None:
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    ids = {text: tokenizer["model"]["vocab"][text] for text in "!."}
    write_modules(
        directory,
        TRANSFORMER,
        "pylate.models.Dense.Dense",
        config_sentence_transformers={
            "query_prefix": "[Q] ",
            "document_prefix": "[D] ",
            "query_length": 32,
            "document_length": 100,
            "attend_to_expansion_tokens": False,
            "skiplist_words": ["!", ".", "no token"],
            "similarity_fn_name": "MaxSim",
        },
    )
    write_dense(directory, "1_Dense", 64, 16, bias=False, activation_function="torch.nn.modules.linear.Identity")
    profile = profile_of(directory)
    assert profile == EmbeddingProfile(
        is_multi_vector=True,
        normalize=True,
        max_tokens=100,
        prompts={"query": "[Q] ", "document": "[D] "},
        similarity="maxsim",
        dense=(DenseLayer(0, 64, 16, False, "identity"),),
        skipped_tokens=(ids["!"], ids["."]),
    )
    assert models.metadata_of(directory.parent / "model.gguf")["bert.pooling_type"] == 0
    notes = pyggml.convert(directory, directory.parent / "model.gguf", dry_run=True).notes
    assert any("query expansion" in note for note in notes)


# --- rerankers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "activation"),
    [
        ({}, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "identity"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, "sigmoid"),
    ],
)
def test_what_becomes_of_scores(tmp_path: Path, change: dict[str, Any], activation: str) -> None:
    write(tmp_path / "hf", "bert, reranker", **change)
    profile = profile_of(tmp_path / "hf")
    assert profile == EmbeddingProfile(score_activation=activation, second_text_ids=320)  # type: ignore[arg-type]
    metadata = models.metadata_of(tmp_path / "model.gguf")
    assert metadata["bert.pooling_type"] == 4
    assert metadata["bert.vocab_size"] == 640


# --- what is refused ----------------------------------------------------------------------------------------------

REFUSED = {
    "another module": (("sentence_transformers.models.CNN",), "the module 'sentence_transformers.models.CNN' is not"),
    "code": (("custom_st.Transformer",), r"the module 'custom_st\.Transformer' is Python code that comes with"),
    "an order": ((NORMALIZE, DENSE), "the modules Transformer, Normalize, Dense cannot be computed in this order"),
    "pooling twice": ((POOLING, POOLING), "Transformer, Pooling, Pooling cannot be computed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_modules_that_cannot_be_computed(directory: Path, case: str) -> None:
    types, message = REFUSED[case]
    files = {f"{i}_Pooling__config": MEAN for i in (1, 2)}
    write_modules(directory, *([] if "custom" in types[0] else [TRANSFORMER]), *types, **files)
    with pytest.raises(UnsupportedArchitectureError, match=message):
        profile_of(directory)
    report = pyggml.inspect(directory)
    assert not report.ok
    assert [problem.code for problem in report.problems] == ["unsupported-module"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no list": ({"modules": {}}, r"modules\.json: a list of 1 to 64 modules was expected"),
    "no type": ({"modules": [{"path": ""}]}, "a module needs a type and a path"),
    "a path": ({"modules": [{"type": TRANSFORMER, "path": "../x"}]}, r"'\.\./x' is not a folder in this directory"),
    "a width": (
        {"1_Pooling__config": {"embedding_dimension": 65}},
        "it pools vectors of 65 columns; the model's have 64",
    ),
    "a kind": ({"1_Pooling__config": {"pooling_mode": "sum"}}, "pooling_mode is 'sum'; one or several of cls"),
    "a switch": ({"1_Pooling__config": {"pooling_mode_cls_token": 1}}, "pooling_mode_cls_token is 1; true or false"),
    "a prompt": ({"config_sentence_transformers": {"prompts": {"a": 1}}}, "prompts is .*an object of texts"),
    "half a character": ({"config_sentence_transformers": {"prompts": {"a": "\ud800"}}}, "an object of texts was"),
    "a name": (
        {"config_sentence_transformers": {"default_prompt_name": "x"}},
        "default_prompt_name is 'x'; the name of",
    ),
    "a length": ({"sentence_bert_config": {"max_seq_length": -1}}, "max_seq_length is -1; a positive integer"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(directory: Path, case: str) -> None:
    files, message = WRONG[case]
    write_modules(directory, TRANSFORMER, POOLING, **{"1_Pooling__config": MEAN})
    write_files(directory, **files)
    with pytest.raises(ModelLoadError, match=message):
        profile_of(directory)


def test_dense_layers_that_are_wrong(directory: Path) -> None:
    write_modules(directory, TRANSFORMER, POOLING, DENSE, **{"1_Pooling__config": MEAN})
    write_dense(directory, "2_Dense", 32, 8)
    with pytest.raises(ModelLoadError, match="in_features is 32; vectors of 64 columns come in"):
        profile_of(directory)
    write_dense(directory, "2_Dense", 64, 8, activation_function="my.Function")
    with pytest.raises(UnsupportedArchitectureError, match=r"activation_function is 'my\.Function'"):
        profile_of(directory)
    write_dense(directory, "2_Dense", 64, 8, use_residual=True)
    with pytest.raises(UnsupportedArchitectureError, match="use_residual with 64 in_features and 8 out_features"):
        profile_of(directory)
    write_dense(directory, "2_Dense", 64, 8)
    write_files(directory, **{"2_Dense__config": {"in_features": 64, "out_features": 9}})
    with pytest.raises(ModelLoadError, match=r"linear\.weight.*shape"):
        profile_of(directory)


def test_a_profile_that_another_program_wrote() -> None:
    for key, value, message in (
        ("normalize", "yes", "true or false was expected"),
        ("max_tokens", "0", "a positive integer"),
        ("pooling", "mean+sum", "kinds among"),
        ("prompts", "[]", "a JSON object of texts"),
        ("dense", "[1]", "a JSON list of layers"),
        ("dimensions", "[-1]", "a JSON list of integers"),
        ("similarity", "x", "one of cosine"),
        ("dense", "{", "JSON was expected"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            read_profile({"general.architecture": "bert", f"pyggml.embedding.{key}": value})


def test_a_file_of_upstreams_converter() -> None:
    for number, kinds in ((1, ("mean",)), (2, ("cls",)), (3, ("last",)), (4, ()), (0, ())):
        metadata = {"general.architecture": "bert", "bert.pooling_type": str(number)}
        assert read_profile(metadata) == EmbeddingProfile(pooling=kinds)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_reranker_that_answers_yes_or_no(tmp_path: Path, is_tied: bool) -> None:
    """Its score is the difference of two logits, of which the engine gives the sigmoid."""
    directory = tmp_path / "hf"
    config = write(directory, "qwen3 embedding", architectures=["Qwen3ForCausalLM"], tie_word_embeddings=is_tied)
    shapes = MODELS["qwen3 embedding"]["shapes"]
    tensors = {f"model.{name}": checkpoints.drawn(name, tuple(shape)) for name, shape in shapes.items()}
    if not is_tied:
        tensors["lm_head.weight"] = checkpoints.drawn("lm_head.weight", (config["vocab_size"], config["hidden_size"]))
    checkpoints.write(directory / "model.safetensors", tensors)
    scorer = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    write_modules(directory, TRANSFORMER, scorer, **{"1_LogitScore__config": {"true_token_id": 7, "false_token_id": 9}})
    profile = profile_of(directory)
    assert (profile.pooling, profile.score_activation) == ((), "identity")
    ids = np.arange(2, 40)
    found = scores(tmp_path / "model.gguf", ids[None])[0]
    logits = token_vectors(tmp_path / "model.gguf", ids.tolist())[-1]
    output = tensors["model.embed_tokens.weight" if is_tied else "lm_head.weight"]
    assert isinstance(output, checkpoints.Stored)
    yes, no = checkpoints.widened(output)[[7, 9]] @ logits
    assert found == pytest.approx(1 / (1 + np.exp(no - yes)), abs=1e-2)  # the engine rounds activations to BF16
    with pyggml.load(tmp_path / "model.gguf", n_threads=1) as llm:
        assert "<Query>: {query}" in str(llm.model.chat_template("rerank"))


def test_other_models_do_not_answer_so(directory: Path) -> None:
    scorer = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    ids = {"true_token_id": 7, "false_token_id": 9}
    write_modules(directory, TRANSFORMER, scorer, **{"1_LogitScore__config": ids})
    with pytest.raises(UnsupportedArchitectureError, match="LogitScore is not supported for 'bert' models"):
        profile_of(directory)

"""The methods of sentence-transformers on any model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models

import pyggml
from pyggml.integrations.sentence_transformers import SentenceEncoder
from pyggml.options.embedding_profile import DenseLayer, EmbeddingProfile

TEXTS = ["a dog", "a cat", "the sky is blue"]


@pytest.fixture(scope="module")
def llm(bert_path: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(bert_path, n_threads=1) as llm:
        llm.embed(".")  # opens a context, which stays
        llm.embed(".", pooling="none")
        yield llm


@pytest.fixture
def encoder(llm: pyggml.LLM) -> SentenceEncoder:
    return SentenceEncoder(llm, prompts={"query": "query: ", "passage": "passage: "})


def test_vectors_are_those_of_embed(encoder: SentenceEncoder, llm: pyggml.LLM) -> None:
    found = encoder.encode(TEXTS)
    assert found.shape == (3, encoder.get_sentence_embedding_dimension())
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, llm.embed(TEXTS))
    np.testing.assert_array_equal(encoder.encode("a dog"), found[0])
    np.testing.assert_array_equal(encoder.encode(TEXTS, normalize_embeddings=True), llm.embed(TEXTS, normalize=True))
    assert encoder.encode([]).shape == (0, encoder.get_sentence_embedding_dimension())


def test_prompts(encoder: SentenceEncoder, llm: pyggml.LLM) -> None:
    query = llm.embed("query: a dog")
    np.testing.assert_array_equal(encoder.encode_query("a dog"), query)
    np.testing.assert_array_equal(encoder.encode("a dog", prompt_name="query"), query)
    np.testing.assert_array_equal(encoder.encode("a dog", prompt="query: "), query)
    np.testing.assert_array_equal(encoder.encode_document(["a dog"])[0], llm.embed("passage: a dog"))
    default = SentenceEncoder(llm, prompts={"query": "query: "}, default_prompt_name="query")
    np.testing.assert_array_equal(default.encode("a dog"), query)
    with pytest.raises(pyggml.InvalidParameterError, match=r"'code'.*query, passage"):
        encoder.encode("a dog", prompt_name="code")


def test_truncation_of_texts_and_of_vectors(encoder: SentenceEncoder, llm: pyggml.LLM) -> None:
    long = "a dog " * 400
    assert encoder.encode(long).shape == (encoder.get_sentence_embedding_dimension(),)
    encoder.max_seq_length = 8
    np.testing.assert_array_equal(encoder.encode(long), llm.embed(long, truncate=True, max_tokens=8))
    assert encoder.get_max_seq_length() == 8
    short = encoder.encode(TEXTS, truncate_dim=4, normalize_embeddings=True)
    assert short.shape == (3, 4)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-5)
    assert SentenceEncoder(llm, truncate_dim=4).get_sentence_embedding_dimension() == 4


def test_token_embeddings(encoder: SentenceEncoder, llm: pyggml.LLM) -> None:
    for found, expected in zip(
        encoder.encode(TEXTS, output_value="token_embeddings"), llm.embed(TEXTS, pooling="none"), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities(name: Any, llm: pyggml.LLM) -> None:
    encoder = SentenceEncoder(llm, similarity_fn_name=name)
    vectors = encoder.encode(TEXTS)
    found = encoder.similarity(vectors, vectors)
    assert found.shape == (3, 3)
    np.testing.assert_allclose(found, found.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(encoder.similarity_pairwise(vectors, vectors), found.diagonal(), rtol=1e-4, atol=1e-4)
    if name == "cosine":
        np.testing.assert_allclose(found.diagonal(), 1, atol=1e-5)
    elif name != "dot":
        np.testing.assert_allclose(found.diagonal(), 0, atol=1e-3)


def test_copies_share_the_model(encoder: SentenceEncoder) -> None:
    assert copy.deepcopy(encoder) is encoder
    assert encoder.eval().to("cpu") is encoder


@pytest.mark.parametrize(("options", "named"), [({"precision": "int8"}, "int8"), ({"output_value": "x"}, "'x'")])
def test_wrong_arguments(options: Any, named: str, encoder: SentenceEncoder) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match=named):
        encoder.encode("a", **options)


# --- what a model's file says -----------------------------------------------------------------------------------

PROMPTS = {"query": "search query: ", "passage": "search document: ", "cluster": "topic: "}
PROFILE = EmbeddingProfile(
    pooling=("cls",), normalize=True, max_tokens=12, lowercase=True, prompts=PROMPTS, similarity="euclidean"
)


def load_with(folder: Path, profile: EmbeddingProfile, **options: Any) -> pyggml.LLM:
    return pyggml.load(models.write_bert(folder / "model.gguf", profile=profile, **options), n_threads=1)


def test_settings_of_the_file(tmp_path: Path, llm: pyggml.LLM) -> None:
    with load_with(tmp_path, PROFILE) as own:
        encoder = SentenceEncoder(own)
        assert (encoder.prompts, encoder.similarity_fn_name, encoder.get_max_seq_length()) == (PROMPTS, "euclidean", 12)
        same: Any = {"pooling": "cls", "normalize": True, "truncate": True, "max_tokens": 12}
        long = ["a dog " * 20, "A CAT"]
        np.testing.assert_array_equal(encoder.encode(long), llm.embed([text.lower() for text in long], **same))
        np.testing.assert_array_equal(
            encoder.encode_query(TEXTS), llm.embed([f"search query: {t}" for t in TEXTS], **same)
        )
        np.testing.assert_array_equal(encoder.encode_document("a dog"), llm.embed("search document: a dog", **same))
        cut = encoder.encode("a dog", truncate_dim=4)
        np.testing.assert_array_equal(cut, llm.embed("a dog", **same)[:4])
        other = SentenceEncoder(own, prompts={"query": "q: "}, similarity_fn_name="dot", pooling="mean")
        assert other.similarity_fn_name == "dot"
        np.testing.assert_array_equal(other.encode_query("a dog"), llm.embed("q: a dog", **{**same, "pooling": "mean"}))


def test_the_default_prompt(tmp_path: Path, llm: pyggml.LLM) -> None:
    profile = EmbeddingProfile(prompts=PROMPTS, default_prompt="cluster", lowercase=True)
    with load_with(tmp_path, profile) as own:
        encoder = SentenceEncoder(own)
        np.testing.assert_array_equal(encoder.encode("a dog"), llm.embed("topic: a dog"))
        np.testing.assert_array_equal(encoder.encode("A dog", prompt=""), llm.embed("a dog"))
        np.testing.assert_array_equal(encoder.encode("a dog", prompt="x: "), llm.embed("x: a dog"))
        other = SentenceEncoder(own, default_prompt_name="query")
        np.testing.assert_array_equal(other.encode("a dog"), llm.embed("search query: a dog"))


def test_prompts_that_are_left_out_of_the_pooling(tmp_path: Path) -> None:
    with load_with(tmp_path, EmbeddingProfile(pooling=("mean",), prompts=PROMPTS, include_prompt=False)) as own:
        encoder = SentenceEncoder(own)
        np.testing.assert_array_equal(encoder.encode_query("a dog"), own.embed("a dog", prompt_name="query"))
        with pytest.raises(pyggml.InvalidParameterError, match=r"'x: ' is not one of the model's own.*query, passage"):
            encoder.encode("a dog", prompt="x: ")


def test_layers_after_the_pooling(tmp_path: Path) -> None:
    layer = DenseLayer(0, models.N_EMBD, 16)
    weight = np.random.default_rng(0).normal(size=(16, models.N_EMBD)).astype(np.float32)
    profile = EmbeddingProfile(pooling=("mean",), dense=(layer,))
    with load_with(tmp_path, profile, dense={layer.weight_key: weight.ravel()}) as own:
        encoder = SentenceEncoder(own)
        assert encoder.get_sentence_embedding_dimension() == 16
        assert encoder.encode([]).shape == (0, 16)
        np.testing.assert_array_equal(encoder.encode(TEXTS), own.embed(TEXTS))


def test_a_model_that_embeds_tokens(tmp_path: Path) -> None:
    profile = EmbeddingProfile(
        is_multi_vector=True, normalize=True, query_tokens=12, expansion_token=103, prompts={"query": "[Q] "}
    )
    with load_with(tmp_path, profile) as own:
        encoder = SentenceEncoder(own)
        queries, documents = encoder.encode_query(["a dog", "a cat"]), encoder.encode_document(TEXTS)
        assert [len(each) for each in queries] == [12, 12]
        np.testing.assert_array_equal(queries[0], own.embed_query("a dog"))
        np.testing.assert_array_equal(documents[2], own.embed_documents(TEXTS[2]))
        found = encoder.similarity(queries, documents)
        np.testing.assert_allclose(found, own.similarity(queries, documents))
        np.testing.assert_allclose(encoder.similarity_pairwise(queries, documents[:2]), found[:, :2].diagonal())
        with pytest.raises(pyggml.InvalidParameterError, match="not one of the model's own"):
            encoder.encode("a dog", prompt="x: ")

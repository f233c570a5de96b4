"""The methods of sentence-transformers on any model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml
from pyggml.integrations.sentence_transformers import SentenceEncoder

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

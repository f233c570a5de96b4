"""Prompts, dimensions, types and similarity of embeddings, as the model's file and the caller say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import models

import pyggml
from pyggml.options.embedding_profile import DenseLayer, EmbeddingProfile, apply_dense

PROMPTS = {"query": "search query: ", "passage": "search document: ", "cluster": "topic: "}
PROFILE = EmbeddingProfile(
    pooling=("mean",), normalize=True, max_tokens=24, prompts=PROMPTS, dimensions=(16, 32, 64), similarity="cosine"
)
TEXTS = ["The dog was happy.", "It rained all day in the old town", "dogs", "x y z " * 5]


def bert(folder: Path, name: str, profile: EmbeddingProfile, **options: Any) -> pyggml.LLM:
    return pyggml.load(models.write_bert(folder / f"{name}.gguf", profile=profile, **options), n_threads=1)


@pytest.fixture(scope="module")
def plain(bert_path: Path) -> Iterator[pyggml.LLM]:
    """The model without a profile."""
    with pyggml.load(bert_path, n_threads=1) as llm:
        llm.embed("makes the context, which is not any test's own")
        yield llm


@pytest.fixture(scope="module")
def llm(model_dir: Path) -> Iterator[pyggml.LLM]:
    with bert(model_dir, "with-profile", PROFILE) as llm:
        llm.embed("likewise")
        yield llm


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


class TestPrompts:
    def test_by_name(self, llm: pyggml.LLM, plain: pyggml.LLM) -> None:
        for name, prompt in PROMPTS.items():
            expected = plain.embed([prompt + text for text in TEXTS], normalize=True)
            np.testing.assert_array_equal(llm.embed(TEXTS, prompt_name=name), expected)
        np.testing.assert_array_equal(llm.embed(TEXTS), plain.embed(TEXTS, normalize=True))

    def test_of_queries_and_documents(self, llm: pyggml.LLM, plain: pyggml.LLM) -> None:
        query, passage = llm.embed_query(TEXTS[0]), llm.embed_documents(TEXTS)
        np.testing.assert_array_equal(query, llm.embed(TEXTS[0], prompt_name="query"))
        np.testing.assert_array_equal(passage, llm.embed(TEXTS, prompt_name="passage"))
        assert np.array_equal(asyncio.run(llm.aembed_query(TEXTS[0])), query)
        assert np.array_equal(asyncio.run(llm.aembed_documents(TEXTS)), passage)
        np.testing.assert_array_equal(plain.embed_query(TEXTS), plain.embed(TEXTS))
        np.testing.assert_array_equal(plain.embed_documents(TEXTS), plain.embed(TEXTS))

    def test_by_default(self, tmp_path: Path, plain: pyggml.LLM) -> None:
        with bert(tmp_path, "default", EmbeddingProfile(prompts=PROMPTS, default_prompt="cluster")) as llm:
            np.testing.assert_array_equal(llm.embed(TEXTS), plain.embed(["topic: " + text for text in TEXTS]))
            ids = llm.tokenize("dogs")
            np.testing.assert_array_equal(llm.embed([ids]), plain.embed([ids]))

    def test_left_out_of_the_pooling(self, tmp_path: Path, plain: pyggml.LLM) -> None:
        profile = EmbeddingProfile(pooling=("mean",), prompts=PROMPTS, include_prompt=False)
        with bert(tmp_path, "exclusive", profile) as llm:
            n_prompt = len(llm.tokenize(PROMPTS["query"])) - 1
            rows = plain.embed([PROMPTS["query"] + text for text in TEXTS], pooling="none")
            expected = [each[n_prompt:].mean(axis=0, dtype=np.float64) for each in rows]
            np.testing.assert_allclose(llm.embed(TEXTS, prompt_name="query"), expected, atol=1e-6)

    def test_unknown(self, llm: pyggml.LLM, plain: pyggml.LLM) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match="one of 'query', 'passage', 'cluster', not 'code'"):
            llm.embed(TEXTS, prompt_name="code")
        with pytest.raises(pyggml.InvalidParameterError, match="file has no prompts"):
            plain.embed(TEXTS, prompt_name="query")
        with pytest.raises(pyggml.InvalidParameterError, match="needs texts, and some are token ids"):
            llm.embed([[101, 102]], prompt_name="query")


class TestLength:
    def test_of_the_model(self, llm: pyggml.LLM, plain: pyggml.LLM) -> None:
        long = "some words " * 40
        with pytest.raises(pyggml.ContextOverflowError, match=r"texts\[1\] has .* max_tokens=24 of the model's file"):
            llm.embed(["short", long])
        cut = plain.embed([long], truncate=True, max_tokens=24, normalize=True)
        np.testing.assert_array_equal(llm.embed([long], truncate=True), cut)
        whole = plain.embed([long], normalize=True)
        np.testing.assert_array_equal(llm.embed([long], max_tokens=llm.n_ctx), whole)

    def test_lower_case(self, tmp_path: Path, plain: pyggml.LLM) -> None:
        with bert(tmp_path, "lower", EmbeddingProfile(lowercase=True)) as llm:
            np.testing.assert_array_equal(llm.embed("ÀÉ The DOG"), plain.embed("àé the dog"))


class TestForms:
    def test_normalized_as_the_file_says(self, llm: pyggml.LLM, plain: pyggml.LLM) -> None:
        np.testing.assert_allclose(np.linalg.norm(llm.embed(TEXTS), axis=1), 1, rtol=1e-6)
        np.testing.assert_array_equal(llm.embed(TEXTS, normalize=False), plain.embed(TEXTS))
        np.testing.assert_allclose(llm.embed(TEXTS), unit(plain.embed(TEXTS)), rtol=1e-5)

    def test_dimensions(self, llm: pyggml.LLM, plain: pyggml.LLM) -> None:
        assert llm.embedding_profile.dimensions == (16, 32, 64)
        np.testing.assert_allclose(llm.embed(TEXTS, dimensions=16), unit(plain.embed(TEXTS)[:, :16]), rtol=1e-5)
        np.testing.assert_array_equal(plain.embed(TEXTS, dimensions=5), plain.embed(TEXTS)[:, :5])
        assert llm.embed("a", dimensions=16).shape == (16,)
        for wrong in (0, models.N_EMBD + 1, "8"):
            with pytest.raises(pyggml.InvalidParameterError, match=r"dimensions must be .*vectors have 64 numbers"):
                llm.embed(TEXTS, dimensions=wrong)  # type: ignore[arg-type]

    def test_float16(self, llm: pyggml.LLM) -> None:
        found = llm.embed(TEXTS, dtype="float16")
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, llm.embed(TEXTS).astype(np.float16))

    def test_int8_keeps_directions(self, llm: pyggml.LLM) -> None:
        found, exact = llm.embed(TEXTS, dtype="int8"), llm.embed(TEXTS)
        assert found.dtype == np.int8
        assert np.abs(found.astype(int)).max(axis=1).tolist() == [127] * len(TEXTS)
        assert (unit(found.astype(np.float64)) * exact).sum(axis=1).min() > 0.9998
        np.testing.assert_array_equal(found[:1], llm.embed(TEXTS[:1], dtype="int8"))

    def test_binary(self, llm: pyggml.LLM) -> None:
        found = llm.embed(TEXTS, dtype="binary")
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(np.unpackbits(found, axis=1), llm.embed(TEXTS) > 0)
        assert llm.embed(TEXTS, dtype="binary", dimensions=16).shape == (len(TEXTS), 2)
        with pytest.raises(pyggml.InvalidParameterError, match="20 is no multiple of 8: pass dimensions=16"):
            llm.embed(TEXTS, dtype="binary", dimensions=20)

    @pytest.mark.parametrize("dtype", ["int8", "binary"])
    def test_whole_numbers_are_not_normalized(self, llm: pyggml.LLM, dtype: Any) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match="have no length 1"):
            llm.embed(TEXTS, dtype=dtype, normalize=True)
        with pytest.raises(pyggml.InvalidParameterError, match="dtype must be one of"):
            llm.embed(TEXTS, dtype=f"u{dtype}")  # type: ignore[call-overload]

    def test_of_token_vectors(self, llm: pyggml.LLM) -> None:
        exact = llm.embed(TEXTS, pooling="none")
        for found, rows in zip(llm.embed(TEXTS, pooling="none", dtype="float16", dimensions=8), exact, strict=True):
            np.testing.assert_allclose(found, unit(rows[:, :8]).astype(np.float16), rtol=2e-3)

    def test_of_no_texts(self, llm: pyggml.LLM) -> None:
        assert llm.embed([], dtype="binary").shape == (0, models.N_EMBD // 8)
        assert llm.embed([], dtype="int8", dimensions=7).shape == (0, 7)
        assert llm.embed([], pooling="none") == []


class TestLayers:
    def test_concatenated_poolings_and_dense_layers(self, tmp_path: Path, plain: pyggml.LLM) -> None:
        rng = np.random.default_rng(0)
        layers = (
            DenseLayer(0, 2 * models.N_EMBD, 48, has_bias=True, activation="tanh"),
            DenseLayer(1, 48, 48, is_residual=True),
        )
        arrays = {
            layers[0].weight_key: rng.normal(size=48 * 2 * models.N_EMBD).astype(np.float32),
            layers[0].bias_key: rng.normal(size=48).astype(np.float32),
            layers[1].weight_key: rng.normal(size=48 * 48).astype(np.float32),
        }
        expected = np.concatenate([plain.embed(TEXTS, pooling="cls"), plain.embed(TEXTS, pooling="max")], axis=1)
        for layer in layers:
            weight = arrays[layer.weight_key].reshape(layer.n_out, layer.n_in)
            expected = apply_dense(layer, weight, arrays.get(layer.bias_key), expected)
        profile = EmbeddingProfile(pooling=("cls", "max"), dense=layers)
        with bert(tmp_path, "layers", profile, dense=arrays) as llm:
            found = llm.embed(TEXTS)
            assert llm.n_dimensions == 48
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(found, np.stack([llm.embed(text) for text in TEXTS]))

    def test_token_vectors(self, tmp_path: Path, plain: pyggml.LLM) -> None:
        rng = np.random.default_rng(0)
        layer = DenseLayer(0, models.N_EMBD, 16)
        weight = rng.normal(size=(16, models.N_EMBD)).astype(np.float32)
        mask, stop = 103, plain.tokenize(".")[1]
        profile = EmbeddingProfile(
            is_multi_vector=True,
            normalize=True,
            dense=(layer,),
            query_tokens=12,
            expansion_token=mask,
            skipped_tokens=(stop,),
            prompts={"query": "[Q] "},
        )
        with bert(tmp_path, "colbert", profile, dense={layer.weight_key: weight.ravel()}) as llm:
            ids = llm.tokenize(TEXTS[0])
            (rows,) = plain.embed([ids], pooling="none")
            (found,) = llm.embed([TEXTS[0]])
            np.testing.assert_allclose(found, unit(rows @ weight.T), rtol=1e-4, atol=1e-5)
            (document,) = llm.embed_documents([TEXTS[0]])
            np.testing.assert_array_equal(document, found[np.array(ids) != stop])
            query = llm.tokenize("[Q] dogs")
            (expected,) = plain.embed([query + [mask] * (12 - len(query))], pooling="none")
            np.testing.assert_allclose(llm.embed_query("dogs"), unit(expected @ weight.T), rtol=1e-4, atol=1e-5)
            queries, documents = [llm.embed_query("dogs")], llm.embed_documents(TEXTS)
            scores = [[(q @ d.T).max(axis=1).sum() for d in documents] for q in queries]
            np.testing.assert_allclose(llm.similarity(queries, documents), scores, rtol=1e-5)


class TestSimilarity:
    def test_cosines(self, plain: pyggml.LLM) -> None:
        a, b = plain.embed(TEXTS), plain.embed(TEXTS[:2])
        np.testing.assert_allclose(plain.similarity(a, b), unit(a) @ unit(b).T, rtol=1e-5)
        assert plain.similarity(a[0], b).shape == (2,)
        assert plain.similarity(a, b[0]).shape == (4,)
        assert plain.similarity(a[0], a[0]) == pytest.approx(1)

    @pytest.mark.parametrize("kind", ["dot", "euclidean", "manhattan"])
    def test_as_the_file_says(self, tmp_path: Path, kind: Any) -> None:
        a, b = np.random.default_rng(0).normal(size=(2, 3, models.N_EMBD)).astype(np.float32)
        difference = a[:, np.newaxis] - b
        expected = {
            "dot": a @ b.T,
            "euclidean": -np.linalg.norm(difference, axis=2),
            "manhattan": -np.abs(difference).sum(axis=2),
        }
        with bert(tmp_path, kind, EmbeddingProfile(similarity=kind)) as llm:
            np.testing.assert_allclose(llm.similarity(a, b), expected[kind], rtol=1e-4)

    def test_of_other_types(self, llm: pyggml.LLM) -> None:
        exact = llm.similarity(llm.embed(TEXTS), llm.embed(TEXTS))
        whole = llm.embed(TEXTS, dtype="int8")
        np.testing.assert_allclose(llm.similarity(whole, whole), exact, atol=0.02)
        bits = llm.embed(TEXTS, dtype="binary")
        differing = np.unpackbits(np.bitwise_xor(bits[:, np.newaxis], bits), axis=2).sum(axis=2)
        np.testing.assert_allclose(llm.similarity(bits, bits), 1 - 2 * differing / models.N_EMBD, atol=1e-6)

    def test_of_what_is_no_vector(self, llm: pyggml.LLM) -> None:
        with pytest.raises(pyggml.InvalidParameterError, match="embed texts first"):
            llm.similarity(TEXTS, TEXTS)
        with pytest.raises(pyggml.InvalidParameterError, match="same number of dimensions"):
            llm.similarity(np.zeros(3), np.zeros(4))

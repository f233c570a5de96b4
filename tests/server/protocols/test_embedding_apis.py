"""Embeddings and scores in the formats of Cohere, Jina, Voyage and vLLM, and a single text during a bulk request."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.checkpoints import models
from support.servers import servers

import pyggml
from pyggml.generation.embedding.job import Job
from pyggml.generation.embedding.pass_queue import PassQueue
from pyggml.options.embedding_profile import EmbeddingProfile
from pyggml.server import Settings, create_app
from pyggml.server.settings.options import ModelSpec

TEXTS = ["The dog was happy.", "It rained."]
PROMPTS = {"query": "search query: ", "document": "search document: ", "code": "code: "}
QUERY, DOCUMENTS = "What do dogs eat?", ["Dogs eat meat.", "It rained.", "Cats sleep."]


@pytest.fixture(scope="module")
def encoder(model_dir: Path) -> Path:
    profile = EmbeddingProfile(pooling=("mean",), prompts=PROMPTS, max_tokens=64)
    return models.write_bert(model_dir / "encoder-of-apis.gguf", profile=profile)


@pytest.fixture(scope="module")
def reranker(model_dir: Path) -> Path:
    return models.write_bert(model_dir / "reranker-of-apis.gguf", seed=3, ranks=True)


@pytest.fixture(scope="module")
def url(encoder: Path, reranker: Path) -> Iterator[str]:
    specs = (ModelSpec(str(encoder), "encoder"), ModelSpec(str(reranker), "reranker"))
    with servers.serving(create_app(Settings(models=specs))) as url:
        post(f"{url}/v1/embeddings", input="a", model="encoder")  # makes contexts, which then stay
        post(f"{url}/v1/rerank", query="a", documents=["b"], model="reranker")
        yield url


@pytest.fixture(scope="module")
def llm(encoder: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(encoder, n_threads=1) as llm:
        llm.embed("likewise")
        yield llm


@pytest.fixture(scope="module")
def ranker(reranker: Path) -> Iterator[pyggml.LLM]:
    with pyggml.load(reranker, n_threads=1) as llm:
        llm.rerank("likewise", ["likewise"])
        yield llm


def post(url: str, **body: Any) -> Any:
    answer = httpx.post(url, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def embedded(url: str, texts: Any = TEXTS, **body: Any) -> Any:
    found = post(f"{url}/v1/embeddings", input=texts, model="encoder", **body)
    return [each["embedding"] for each in found["data"]]


class TestEmbeddings:
    @pytest.mark.parametrize(
        ("body", "prompt"),
        [
            ({"prompt_name": "code"}, "code: "),
            ({"input_type": "code"}, "code: "),
            ({"input_type": "search_query"}, "search query: "),
            ({"task": "retrieval.passage"}, "search document: "),
            ({"input_type": "classification"}, ""),
        ],
    )
    def test_prompts(self, url: str, llm: pyggml.LLM, body: dict[str, str], prompt: str) -> None:
        expected = llm.embed([prompt + text for text in TEXTS], normalize=True)
        np.testing.assert_allclose(embedded(url, **body), expected, atol=1e-6)

    def test_types(self, url: str, llm: pyggml.LLM) -> None:
        whole, bits = llm.embed(TEXTS, dtype="int8").astype(int), llm.embed(TEXTS, dtype="binary").astype(int)
        expected = {"int8": whole, "uint8": whole + 128, "ubinary": bits, "binary": bits - 128}
        for name, numbers in expected.items():
            assert embedded(url, embedding_type=name) == numbers.tolist()
            assert embedded(url, output_dtype=name, dimensions=llm.n_dimensions) == numbers.tolist()
        coded = embedded(url, embedding_type="ubinary", encoding_format="base64")
        assert [list(base64.b64decode(each)) for each in coded] == bits.tolist()
        np.testing.assert_allclose(embedded(url, normalized=False), llm.embed(TEXTS), atol=1e-6)

    def test_objects(self, url: str) -> None:
        assert embedded(url, [{"text": text} for text in TEXTS]) == embedded(url)

    def test_long_texts(self, url: str, llm: pyggml.LLM) -> None:
        long = "word " * 200
        cut = llm.embed([long], truncate=True, normalize=True)
        np.testing.assert_allclose(embedded(url, [long], truncate=True), cut, atol=1e-6)
        np.testing.assert_allclose(embedded(url, [long], truncate_prompt_tokens=-1), cut, atol=1e-6)
        eight = llm.embed([long], truncate=True, max_tokens=8, normalize=True)
        np.testing.assert_allclose(embedded(url, [long], truncate_prompt_tokens=8), eight, atol=1e-6)

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"input_type": "poem"}, "known are query, document"),
            ({"prompt_name": "poem"}, "'query', 'document', 'code'"),
            ({"embedding_type": "int4"}, "embedding_type"),
            ({"embedding_type": "binary", "dimensions": 20}, "no multiple of 8"),
            ({"embedding_type": "int8", "dimensions": 1000}, "dimensions"),
            ({"input": ["word " * 200]}, 'send \\"truncate\\": true'),
        ],
    )
    def test_errors(self, url: str, body: dict[str, Any], words: str) -> None:
        answer = httpx.post(f"{url}/v1/embeddings", json={"input": TEXTS, "model": "encoder", **body})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text
        assert words in answer.text


class TestCohere:
    def test_vectors_by_type(self, url: str, llm: pyggml.LLM) -> None:
        body = {"model": "encoder", "texts": TEXTS, "input_type": "search_document"}
        found = post(f"{url}/v2/embed", embedding_types=["float", "int8", "ubinary", "base64"], **body)
        floats = llm.embed_documents(TEXTS, normalize=True)
        np.testing.assert_allclose(found["embeddings"]["float"], floats, atol=1e-6)
        assert found["embeddings"]["int8"] == llm.embed_documents(TEXTS, dtype="int8").tolist()
        assert found["embeddings"]["ubinary"] == llm.embed_documents(TEXTS, dtype="binary").tolist()
        coded = b"".join(map(base64.b64decode, found["embeddings"]["base64"]))
        np.testing.assert_allclose(np.frombuffer(coded, "<f4").reshape(floats.shape), floats, atol=1e-6)
        n_tokens = sum(len(llm.tokenize(PROMPTS["document"] + text)) for text in TEXTS)
        assert found["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": n_tokens}}
        assert (found["texts"], found["response_type"]) == (TEXTS, "embeddings_by_type")
        assert list(post(f"{url}/v2/embed", **body)["embeddings"]) == ["float"]

    def test_first_version(self, url: str, llm: pyggml.LLM) -> None:
        found = post(f"{url}/v1/embed", model="encoder", texts=TEXTS, output_dimension=16)
        np.testing.assert_allclose(found["embeddings"], llm.embed(TEXTS, normalize=True, dimensions=16), atol=1e-6)
        assert found["response_type"] == "embeddings_floats"

    def test_long_texts_are_cut_off(self, url: str, llm: pyggml.LLM) -> None:
        body = {"model": "encoder", "texts": ["word " * 200]}
        found = post(f"{url}/v2/embed", **body)["embeddings"]["float"]
        np.testing.assert_allclose(found, llm.embed(body["texts"], truncate=True, normalize=True), atol=1e-6)
        for truncate, words in (("NONE", "max_tokens=64"), ("START", "cannot be cut off")):
            answer = httpx.post(f"{url}/v2/embed", json={**body, "truncate": truncate})
            assert (answer.status_code, words in answer.text) == (400, True), answer.text


class TestScores:
    def test_of_a_reranker(self, url: str, ranker: pyggml.LLM) -> None:
        expected = ranker.rerank(QUERY, DOCUMENTS, normalize=True)
        found = post(f"{url}/v1/score", model="reranker", text_1=QUERY, text_2=DOCUMENTS)
        assert [each["index"] for each in found["data"]] == [0, 1, 2]
        np.testing.assert_allclose([each["score"] for each in found["data"]], expected, atol=1e-6)
        assert found["usage"]["total_tokens"] == sum(map(len, ranker.rerank_ids(QUERY, DOCUMENTS)))
        other_names = post(f"{url}/v1/score", model="reranker", queries=QUERY, documents=DOCUMENTS)
        assert other_names["data"] == found["data"]
        queries = ["a", "b", "c"]
        pairs = post(f"{url}/score", model="reranker", text_1=queries, text_2=DOCUMENTS, raw_scores=True)
        raw = [ranker.rerank(*pair)[0] for pair in zip(queries, ([each] for each in DOCUMENTS), strict=True)]
        np.testing.assert_allclose([each["score"] for each in pairs["data"]], raw, atol=1e-6)

    def test_of_an_encoder(self, url: str, llm: pyggml.LLM) -> None:
        found = post(f"{url}/v1/score", model="encoder", text_1=QUERY, text_2=DOCUMENTS)
        expected = llm.similarity(llm.embed(QUERY), llm.embed(DOCUMENTS))
        np.testing.assert_allclose([each["score"] for each in found["data"]], expected, atol=1e-6)

    def test_of_other_numbers_of_texts(self, url: str) -> None:
        answer = httpx.post(f"{url}/v1/score", json={"text_1": ["a", "b"], "text_2": ["c"], "model": "reranker"})
        assert (answer.status_code, "text_1 and 1 in text_2" in answer.text) == (400, True), answer.text


class TestRanking:
    def test_long_documents(self, url: str, ranker: pyggml.LLM) -> None:
        body = {"model": "reranker", "query": QUERY, "documents": [*DOCUMENTS, "word " * 600]}
        refused = httpx.post(f"{url}/v1/rerank", json=body)
        assert (refused.status_code, 'send \\"long_documents\\"' in refused.text) == (400, True), refused.text
        for more, mode in (({"truncate": True}, "truncate"), ({"long_documents": "windows"}, "windows")):
            results = post(f"{url}/v1/rerank", **body, **more)["results"]
            expected = ranker.rerank(QUERY, body["documents"], normalize=True, top_n=4, long_documents=mode)  # type: ignore[call-overload]
            assert [each["index"] for each in results] == [each.index for each in expected]
            np.testing.assert_allclose([r["relevance_score"] for r in results], [e.score for e in expected], atol=1e-6)

    def test_top_k(self, url: str) -> None:
        found = post(f"{url}/v2/rerank", model="reranker", query=QUERY, documents=DOCUMENTS, top_k=1)
        assert len(found["results"]) == 1
        assert found["id"]
        assert found["meta"]["api_version"] == {"version": "2"}


def test_a_single_text_beside_a_bulk_request(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []
    submit = PassQueue.submit

    def watch(self: PassQueue, job: Job) -> None:
        jobs.append(job)
        submit(self, job)

    monkeypatch.setattr(PassQueue, "submit", watch)
    bulk = [f"{'some words of a bulk request ' * 8}{n}" for n in range(2048)]
    thread = threading.Thread(target=embedded, args=(url, bulk))
    thread.start()
    while not jobs:
        time.sleep(0.001)
    for _ in range(5):
        embedded(url, ["hello"])
    assert not jobs[0].has_ended
    thread.join()
    assert [job.n_passes_missed for job in jobs[1:]] == [0] * 5

"""OpenAI's embeddings, reranking and the list of models, as a client of HTTP sees them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.checkpoints import models
from support.servers import servers

import pyggml
from pyggml.server import Settings, create_app
from pyggml.server.settings.options import ModelSpec

TEXTS = ["The dog was happy.", "It rained."]
QUERY, DOCUMENTS = "What do dogs eat?", ["Dogs eat meat.", "It rained.", "Cats sleep."]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.write_bert(tmp_path_factory.mktemp("encoder") / "encoder.gguf")


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.write_bert(tmp_path_factory.mktemp("reranker") / "reranker.gguf", ranks=True)


@pytest.fixture(scope="module")
def url(encoder: Path) -> Iterator[str]:
    with servers.serving(create_app(Settings(models=(ModelSpec(str(encoder)),)))) as url:
        embedded(url, "a")  # makes its context, which then stays
        yield url


@pytest.fixture(scope="module")
def ranking_url(reranker: Path) -> Iterator[str]:
    with servers.serving(create_app(Settings(models=(ModelSpec(str(reranker)),)))) as url:
        httpx.post(f"{url}/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS})  # makes its context
        yield url


def embedded(url: str, texts: Any, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/embeddings", json={"input": texts, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert [each["index"] for each in found["data"]] == list(range(len(found["data"])))
    return found


@pytest.mark.slow
def test_vectors(url: str, encoder: Path) -> None:
    with pyggml.load(encoder) as llm:
        expected = llm.embed(TEXTS, normalize=True)
        ids = [llm.tokenize(text) for text in TEXTS]
    n_tokens = sum(map(len, ids))
    for texts in (TEXTS, ids, [TEXTS[0], ids[1]]):
        found = embedded(url, texts)
        np.testing.assert_allclose([each["embedding"] for each in found["data"]], expected, atol=1e-6)
        assert found["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    for text in (TEXTS[0], ids[0]):
        (one,) = embedded(url, text)["data"]
        np.testing.assert_allclose(one["embedding"], expected[0], atol=1e-6)
    coded = embedded(url, TEXTS, encoding_format="base64")["data"]
    found_bytes = b"".join(base64.b64decode(each["embedding"]) for each in coded)
    np.testing.assert_allclose(np.frombuffer(found_bytes, "<f4").reshape(expected.shape), expected, atol=1e-6)
    short = np.array([each["embedding"] for each in embedded(url, TEXTS, dimensions=4)["data"]])
    scaled = expected[:, :4] / np.linalg.norm(expected[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(short, scaled, atol=1e-6)


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    "body",
    [
        {"input": []},
        {"input": None},
        {"input": {"content": "a"}},
        {"input": [[]]},
        {"input": [10**6]},
        {"input": ["a", 5]},
        {"input": "word " * 5000},
        {"input": "a", "encoding_format": "hex"},
        {"input": "a", "dimensions": 0},
        {"input": "a", "dimensions": 10_000},
    ],
)
def test_what_is_not_embedded(body: dict[str, Any], url: str) -> None:
    answer = httpx.post(f"{url}/v1/embeddings", json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/embeddings", {"input": []}, "input: The list is empty"),
        ("/v1/embeddings", {"input": ["a", []]}, "input[1] has no tokens"),
        ("/v1/embeddings", {"input": ["a", "word " * 600]}, "input[1] has 602 tokens"),
        ("/api/embed", {"input": ["word " * 600], "truncate": False, "model": "m"}, "leave out truncate"),
        ("/api/embeddings", {"prompt": "word " * 600, "model": "m"}, "prompt has 602 tokens"),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}, "compare embeddings from /v1/embeddings"),
    ],
)
def test_errors_name_fields_of_the_request(path: str, body: dict[str, Any], words: str, url: str) -> None:
    answer = httpx.post(f"{url}{path}", json={**body, "model": "default"}, timeout=60)
    assert answer.status_code == 400
    assert words in answer.text
    for name in ("texts", "truncate=True", "embed()"):
        assert name not in answer.text


def test_an_encoder_does_not_chat(url: str) -> None:
    answer = httpx.post(f"{url}/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported")


@pytest.mark.slow
def test_documents_are_ranked(ranking_url: str, reranker: Path) -> None:
    with pyggml.load(reranker) as llm:
        raw = llm.rerank(QUERY, DOCUMENTS)
        n_tokens = sum(map(len, llm.rerank_ids(QUERY, DOCUMENTS)))
    order = (-raw).argsort().tolist()
    body: dict[str, Any] = {"query": QUERY, "documents": DOCUMENTS}
    found = httpx.post(f"{ranking_url}/v1/rerank", json={**body, "return_documents": True}).json()
    assert [each["index"] for each in found["results"]] == order
    assert [each["document"]["text"] for each in found["results"]] == [DOCUMENTS[i] for i in order]
    scores = [each["relevance_score"] for each in found["results"]]
    assert scores == pytest.approx([1 / (1 + np.exp(-raw[i])) for i in order], abs=1e-4)
    assert found["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    for path in ("/rerank", "/v2/rerank"):
        objects = [{"text": document} for document in DOCUMENTS]
        best = httpx.post(f"{ranking_url}{path}", json={"query": QUERY, "documents": objects, "top_n": 1}).json()
        assert [each["index"] for each in best["results"]] == order[:1]
        assert "document" not in best["results"][0]
    listed = httpx.post(f"{ranking_url}/rerank", json={"query": QUERY, "texts": DOCUMENTS, "raw_scores": True}).json()
    assert [each["score"] for each in listed] == pytest.approx([float(raw[i]) for i in order], abs=1e-4)
    assert len(httpx.post(f"{ranking_url}/rerank", json={**body, "top_n": 99}).json()["results"]) == 3


@pytest.mark.parametrize("documents", [[], None, 123, [1, 2, 3]])
def test_what_is_not_ranked(documents: Any, ranking_url: str) -> None:
    answer = httpx.post(f"{ranking_url}/v1/rerank", json={"query": QUERY, "documents": documents})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text


def test_a_model_without_a_head_does_not_rank(url: str) -> None:
    answer = httpx.post(f"{url}/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS})
    assert answer.status_code == 400
    assert "no classifier head" in answer.json()["error"]["message"]


@pytest.mark.slow
def test_the_models_are_listed(url: str) -> None:
    (only,) = httpx.get(f"{url}/v1/models").json()["data"]
    assert httpx.get(f"{url}/models").json()["data"] == [only]
    assert only["max_model_len"] == only["meta"]["n_ctx"] > 0
    assert (only["object"], only["owned_by"]) == ("model", "pyggml")
    assert httpx.get(f"{url}/v1/models/{only['id']}").json() == only
    assert httpx.get(f"{url}/v1/models/default").json() == only
    missing = httpx.get(f"{url}/v1/models/org/stranger")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert embedded(url, "a", model=only["id"])["model"] == only["id"]

"""``/completion`` and ``/embedding`` of llama-server, paths without /v1, ``/version`` and ``/docs``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from support.servers import servers

import pyggml

PROMPT: dict[str, Any] = {"prompt": "Once upon", "n_predict": 4, "temperature": 0}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with servers.serving() as url, httpx.Client(base_url=url, timeout=60) as client:
        client.post("/v1/embeddings", json={"input": "a"})  # makes their context, which then stays
        yield client


def test_completion(http: httpx.Client) -> None:
    whole = http.post("/completion", json={**PROMPT, "n_probs": 2}).json()
    assert whole["content"].startswith(" a time")
    assert (whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (True, "limit", 4)
    assert [each["id"] for each in whole["completion_probabilities"]] == whole["tokens"]
    assert all(len(each["top_logprobs"]) == 2 for each in whole["completion_probabilities"])
    events = http.post("/completion", json={**PROMPT, "stream": True}).text.strip().split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
    assert [chunk["stop"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    stopped = http.post("/completion", json={**PROMPT, "stop": ["time"]}).json()
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", "time")


def test_prompts(http: httpx.Client) -> None:
    ids = http.post("/tokenize", json={"content": " upon"}).json()["tokens"]
    expected = http.post("/completion", json=PROMPT).json()["content"]
    start = http.post("/tokenize", json={"content": "Once", "add_special": True}).json()["tokens"]
    for prompt in ([*start, " upon"], [*start, *ids]):
        assert http.post("/completion", json={**PROMPT, "prompt": prompt}).json()["content"] == expected
    several = http.post("/completion", json={**PROMPT, "prompt": ["Once upon", "One"]}).json()
    assert [each["index"] for each in several] == [0, 1]
    assert several[0]["content"] == expected


def test_embedding(http: httpx.Client) -> None:
    [found] = http.post("/embedding", json={"content": "blue"}).json()
    [[*vector]] = [found["embedding"][0]]
    same = http.post("/embeddings", json={"input": "blue"}).json()["data"][0]["embedding"]
    np.testing.assert_array_equal(vector, same)
    [raw] = http.post("/embedding", json={"content": "blue", "embd_normalize": -1}).json()
    assert np.linalg.norm(raw["embedding"][0]) != pytest.approx(1, abs=1e-3)


def test_paths_without_v1(http: httpx.Client) -> None:
    assert http.post("/completions", json={"prompt": "a", "max_tokens": 1}).json()["object"] == "text_completion"
    assert http.post("/responses", json={"input": "a", "max_output_tokens": 1}).json()["object"] == "response"
    assert http.get("/version").json() == {"version": pyggml.__version__}


def test_docs(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in http.get("/openapi.json").json()["paths"]:
        assert path in page.text
    assert "<script" not in page.text

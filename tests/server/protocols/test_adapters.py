"""Adapters over HTTP: in a model's name, in llama-server's fields, and as a field of every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.checkpoints import lora_files
from support.device_kinds import Shelf
from support.servers import servers

import pyggml
from pyggml.server import ModelSpec, Settings, create_app


@pytest.fixture(scope="module")
def files(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [
        lora_files.write_adapter(folder / f"{name}.gguf", shelf("llama"), seed=n)
        for n, name in enumerate(("law", "tax"))
    ]


@pytest.fixture(scope="module")
def client(shelf: Shelf, files: list[Path]) -> Iterator[httpx.Client]:
    load = {"n_ctx": 1024, "n_threads": 1, "device": "cpu", "lora": f"{files[0]}:0,{files[1]}:0"}
    settings = Settings(models=(ModelSpec(shelf("llama"), "base"),), load=load)
    with servers.serving(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
        client.post("/v1/embeddings", json={"model": "base", "input": "makes a context that stays"})
        yield client


@pytest.fixture(scope="module")
def expected(shelf: Shelf, files: list[Path]) -> dict[str, str]:
    with pyggml.load(shelf("llama"), n_ctx=1024, n_threads=1, device="cpu") as llm:
        for file in files:
            llm.load_adapter(file)
        choices: dict[str, Any] = {"none": {}, "law": "law", "tax": "tax", "both": {"law": 0.5, "tax": 1.0}}
        return {
            name: llm.generate("Once", adapter=choice, max_tokens=8, ignore_eos=True).text
            for name, choice in choices.items()
        }


def complete(client: httpx.Client, **fields: Any) -> httpx.Response:
    body = {"model": "base", "prompt": "Once", "max_tokens": 8, "temperature": 0, "ignore_eos": True, **fields}
    return client.post("/v1/completions", json=body)


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "none"),
        ({"model": "base:law"}, "law"),
        ({"model": "default:tax"}, "tax"),
        ({"adapter": "tax"}, "tax"),
        ({"adapter": {"law": 0.5, "tax": 1.0}}, "both"),
        ({"lora": [{"id": 1, "scale": 1.0}, {"id": 0, "scale": 0.5}]}, "both"),
        ({"lora": [{"id": 0, "scale": 1.0}]}, "law"),
        ({"lora": []}, "none"),
        ({"adapter": None}, "none"),
        ({"model": "base:latest"}, "none"),
    ],
)
def test_requests(client: httpx.Client, expected: dict[str, str], fields: dict[str, Any], name: str) -> None:
    assert text(complete(client, **fields)) == expected[name]


def test_other_protocols(client: httpx.Client, expected: dict[str, str]) -> None:
    options = {"num_predict": 8, "temperature": 0, "ignore_eos": True}
    ollama = {"model": "base:law", "prompt": "Once", "raw": True, "stream": False, "options": options}
    assert client.post("/api/generate", json=ollama).json()["response"] == expected["law"]
    execute = {"model": "base:law", "prompt": "Once", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    assert client.post("/execute", json=execute).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"model": "base:wine"}, 404, "the model 'base' has no adapter 'wine': it has 'law', 'tax'"),
        ({"model": "other:law"}, 404, "there is no model 'other:law'"),
        ({"adapter": "wine"}, 400, "there is no adapter 'wine'"),
        ({"adapter": 3}, 400, ""),
        ({"lora": [{"id": 2, "scale": 1.0}]}, 400, "no adapter with id 2: they have ids 0 to 1"),
        ({"lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 2}]}, 400, "given twice"),
        ({"model": "base:law", "adapter": "tax"}, 400, "leave one of them out"),
    ],
)
def test_errors(client: httpx.Client, fields: dict[str, Any], status: int, message: str) -> None:
    response = complete(client, **fields)
    assert (response.status_code, message in response.json()["error"]["message"]) == (status, True), response.text


def test_embeddings(client: httpx.Client, shelf: Shelf, files: list[Path]) -> None:
    """In every protocol, by the model's name. tests/adapters/test_embedding.py compares with merged weights."""
    with pyggml.load(shelf("llama"), n_ctx=1024, n_threads=1, device="cpu", lora=str(files[0])) as llm:
        with_law = llm.embed("Once", normalize=True).astype(float)
        without = llm.embed("Once", normalize=True, adapter={}).astype(float)
    assert np.abs(with_law - without).max() > 0.01
    for name, vector in (("base:law", with_law), ("base", without)):
        found = [
            client.post("/v1/embeddings", json={"model": name, "input": "Once"}).json()["data"][0]["embedding"],
            client.post("/v2/embed", json={"model": name, "texts": ["Once"], "input_type": "classification"}).json()[
                "embeddings"
            ]["float"][0],
            client.post("/api/embed", json={"model": name, "input": "Once"}).json()["embeddings"][0],
        ]
        alone = np.array(client.post("/api/embeddings", json={"model": name, "prompt": "Once"}).json()["embedding"])
        found.append((alone / np.linalg.norm(alone)).tolist())
        for each in found:
            np.testing.assert_allclose(each, vector, atol=1e-5)
    scored = [
        client.post("/v1/score", json={"model": name, "text_1": "Once", "text_2": "upon"}).json()["data"][0]["score"]
        for name in ("base", "base:law")
    ]
    assert abs(scored[0] - scored[1]) > 1e-3
    assert client.post("/v1/embeddings", json={"model": "base:none", "input": "Once"}).status_code == 404


def test_default_scales(client: httpx.Client, expected: dict[str, str]) -> None:
    listed = client.get("/lora-adapters").json()
    assert listed == [
        {"id": 0, "name": "law", "path": "law.gguf", "scale": 0.0},
        {"id": 1, "name": "tax", "path": "tax.gguf", "scale": 0.0},
    ]
    try:
        assert client.post("/lora-adapters", json=[{"id": 0, "scale": 1.0}]).json() == {"success": True}
        assert text(complete(client)) == expected["law"]
        assert text(complete(client, adapter={})) == expected["none"]
        assert [each["scale"] for each in client.get("/lora-adapters").json()] == [1.0, 0.0]
        refused = client.post("/lora-adapters", json=[{"id": 7, "scale": 1.0}])
        assert (refused.status_code, text(complete(client))) == (400, expected["law"])
    finally:
        client.post("/lora-adapters", json=[])
    assert text(complete(client)) == expected["none"]


def test_adapters_are_listed_as_models(client: httpx.Client) -> None:
    assert [each["id"] for each in client.get("/v1/models").json()["data"]] == ["base", "base:law", "base:tax"]
    assert client.get("/v1/models/base:tax").json()["id"] == "base:tax"
    assert client.get("/v1/models/base:wine").status_code == 404
    listed = client.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert (listed["first_id"], listed["last_id"]) == ("base", "base:tax")

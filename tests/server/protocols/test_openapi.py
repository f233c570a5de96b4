"""The OpenAPI document: complete, valid, and consistent with the running server, as schemathesis checks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from support.servers import servers

import pyggml.server
from pyggml.server.app import PROTOCOLS

# Answers are short: what they say is not looked at here.
SETTINGS: dict[str, Any] = {"page": False, "sampling": {"max_tokens": 4}, "request_timeout": 1.0}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = pyggml.server.Settings(**SETTINGS, slot_save_path=tmp_path_factory.mktemp("slots"))
    with servers.serving(pyggml.server.create_app(settings)) as url:
        # The context for embeddings is kept, and no test should be blamed for it.
        assert httpx.post(f"{url}/v1/embeddings", json={"input": "a"}, timeout=60).status_code == 200
        yield url


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    return httpx.get(f"{url}/openapi.json").json()  # type: ignore[no-any-return]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_endpoint_is_described(document: dict[str, Any]) -> None:
    described = {(method, path) for path, operations in document["paths"].items() for method in operations}
    offered = {
        (endpoint.method.lower(), re.sub(r":\w+\}", "}", endpoint.path))
        for protocol in PROTOCOLS
        for endpoint in protocol.endpoints
    }
    assert described == {*offered, ("get", "/openapi.json"), ("get", "/docs")}
    ids = [each["operationId"] for operations in document["paths"].values() for each in operations.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_its_schemas_are_valid(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    assert {each.removeprefix("#/components/schemas/") for each in references(document)} <= set(schemas)


def test_streams_and_failures_are_described(document: dict[str, Any]) -> None:
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert set(chat["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(document["paths"]["/api/chat"]["post"]["responses"]["200"]["content"]) == {
        "application/json",
        "application/x-ndjson",
    }
    error = chat["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert set(document["components"]["schemas"][error]["properties"]["error"]["properties"]) == {
        "message",
        "type",
        "param",
        "code",
    }


def test_keys_are_described_where_they_are_needed(document: dict[str, Any]) -> None:
    assert "securitySchemes" not in document["components"]
    settings = pyggml.server.Settings(**SETTINGS, api_keys=("secret",))
    with servers.serving(pyggml.server.create_app(settings)) as url:
        assert httpx.get(f"{url}/openapi.json").status_code == 401
        with_keys = httpx.get(f"{url}/openapi.json", headers={"x-api-key": "secret"}).json()
    assert set(with_keys["components"]["securitySchemes"]) == {"bearer", "x-api-key"}
    assert with_keys["paths"]["/v1/models"]["get"]["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert "security" not in with_keys["paths"]["/health"]["get"]


def schemathesis(url: str, folder: Path, *options: str) -> None:
    """Runs schemathesis, which sends what the document allows and what it does not, and checks every answer.

    That valid data is accepted is not checked: no schema can say that a model exists, or that a grammar is one.
    """
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--seed", "1", "--no-color"]
    command += ["--generation-database", "none", "--exclude-checks", "positive_data_acceptance", *options]
    # Its own list of refusals lacks 413, the answer to a body with too many objects.
    refusals = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]
    settings = f"[checks.negative_data_rejection]\nexpected-statuses = {json.dumps([*map(str, refusals), '5xx'])}\n"
    (folder / "schemathesis.toml").write_text(settings)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"[1-9]\d* generated, [1-9]\d* passed", done.stdout), done.stdout


@pytest.mark.slow
def test_answers_are_as_described(url: str, tmp_path: Path) -> None:
    some = "^/(execute|tokenize|metrics|v1/models|v1/chat/completions)$"
    options = ("--phases", "fuzzing", "--max-examples", "3", "--no-shrink", "--include-path-regex", some)
    schemathesis(url, tmp_path, *options)


@pytest.mark.slow
def test_all_answers_are_as_described(url: str, tmp_path: Path) -> None:
    schemathesis(url, tmp_path, "--phases", "fuzzing", "--max-examples", "12", "--max-time", "90")

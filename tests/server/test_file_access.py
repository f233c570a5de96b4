"""Requests cannot open files of the server, and no response contains its paths."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fuzz import asgi_client
from support.paths import ROOT
from support.servers import servers
from support.watched_files import opens_of

import pyggml
from pyggml.server.app import PROTOCOLS
from pyggml.server.protocols.endpoint import Endpoint

ENDPOINTS = [endpoint for protocol in PROTOCOLS for endpoint in protocol.endpoints if endpoint.body is not None]
SECRET = "the quick secret of the file"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Running]:
    slots = tmp_path_factory.mktemp("slots")
    with servers.running(load={"n_parallel": 2, "n_ctx": 512}, slot_save_path=slots) as server:
        httpx.post(f"{server.url}/v1/embeddings", json={"model": "default", "input": "a"})  # makes a context that stays
        yield server


@pytest.fixture(scope="module")
def client(server: servers.Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.jinja"
    path.write_text("{{ '" + SECRET + "' }}")
    return path


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def test_the_watch_sees_files_that_are_opened(secret: Path) -> None:
    with opens_of(secret) as was_opened:
        assert not was_opened()
        secret.read_text()
        assert was_opened()


@pytest.mark.slow_except("/v1/rerank", "/rerank", "/v2/rerank")
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
def test_no_path_or_url_in_a_body_is_opened(
    endpoint: Endpoint, secret: Path, listener: socket.socket, client: httpx.Client
) -> None:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/secret"
    with opens_of(secret.parent) as parent_opened, opens_of(secret) as was_opened:
        for name in (str(secret), url):
            for body in bodies(endpoint, name):
                answer = client.post(endpoint.path, json=body)
                assert answer.status_code < 500, (body, answer.text)
                assert SECRET not in answer.text
        assert not was_opened()
        assert not parent_opened()
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.slow_except("")
@pytest.mark.parametrize("prefix", ["", "file://", "../../../../../..", "hf:", "./"])
def test_no_model_is_read_that_the_server_does_not_offer(prefix: str, secret: Path, client: httpx.Client) -> None:
    with opens_of(secret.parent) as parent_opened, opens_of(secret) as was_opened:
        for endpoint in ENDPOINTS:
            if "model" in endpoint.body.model_fields:  # type: ignore[union-attr]
                answer = client.post(endpoint.path, json={**_sound(endpoint), "model": f"{prefix}{secret}"})
                # 403: models are not downloaded; 501: slots are not saved
                assert answer.status_code in (400, 403, 404, 501), answer.text
        assert not was_opened()
        assert not parent_opened()


def _sound(endpoint: Endpoint) -> dict[str, Any]:
    assert endpoint.body is not None
    known = endpoint.body.model_json_schema().get("properties", {})
    limits = dict.fromkeys(("max_tokens", "max_output_tokens", "max_completion_tokens", "num_predict"), 1)
    return {**{name: value for name, value in _SOUND.items() if name in known}, **limits}


def bodies(endpoint: Endpoint, name: str) -> Iterator[dict[str, Any]]:
    """Bodies that name a file or URL wherever a text, a schema or a part of a message can be."""
    assert endpoint.body is not None
    sound = _sound(endpoint)
    for field in endpoint.body.model_json_schema().get("properties", {}):
        for value in (name, {"chat_template": name, "$ref": name, "url": name, "path": name}):
            yield {**sound, field: value}
    others = ("chat_template", "tokenizer", "template", "grammar_file", "lora", "path", "model_path")
    yield {**sound, **dict.fromkeys(others, name)}
    schema = {"type": "object", "properties": {"a": {"$ref": name}, "b": {"$id": name, "$schema": name}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    yield {**sound, "json_schema": schema, "format": schema}
    yield {**sound, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    yield {**sound, "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}
    yield {**sound, "tools": [tool], "tool_choice": "required"}
    yield {**sound, "tools": [{"type": "function", "name": "f", "parameters": schema}]}
    yield {**sound, "tools": [{"name": "f", "input_schema": schema}]}
    for part in (
        {"type": "image_url", "image_url": {"url": name}},
        {"type": "input_image", "image_url": name},
        {"type": "input_file", "file_url": name},
        {"type": "file", "file": {"file_id": name}},
        {"type": "image", "source": {"type": "url", "url": name}},
    ):
        messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]
        yield {**sound, "messages": messages, "input": messages}
    yield {**sound, "messages": [{"role": "user", "content": "a", "images": [name]}]}


_SOUND: dict[str, Any] = {
    "model": "default",
    "prompt": "a",
    "input": "a",
    "content": "a",
    "query": "a",
    "documents": ["a", "b"],
    "tokens": [1],
    "job_id": "a job of another client",
    "messages": [{"role": "user", "content": "a"}],
    "stream": False,
}


@pytest.mark.slow
def test_no_answer_tells_where_files_are(server: servers.Running, client: httpx.Client) -> None:
    client.post("/models/load", json={"model": "default"}).raise_for_status()  # other tests unload it
    folders = {
        str(Path(server.worker.models.loaded[0].llm.model.path).parent),
        str(ROOT),
        str(Path.home()) + "/",
    }
    for endpoint in ENDPOINTS:
        for body in bodies(endpoint, "no such thing"):
            told = client.post(endpoint.path, json=body).text
            assert not any(folder in told for folder in folders), told
            assert not re.search(r"Traceback|File \"", told), told


@pytest.mark.slow_except("/v1/models/", "/v1/models")
@pytest.mark.parametrize("path", ["/v1/models/", "/v1/models", "/no/such"])
def test_queries_that_are_not_utf_8(path: str) -> None:
    """Some servers pass them on, and Starlette failed to make a URL of them to redirect to."""
    request = {"method": "GET", "path": path, "query": "a=\xff", "headers": [["host", "localhost"]]}
    answer = asyncio.run(asgi_client.ask(pyggml.server.create_app(), request))
    assert answer.status == 400
    assert b"percent-encode" in answer.body
    assert answer.headers["x-request-id"]

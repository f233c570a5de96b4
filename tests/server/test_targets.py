"""Targets of requests and pages of this machine: absolute URLs, trailing slashes, cross-origin requests."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from support.servers import servers

from pyggml.server.http.targets import in_origin_form


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Running]:
    with servers.running() as server:
        yield server


def head_of(server: servers.Running, target: str) -> str:
    with socket.create_connection(server.host) as connection:
        host = f"{server.host[0]}:{server.host[1]}"
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received.partition(b"\r\n\r\n")[0].decode().lower()


def test_absolute_urls(server: servers.Running) -> None:
    for target in ("/v1/models?a=b", "/health"):
        assert head_of(server, f"{server.url}{target}").startswith("http/1.1 200")
    for path, expected in (
        ("http://localhost/v1/models", "/v1/models"),
        ("HTTPS://localhost", "/"),
        ("/v1/http://x", "/v1/http://x"),
    ):
        assert in_origin_form({"path": path, "raw_path": path.encode()})["path"] == expected
    mounted = in_origin_form({"path": "/llmhttp://localhost/health", "root_path": "/llm"})
    assert mounted["path"] == "/llm/health"


def test_redirects_are_relative(server: servers.Running) -> None:
    head = head_of(server, "/health/?a=b")
    assert head.startswith("http/1.1 307")
    assert "location: ../health?a=b" in head
    assert httpx.get(f"{server.url}/health/", follow_redirects=True).json()["status"] == "ok"
    assert head_of(server, "/nothing/").startswith("http/1.1 404")


def test_the_list_of_models_with_a_slash(server: servers.Running) -> None:
    models = httpx.get(f"{server.url}/v1/models/")
    assert models.json() == httpx.get(f"{server.url}/v1/models").json()


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:80", "http://a.localhost"]
)
def test_pages_of_this_machine_read_answers(origin: str, server: servers.Running) -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    before = httpx.options(f"{server.url}/v1/chat/completions", headers={**asks, "origin": origin})
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == origin
    answer = httpx.get(f"{server.url}/health", headers={"origin": origin})
    assert answer.headers["access-control-allow-origin"] == origin


def test_pages_of_others_read_nothing(server: servers.Running) -> None:
    for origin in ("https://localhost.evil.test", "http://127.0.0.1.evil.test", "null", "https://evil.test"):
        answer = httpx.get(f"{server.url}/health", headers={"origin": origin})
        assert "access-control-allow-origin" not in answer.headers

"""The worker's own protocol, as a client of HTTP sees it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from support.servers import servers

import pyggml
import pyggml.server
from pyggml.server import ModelSpec
from pyggml.server.models import loader
from pyggml.server.models.loader import load


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        yield url


def executed(url: str, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    with httpx.stream("POST", f"{url}/execute", json=body, timeout=60) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [(name, json.loads(data)) for name, data in servers.events([*answer.iter_lines()])]


def test_it_streams_what_the_model_generates(url: str) -> None:
    with pyggml.load() as llm:
        expected = llm.generate("Once upon a time", max_tokens=40)
    found = executed(url, prompt="Once upon a time", max_tokens=40)
    assert [name for name, _ in found] == ["started", *["token"] * 40, "end"]
    tokens = [data for _, data in found[1:-1]]
    assert [token["id"] for token in tokens] == expected.token_ids
    assert [token["index"] for token in tokens] == list(range(40))
    assert "".join(token["text"] for token in tokens) == expected.text
    end = found[-1][1]
    assert (end["reason"], end["prompt_tokens"], end["generated_tokens"]) == ("length", expected.prompt_tokens, 40)
    assert end["stop_reason"] == "max_tokens"
    assert end["timings"]["prefill_s"] > 0
    assert end["job_id"] == found[0][1]["job_id"]


def test_every_field_that_is_wrong_is_listed(url: str) -> None:
    answer = httpx.post(f"{url}/execute", json={"prompt": 5, "max_tokens": -2, "temp": "hot", "top_p": 2})
    assert answer.status_code == 400
    fields = {each["field"].partition(".")[0] for each in answer.json()["error"]["fields"]}
    assert fields == {"prompt", "max_tokens", "temp", "top_p"}


def test_a_field_of_several_types_is_listed_once(url: str) -> None:
    answer = httpx.post(f"{url}/execute", json={"prompt": "a", "stop": 3})
    ((field, message),) = [(each["field"], each["message"]) for each in answer.json()["error"]["fields"]]
    assert field == "stop"
    assert "string, or: " in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", False),
        ("max_tokens", True),
        ("top_k", "5"),
        ("seed", "x"),
        ("ignore_eos", 1),
        ("ignore_eos", "yes"),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: object, url: str) -> None:
    answer = httpx.post(f"{url}/execute", json={"prompt": "Once", field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["fields"][0]["field"] == field


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"text"', b"\xff", b"null"])
def test_what_is_no_json_object_is_refused(content: bytes, url: str) -> None:
    answer = httpx.post(f"{url}/execute", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_job_is_cancelled_by_its_name() -> None:
    with servers.serving(pyggml.server.create_app(load={"n_ctx": 100_000})) as url:
        assert end_of_a_cancelled_job(url) == "cancelled"


def end_of_a_cancelled_job(url: str) -> str:
    started = threading.Event()
    found: list[tuple[str, str]] = []

    def run() -> None:
        lines = []
        body = {"job_id": "mine", "prompt": "Once", "ignore_eos": True, "max_tokens": 1_000_000}
        with httpx.stream("POST", f"{url}/execute", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                started.set()
        found.extend(servers.events(lines))

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(30)
    twice = httpx.post(f"{url}/execute", json={"job_id": "mine", "prompt": "Once"})
    assert (twice.status_code, twice.json()["error"]["code"]) == (409, "job_exists")
    assert httpx.post(f"{url}/cancel", json={"job_id": "mine"}).json() == {"job_id": "mine", "cancelled": True}
    thread.join(30)
    assert httpx.post(f"{url}/cancel", json={"job_id": "mine"}).status_code == 404
    name, data = found[-1]
    assert name == "end"
    reason: str = json.loads(data)["reason"]
    return reason


def test_a_job_is_cancelled_while_its_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    is_cancelled = threading.Event()

    def late(*args: Any) -> pyggml.LLM:
        assert is_cancelled.wait(60)
        return load(*args)

    app = pyggml.server.create_app([ModelSpec(), ModelSpec(name="late")])
    with servers.serving(app) as url, ThreadPoolExecutor() as pool:
        httpx.get(f"{url}/ready")
        monkeypatch.setattr(loader, "load", late)
        body = {"job_id": "mine", "model": "late", "prompt": "Once", "ignore_eos": True, "max_tokens": 500}
        asked = pool.submit(httpx.post, f"{url}/execute", json=body, timeout=60)
        servers.eventually(lambda: httpx.post(f"{url}/cancel", json={"job_id": "mine"}).status_code == 200)
        is_cancelled.set()
        name, data = servers.events(asked.result().text.splitlines())[-1]
    assert (name, json.loads(data)["reason"]) == ("end", "cancelled")


def test_a_model_that_is_not_there(url: str) -> None:
    answer = httpx.post(f"{url}/execute", json={"model": "stranger", "prompt": "Once"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.slow
def test_health_and_readiness(url: str) -> None:
    with pyggml.load() as llm:
        size = llm.model.size_bytes
    health = httpx.get(f"{url}/health").json()
    assert (health["status"], health["architecture"], health["model_size_bytes"]) == ("ok", "llama", size)
    assert httpx.get(f"{url}/ready").json()["ready"] is True

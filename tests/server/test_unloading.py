"""Unloading models: by requests, and those that no request uses."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from support.servers import servers
from support.servers.hub_server import hub_at

import pyggml
from pyggml.server import ModelSpec, Settings, create_app
from pyggml.server.protocols.ollama.requests import seconds_of

HI: list[Any] = [{"role": "user", "content": "Hi"}]


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_requests_unload() -> None:
    with servers.serving() as url:
        client = ollama.Client(host=url)
        assert client.ps().models[0].model == "pyggml-demo-q8_0:latest"
        assert client.ps().models[0].expires_at.year == 9999  # type: ignore[union-attr]
        done = client.generate("default", keep_alive=0)
        assert done.done_reason == "unload"
        until(lambda: not client.ps().models)
        assert client.chat("default", HI, options={"num_predict": 1}, keep_alive="5m").message.content
        expires: Any = client.ps().models[0].expires_at
        assert 290 < expires.timestamp() - time.time() <= 300
        client.chat("default", HI, options={"num_predict": 1})
        assert client.ps().models[0].expires_at.year == 9999  # type: ignore[union-attr]
        client.embed("default", "a", keep_alive=0)
        until(lambda: not client.ps().models)
        assert httpx.post(f"{url}/models/load", json={"model": "default"}, timeout=60).json() == {"success": True}
        assert client.ps().models
        assert httpx.post(f"{url}/models/unload", json={}).json() == {"success": True}
        until(lambda: not client.ps().models)
        assert client.show("default").modelfile.startswith("FROM pyggml-demo-q8_0\nTEMPLATE")  # type: ignore[union-attr]
        client._client.close()


def test_a_model_in_use_is_unloaded_after_its_last_request() -> None:
    with servers.serving() as url, httpx.Client(base_url=url, timeout=60) as client:
        body = {"prompt": "Once", "max_tokens": 300, "stream": True, "ignore_eos": True, "repetition_guard": False}
        with client.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert client.post("/models/unload", json={}).status_code == 200
            assert "[DONE]" in list(lines)[-2]
        until(lambda: not client.get("/api/ps").json()["models"])


def test_a_model_in_use_that_is_to_be_unloaded_blocks_no_other() -> None:
    models = (ModelSpec(None, name="a"), ModelSpec(None, name="b"))
    with servers.running(models=models) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        endless = {"max_tokens": 1_000_000, "overflow": "shift", "ignore_eos": True, "repetition_guard": False}
        body = {"model": "a", "prompt": "Once", "stream": True, **endless}
        with client.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert client.post("/models/unload", json={"model": "a"}).status_code == 200
            answer = client.post("/v1/completions", json={"model": "b", "prompt": "a", "max_tokens": 1})
            assert answer.status_code == 200
            assert "a" in {each.name for each in server.worker.models.loaded}
        until(lambda: "a" not in {each.name for each in server.worker.models.loaded})
        answer = client.post("/v1/completions", json={"model": "a", "prompt": "a", "max_tokens": 1})
        assert answer.status_code == 200


def test_a_model_that_is_loaded_for_a_request_that_has_gone() -> None:
    with servers.running(idle_unload=0.2) as server:

        def count(name: str) -> int:
            metrics = httpx.get(f"{server.url}/metrics").text
            return sum(int(float(each)) for each in re.findall(rf"{name}_total{{.*}} (\S+)", metrics))

        def loads_again() -> bool:
            with contextlib.suppress(httpx.TransportError):
                httpx.post(f"{server.url}/models/load", json={}, timeout=httpx.Timeout(30, read=0.05))
            return count("pyggml_model_loads") > 1

        until(lambda: not server.worker.models.loaded)
        until(loads_again)
        until(lambda: count("pyggml_model_loads") == count("pyggml_model_unloads"))


def test_idle_models() -> None:
    with (
        servers.serving(create_app(Settings(idle_unload=0.3))) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        until(lambda: not client.get("/api/ps").json()["models"])  # also one that no request has used
        assert client.get("/ready").status_code == 200
        assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
        until(lambda: not client.get("/api/ps").json()["models"])


def test_what_is_refused() -> None:
    with servers.serving(create_app(Settings(allow_unload=False))) as url, httpx.Client(base_url=url) as client:
        assert client.post("/models/unload", json={}).status_code == 403
        assert client.post("/api/generate", json={"model": "default", "keep_alive": 0}).status_code == 403
        body = {"model": "default", "messages": HI, "keep_alive": 0, "stream": False, "options": {"num_predict": 1}}
        assert client.post("/api/chat", json=body, timeout=60).status_code == 200
        assert client.get("/api/ps").json()["models"]
        for text in ("5 parsecs", "nan"):
            wrong = client.post("/api/chat", json={**body, "keep_alive": text})
            assert wrong.status_code == 400
            assert "'5m'" in wrong.json()["error"]
    with pyggml.load(n_threads=1) as llm, servers.serving(create_app(Settings(models=(ModelSpec(llm),)))) as url:
        answer = httpx.post(f"{url}/models/unload", json={})
        assert answer.status_code == 403
        assert "opened before the server" in answer.text


def test_models_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_at(tmp_path, monkeypatch) as hub, servers.serving(create_app(Settings(allow_pull=True))) as url:
        hub.add("tiny/stories", {"stories.gguf": pyggml.SHIPPED_MODEL.read_bytes()})
        client = ollama.Client(host=url)
        lines = list(client.pull("hf.co/tiny/stories", stream=True))
        assert (lines[0].status, lines[-1].status) == ("pulling manifest", "success")
        assert client.pull("hf:tiny/stories").status == "success"
        named = {model.model for model in client.list().models}
        assert {"hf.co/tiny/stories:latest", "hf:tiny/stories"} <= named
        answer = client.chat("hf.co/tiny/stories", HI, options={"num_predict": 1})
        assert answer.message.content
        client.generate("hf.co/tiny/stories", keep_alive=0)
        for name, status in (("llama3", 400), ("hf:tiny", 400), ("hf:tiny/gone", 404)):
            with pytest.raises(ollama.ResponseError) as caught:
                client.pull(name)
            assert caught.value.status_code == status
        client._client.close()


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300), ("1h30m", 5400), ("-1", -1), ("-1m", -60), (0, 0), ("0s", 0), ("250ms", 0.25)]
)
def test_times(text: Any, seconds: float) -> None:
    assert seconds_of(text) == seconds

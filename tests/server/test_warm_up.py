"""The setting ``warm``: prefixes that are in the prefix cache before the first request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.servers import servers

import pyggml
from pyggml.server import ModelSpec, Settings, create_app
from pyggml.server.models.warm_up import read_prefixes

LOAD = {"n_ctx": 2048, "n_parallel": 2, "n_threads": 1}
TEXT = "You answer questions about dogs in one sentence. " * 6
SYSTEM = {"role": "system", "content": TEXT.strip()}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look at it.", "parameters": {}}}


def cached_tokens(settings: Settings, body: dict[str, Any]) -> int:
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    with servers.serving(create_app(settings)) as url:
        answer = httpx.post(url + path, json={"max_tokens": 1, **body}, timeout=60).raise_for_status().json()
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize(
    ("name", "content", "body"),
    [
        ("system.txt", TEXT, {"messages": [SYSTEM, {"role": "user", "content": "Why?"}]}),
        ("a.json", json.dumps([SYSTEM]), {"messages": [SYSTEM, {"role": "user", "content": "Why?"}]}),
        (
            "a.json",
            json.dumps({"messages": [SYSTEM], "tools": [TOOL]}),
            {"messages": [SYSTEM, {"role": "user", "content": "Why?"}], "tools": [TOOL]},
        ),
        ("a.jsonl", json.dumps({"prompt": TEXT}) + "\n\n" + json.dumps([SYSTEM]) + "\n", {"prompt": TEXT + "Dogs"}),
    ],
)
def test_the_first_request_finds_its_prefix(tmp_path: Path, name: str, content: str, body: dict[str, Any]) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert cached_tokens(Settings(load=LOAD), body) == 0
    assert cached_tokens(Settings(load=LOAD, warm=path), body) > 60


def test_a_prefix_for_another_model(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"prompt": TEXT, "model": "other"}))
    for name, is_cached in (("demo", False), ("other", True)):
        settings = Settings(models=(ModelSpec(None, name=name),), load=LOAD, warm=path)
        assert (cached_tokens(settings, {"prompt": TEXT}) > 0) == is_cached


def test_a_prefix_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "word " * 4000}) + "\n" + json.dumps({"prompt": TEXT}))
    with caplog.at_level("WARNING", "pyggml.server"):
        assert cached_tokens(Settings(load=LOAD, warm=path), {"prompt": TEXT}) > 60
    assert "a prefix for pyggml-demo-q8_0 was not computed: the prompt has" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.jsonl", '{"prompt": "a"}\n5', "line 2 of"),
        ("a.jsonl", "[]", "line 1 of .* messages is empty"),
        ("a.json", "{}", "must be a list of messages, or an object with messages or a prompt"),
        ("a.json", '{"prompt": "a", "messages": []}', "must be a list of messages"),
        ("a.json", '{"prompt": "a", "promt": 1}', "unknown field 'promt'"),
        ("a.json", '{"prompt": "a", "tools": [1]}', "a prompt is a text, without tools"),
        ("a.json", '[{"role": "robot"}]', "role"),
        ("a.txt", " \n", "is empty"),
        ("a.txt", b"\xff", "is not text"),
        ("none.txt", None, "cannot be read: No such file"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: str | bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        read_prefixes(path)
    with pytest.raises(pyggml.InvalidParameterError, match=message):
        create_app(Settings(warm=path))


def test_keys_with_caches_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    with pytest.raises(pyggml.InvalidParameterError, match="warm has no effect"):
        create_app(Settings(warm=path, prefix_cache_scope="key", api_keys=("a",)))

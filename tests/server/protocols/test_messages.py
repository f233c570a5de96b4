"""Messages of errors: they speak of the request, in words that clients look for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.servers import servers

HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with servers.serving() as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("completions", {"prompt": "a", "suffix": "b"}, "or leave out the suffix"),
        ("chat/completions", {"messages": HI, "grammar": "/x.gbnf"}, "pass its content"),
        ("chat/completions", {"messages": HI, "adapter": "x"}, "there is no adapter 'x': none is loaded"),
        ("rerank", {"query": "a", "documents": ["b"]}, "compare embeddings from /v1/embeddings"),
        ("responses", {"input": "a", "text": {"format": {"type": "x"}}}, "text.format must be"),
    ],
)
def test_nothing_in_python(path: str, body: dict[str, Any], message: str, http: httpx.Client) -> None:
    answer = http.post(f"/v1/{path}", json=body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert "()" not in answer.text


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("completions", {"prompt": [["a"]]}, "prompt.0.0", "a valid integer, not a string"),
        ("completions", {"prompt": 5}, "prompt", "a valid string, or: Input should be a valid array, not a number"),
        ("completions", {"prompt": "a", "stop": [5]}, "stop.0", "a valid string, not a number"),
        ("responses", {"input": ["x"]}, "input.0", "an object, not a string"),
        ("rerank", {"query": "a", "documents": [5]}, "documents.0", "a valid string, or: Input should be an object"),
    ],
)
def test_fields_of_several_types(path: str, body: Any, param: str, message: str, http: httpx.Client) -> None:
    error = http.post(f"/v1/{path}", json=body).json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(f"{param}: ")
    assert message in error["message"]


def test_prompts_that_are_too_long(http: httpx.Client) -> None:
    long = "a " * 3000
    for path, body in (
        ("chat/completions", {"messages": [{"role": "user", "content": long}]}),
        ("completions", {"prompt": long}),
        ("responses", {"input": long}),
    ):
        error = http.post(f"/v1/{path}", json=body).json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert "this model's maximum context length is 1024 tokens" in error["message"]


def test_chats_as_openai_writes_them(http: httpx.Client) -> None:
    body = {"messages": HI, "max_tokens": 2, "tools": [{"type": "custom", "custom": {"name": "patch"}}]}
    whole = http.post("/v1/chat/completions", json=body).json()
    assert whole["system_fingerprint"].startswith("fp_")
    assert whole["choices"][0]["message"]["refusal"] is None
    assert whole["skipped_tools"] == ["custom"]
    required = http.post("/v1/chat/completions", json={**body, "tool_choice": "required"})
    assert "no tool of the type custom" in required.json()["error"]["message"]

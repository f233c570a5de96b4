"""Batches of OpenAI's and Anthropic's APIs, as their clients see them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from support.servers import servers

from pyggml.server import Settings, create_app

KEYS = ("first", "second")
ASK: list[Any] = [{"role": "user", "content": "What colour is the sky?"}]
URL: Any = "/v1/chat/completions"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings = Settings(api_keys=KEYS, sampling={"temperature": 0}, max_stored_bytes=100_000)
    with servers.serving(create_app(settings)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEYS[0], max_retries=0) as client:
        yield client


def uploaded(client: openai.OpenAI, *rows: Any) -> str:
    lines = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    return client.files.create(file=("rows.jsonl", lines.encode()), purpose="batch").id


def row(name: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": URL, "body": {"model": "default", "messages": ASK, **body}}


def ended(client: openai.OpenAI, file: str) -> Any:
    batch = client.batches.create(input_file_id=file, endpoint=URL, completion_window="24h", metadata={"a": "b"})
    deadline = time.monotonic() + 60
    while batch.status == "in_progress":
        assert time.monotonic() < deadline
        time.sleep(0.02)
        batch = client.batches.retrieve(batch.id)
    return batch


def test_files_in_and_out(client: openai.OpenAI, url: str) -> None:
    file = uploaded(client, *(row(f"r{i}") for i in range(10)), row("bad", messages=5))
    batch = ended(client, file)
    assert (batch.status, batch.metadata) == ("completed", {"a": "b"})
    assert batch.request_counts.to_dict() == {"total": 11, "completed": 10, "failed": 1}
    lines = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in lines] == [f"r{i}" for i in range(10)]
    assert {line["response"]["body"]["choices"][0]["message"]["content"] for line in lines} == {"The sky is blue."}
    [error] = client.files.content(batch.error_file_id).text.splitlines()
    assert json.loads(error)["response"]["status_code"] == 400
    assert [each.id for each in client.batches.list()] == [batch.id]
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEYS[1], max_retries=0) as other:
        assert not list(other.batches.list())
        assert not list(other.files.list())
        with pytest.raises(openai.NotFoundError):
            other.files.content(file)
        with pytest.raises(openai.NotFoundError):
            other.batches.retrieve(batch.id)
    for each in list(client.files.list()):
        client.files.delete(each.id)
    assert list(client.files.list()) == []


def test_lines_that_are_no_requests(client: openai.OpenAI) -> None:
    twice = row("a")
    for rows, words in (
        (["{"], "not JSON"),
        ([twice, twice], "not unique"),
        ([{**twice, "url": "/v1/embeddings"}], "the url /v1/chat"),
        ([row("a", stream=True)], "cannot stream"),
        ([""], "no requests"),
    ):
        batch = ended(client, uploaded(client, *rows))
        assert batch.status == "failed"
        assert words in batch.errors.data[0].message


def test_limits_on_files(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.APIStatusError, match="max_stored_bytes=100000"):
        uploaded(client, "a" * 100_001)
    with pytest.raises(openai.BadRequestError, match="must be 'batch'"):
        client.files.create(file=("a", b"a"), purpose="fine-tune")
    headers = {"x-api-key": KEYS[0]}
    for kind, body in (
        ("text/plain", b"a"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\na"),
        ("multipart/form-data", b""),
    ):
        answer = httpx.post(f"{url}/v1/files", content=body, headers={**headers, "content-type": kind})
        assert answer.status_code == 400


def test_messages(url: str) -> None:
    good: Any = {"model": "default", "max_tokens": 20, "messages": ASK}
    with anthropic.Anthropic(base_url=url, api_key=KEYS[0], max_retries=0) as client:
        requests: Any = [{"custom_id": "a", "params": good}, {"custom_id": "b", "params": {}}]
        batch = client.messages.batches.create(requests=requests)
        deadline = time.monotonic() + 60
        while batch.processing_status != "ended":
            assert time.monotonic() < deadline
            time.sleep(0.02)
            batch = client.messages.batches.retrieve(batch.id)
        first, second = client.messages.batches.results(batch.id)
        assert first.result.type == "succeeded"
        assert first.result.message.content[0].text == "The sky is blue."  # type: ignore[union-attr]
        assert second.result.type == "errored"
        assert second.result.error.error.type == "invalid_request_error"
        assert batch.request_counts.succeeded == batch.request_counts.errored == 1
        with pytest.raises(anthropic.BadRequestError, match="custom_id of its own"):
            client.messages.batches.create(requests=[requests[0], requests[0]])
        client.messages.batches.delete(batch.id)
        with pytest.raises(anthropic.NotFoundError):
            client.messages.batches.retrieve(batch.id)


def test_cancelling(url: str) -> None:
    long: Any = {"model": "default", "max_tokens": 500, "messages": ASK, "ignore_eos": True, "repetition_guard": False}
    with anthropic.Anthropic(base_url=url, api_key=KEYS[0], max_retries=0) as client:
        requests: Any = [{"custom_id": f"r{i}", "params": long} for i in range(60)]
        batch = client.messages.batches.create(requests=requests)
        batch = client.messages.batches.cancel(batch.id)
        assert batch.cancel_initiated_at is not None
        deadline = time.monotonic() + 60
        while batch.processing_status != "ended":
            assert time.monotonic() < deadline
            time.sleep(0.02)
            batch = client.messages.batches.retrieve(batch.id)
        assert batch.request_counts.canceled > 0
        kinds = [each.result.type for each in client.messages.batches.results(batch.id)]
        assert kinds.count("canceled") == batch.request_counts.canceled

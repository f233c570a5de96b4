"""Batches of OpenAI's and Anthropic's APIs, as their clients see them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from support.servers import servers

from pyggml.server import ModelSpec, Settings, create_app
from pyggml.server.http.errors import RequestError
from pyggml.server.protocols.batches import openai_batches, runner
from pyggml.server.protocols.batches.file_store import FileStore, StoredFile

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


def test_a_row_that_can_never_be_computed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MAX_UNAVAILABLE", 1)
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF, but no model")
    models = (ModelSpec(None, name="whole"), ModelSpec(tmp_path / "damaged.gguf", name="damaged"))
    with (
        servers.running(models=models, load_all=False) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        batch = ended(client, uploaded(client, row("a", model="damaged"), row("b", model="whole")))
        assert batch.request_counts.to_dict() == {"total": 2, "completed": 1, "failed": 1}
        error = json.loads(client.files.content(batch.error_file_id).text)
        assert error["response"]["status_code"] == 503
        assert "cannot be loaded" in error["response"]["body"]["error"]["message"]


def test_results_without_space(client: openai.OpenAI) -> None:
    ask = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "user": 40_000 * "a"}
    file = uploaded(client, row("a", **ask))
    many = uploaded(client, *({"custom_id": str(i), "body": {}} for i in range(150)))
    with pytest.raises(openai.APIStatusError, match="half of it for one key"):
        client.batches.create(input_file_id=many, endpoint=URL, completion_window="24h")
    for each in (file, many):
        client.files.delete(each)


def test_old_files_give_way() -> None:
    store = FileStore(100)
    store.add("a", StoredFile("old", "batch", 50 * b"a", created=0))
    with pytest.raises(RequestError, match="half of it"):
        store.add("b", StoredFile("large", "batch", 51 * b"b"))
    store.add("b", StoredFile("new", "batch", 50 * b"b"))
    assert store.all("a") == []  # 51 bytes did not fit, even without it
    with pytest.raises(RequestError, match="max_stored_bytes=100"):
        store.add("b", StoredFile("more", "batch", b"b"))
    store.add("a", StoredFile("own", "batch", 50 * b"a"))


def test_a_file_of_too_many_rows(monkeypatch: pytest.MonkeyPatch, client: openai.OpenAI) -> None:
    monkeypatch.setattr(openai_batches, "_MAX_ROWS", 2)
    batch = ended(client, uploaded(client, row("a"), row("b"), row("c")))
    assert batch.status == "failed"
    assert "more than 2 requests" in batch.errors.data[0].message


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
        assert batch.results_url == f"/v1/messages/batches/{batch.id}/results"
        first, second = client.messages.batches.results(batch.id)
        assert first.result.type == "succeeded"
        assert first.result.message.content[0].text == "The sky is blue."  # type: ignore[union-attr]
        assert second.result.type == "errored"
        assert second.result.error.error.type == "invalid_request_error"
        assert batch.request_counts.succeeded == batch.request_counts.errored == 1
        with pytest.raises(anthropic.BadRequestError, match="custom_id of its own"):
            client.messages.batches.create(requests=[requests[0], requests[0]])
        streamed: Any = {"custom_id": "a", "params": {**good, "stream": True}}
        with pytest.raises(anthropic.BadRequestError, match="batches cannot stream: leave out stream of 'a'"):
            client.messages.batches.create(requests=[streamed])
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

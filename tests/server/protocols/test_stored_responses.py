"""Stored responses of ``/v1/responses``: read, continued, and dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from support.servers import servers

from pyggml.server import Settings, create_app
from pyggml.server.protocols.responses.store import ResponseStore, StoredResponse

SKY = "What colour is the sky?"
KEYS = ("first", "second")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving(create_app(Settings(api_keys=KEYS, sampling={"temperature": 0}))) as url:
        yield f"{url}/v1"


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key=KEYS[0], max_retries=0) as client:
        yield client


def test_a_conversation_goes_on(client: openai.OpenAI) -> None:
    first = client.responses.create(model="default", input=SKY)
    assert client.responses.retrieve(first.id).to_dict() == first.to_dict()
    second = client.responses.create(model="default", input="Why?", previous_response_id=first.id)
    said: list[Any] = [
        {"role": "user", "content": SKY},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "Why?"},
    ]
    whole = client.responses.create(model="default", input=said)
    assert second.usage is not None
    assert whole.usage is not None
    assert second.usage.input_tokens == whole.usage.input_tokens
    assert second.output_text == whole.output_text
    assert second.previous_response_id == first.id
    counted = client.responses.input_tokens.count(model="default", input="Why?", previous_response_id=first.id)
    assert counted.input_tokens == second.usage.input_tokens
    items = client.responses.input_items.list(second.id, order="asc").data
    assert [item.to_dict().get("role") for item in items] == ["user", "assistant", "user"]


def test_a_stream_is_stored_and_its_items_can_be_named(client: openai.OpenAI) -> None:
    with client.responses.stream(model="default", input=SKY) as stream:
        stream.until_done()
        first = stream.get_final_response()
    assert client.responses.retrieve(first.id).output_text == first.output_text
    message: Any = first.output[0]
    named: list[Any] = [
        {"role": "user", "content": SKY},
        {"type": "item_reference", "id": message.id},
        {"role": "user", "content": "Why?"},
    ]
    by_name = client.responses.create(model="default", input=named)
    by_id = client.responses.create(model="default", input="Why?", previous_response_id=first.id)
    assert by_name.output_text == by_id.output_text


def test_only_its_own_key_finds_a_response(client: openai.OpenAI, url: str) -> None:
    first = client.responses.create(model="default", input=SKY)
    with openai.OpenAI(base_url=url, api_key=KEYS[1], max_retries=0) as other:
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
            other.responses.create(model="default", input="Why?", previous_response_id=first.id)
        message: Any = first.output[0]
        named: list[Any] = [{"type": "item_reference", "id": message.id}]
        with pytest.raises(openai.BadRequestError, match="which is not stored"):
            other.responses.create(model="default", input=named)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_what_is_not_stored(client: openai.OpenAI) -> None:
    first = client.responses.create(model="default", input=SKY, store=False)
    assert first.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_the_limit_drops_the_least_recently_used() -> None:
    def response(id: str, text: str = "") -> StoredResponse:
        return StoredResponse.of({"id": id, "output": [{"id": f"msg_{id}", "text": text}]}, [])

    store = ResponseStore(max_bytes=2 * response("a").whole_bytes)
    for id in ("a", "b"):
        store.add("key", response(id))
    assert store.get("key", "a") is not None
    store.add("key", response("c"))
    assert store.get("key", "b") is None
    assert store.item("key", "msg_b") is None
    assert store.item("key", "msg_a") is not None
    store.add("key", response("large", 200 * "a"))
    assert [store.get("key", id) is not None for id in ("a", "c", "large")] == [True, True, False]


def test_items_are_counted_once_and_kept_while_a_response_has_them() -> None:
    store = ResponseStore(max_bytes=10_000)
    own = store.of("key")
    own.add(StoredResponse.of({"id": "a", "output": [{"id": "msg_a", "text": 2_000 * "a"}]}, []))
    n_bytes = store.n_bytes
    items, n_stored = own.conversation([{"role": "user"}], "a")
    assert n_stored == items[0].n_bytes > 2_000
    own.add(StoredResponse.of({"id": "b", "output": []}, items))
    assert n_bytes < store.n_bytes < n_bytes + 200  # it shares the long item
    n_bytes = store.n_bytes
    own.add(StoredResponse.of({"id": "b", "output": []}, items))  # replaces it
    assert store.n_bytes == n_bytes
    own.remove("a")
    assert own.conversation([{"id": "msg_a"}], None)[0] == items[:1]
    own.remove("b")
    assert store.n_bytes == 0
    assert store.item("key", "msg_a") is None


def test_a_conversation_of_references_is_bounded() -> None:
    with servers.running(max_body_bytes=100_000) as server:
        long = {"type": "unknown", "id": "x", "text": 90_000 * "a"}
        kept = {"type": "message", "role": "user", "content": SKY}
        body: dict[str, Any] = {"input": [long, kept], "max_output_tokens": 1}
        first = httpx.post(f"{server.url}/v1/responses", json=body, timeout=60)
        assert first.json()["store"] is True
        refused = httpx.post(f"{server.url}/v1/responses", json={**body, "input": 3_000 * [{"id": "x"}]}, timeout=60)
        assert refused.status_code == 413
        assert "of stored items" in refused.json()["error"]["message"]


def test_a_response_that_is_too_large_to_be_stored_says_so() -> None:
    with servers.running(max_stored_bytes=300) as server:
        answer = httpx.post(f"{server.url}/v1/responses", json={"input": SKY, "max_output_tokens": 1}, timeout=60)
        assert answer.json()["store"] is False
        assert server.worker.stored_responses.n_bytes == 0


def test_pages_of_items(client: openai.OpenAI) -> None:
    given: list[Any] = [{"role": "user", "content": str(index)} for index in range(5)]
    first = client.responses.create(model="default", input=given, max_output_tokens=1)
    everything = [item.id for item in client.responses.input_items.list(first.id)]
    assert len(everything) == 5
    some = client.responses.input_items.list(first.id, limit=2, after=everything[0])
    assert [item.id for item in some.data] == everything[1:3]
    assert some.has_more


def test_tools_and_items_of_others_are_skipped_with_a_note(client: openai.OpenAI) -> None:
    history: list[Any] = [
        {"role": "user", "content": SKY},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "sky"}},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
        {"type": "never_heard_of", "id": "x"},
    ]
    tools: list[Any] = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, {"type": "namespace"}]
    answer = client.responses.create(model="default", input=history, tools=tools)
    assert answer.output_text == "The sky is blue."
    noted: Any = answer.to_dict()
    assert noted["skipped_tools"] == ["web_search", "custom", "namespace"]
    assert noted["skipped_items"] == ["web_search_call", "computer_call_output", "never_heard_of"]
    assert noted["parallel_tool_calls"] is True


def test_allowed_tools(client: openai.OpenAI) -> None:
    tools: list[Any] = [
        {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
        for name in ("up", "down")
    ]
    choice: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "down"}]}
    answer = client.responses.create(model="default", input="Go", tools=tools, tool_choice=choice)
    assert {item.name for item in answer.output if item.type == "function_call"} == {"down"}

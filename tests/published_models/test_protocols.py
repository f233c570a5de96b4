"""A real chat model over HTTP: each protocol, by its own client where there is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

QUESTION: Any = [{"role": "user", "content": "What is the opposite of hot?"}]
VERDICT = {"type": "object", "properties": {"is_cold": {"type": "boolean"}}, "required": ["is_cold"]}


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_chat_completions(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=60)
    assert "cold" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    chunks = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=60, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.choices[0].message.content


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="smollm2", prompt="1, 2, 3, 4,", max_tokens=24, stop=["7"], logprobs=2)
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == (" 5, 6, ", "stop")
    assert choice.logprobs is not None
    assert max(choice.logprobs.token_logprobs or []) <= 0


def test_a_schema(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": VERDICT, "strict": True}}
    answer = client.chat.completions.create(model="smollm2", messages=QUESTION, response_format=form, max_tokens=60)
    assert isinstance(json.loads(answer.choices[0].message.content or "")["is_cold"], bool)


def test_a_tool_call(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "function": {"name": "set_verdict", "parameters": VERDICT}}
    answer = client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=100,
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "set_verdict"
    assert isinstance(json.loads(call.function.arguments)["is_cold"], bool)


def test_responses(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="smollm2", input=QUESTION, max_output_tokens=60)
    assert answer.status == "completed"
    assert "cold" in answer.output_text


def test_embeddings(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="smollm2", input=["A cat.", "A dog."])
    assert [len(each.embedding) for each in answer.data] == [576, 576]


def test_anthropic(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        answer = client.messages.create(model="smollm2", max_tokens=60, messages=QUESTION)
        assert answer.stop_reason == "end_turn"
        assert "cold" in answer.content[0].text  # type: ignore[union-attr]
        with client.messages.stream(model="smollm2", max_tokens=60, messages=QUESTION) as stream:
            assert "".join(stream.text_stream) == answer.content[0].text  # type: ignore[union-attr]


def test_ollama(url: str, request: pytest.FixtureRequest) -> None:
    client = ollama.Client(url)
    request.addfinalizer(client._client.close)
    options = {"num_predict": 60}
    answer = client.chat("smollm2", QUESTION, options=options)
    assert answer.done_reason == "stop"
    assert "cold" in (answer.message.content or "")
    chunks = client.chat("smollm2", QUESTION, options=options, stream=True)
    assert "".join(chunk.message.content or "" for chunk in chunks) == answer.message.content
    assert client.generate("smollm2", "What is the opposite of hot?", options=options).response
    assert len(client.embed("smollm2", "A cat.").embeddings[0]) == 576


def test_llama_server(url: str) -> None:
    tokens = httpx.post(f"{url}/tokenize", json={"content": "Hello, world"}, timeout=60).json()["tokens"]
    assert httpx.post(f"{url}/detokenize", json={"tokens": tokens}, timeout=60).json()["content"] == "Hello, world"
    prompt = httpx.post(f"{url}/apply-template", json={"messages": QUESTION}, timeout=60).json()["prompt"]
    assert prompt.endswith("<|im_start|>user\nWhat is the opposite of hot?<|im_end|>\n<|im_start|>assistant\n")

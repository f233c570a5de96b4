"""LiteLLM's functions with pyggml's provider."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import litellm
import pytest
from support.response_forms import Pet

from pyggml.integrations.litellm import PyggmlProvider, register

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
ASKED: Any = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[PyggmlProvider]:
    yield register({"smollm2": os.environ["PYGGML_TEST_MODEL"]}, n_ctx=4096)
    litellm.custom_provider_map = []


def test_completion() -> None:
    response = litellm.completion("pyggml/demo", **ASKED)
    assert response.choices[0].message.content == SAID
    assert (response.choices[0].finish_reason, response.usage.completion_tokens > 0) == ("stop", True)
    told = [{"role": "system", "content": "Answer in one word."}, *ASKED["messages"]]
    assert litellm.completion("pyggml/demo", messages=told, temperature=0).choices[0].message.content == "Blue."
    short = litellm.completion("pyggml/demo", **ASKED, max_tokens=2)
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("The sky", "length")


def test_streams() -> None:
    chunks = list(litellm.completion("pyggml/demo", **ASKED, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == SAID
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == SAID
    assert whole.usage.total_tokens > 0


async def test_coroutines() -> None:
    assert (await litellm.acompletion("pyggml/demo", **ASKED)).choices[0].message.content == SAID
    stream = await litellm.acompletion("pyggml/demo", **ASKED, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == SAID


def test_several_answers_and_logprobs() -> None:
    response = litellm.completion("pyggml/demo", **ASKED, n=2, logprobs=True, top_logprobs=2, max_tokens=2)
    assert [choice.message.content for choice in response.choices] == ["The sky"] * 2
    assert response.usage.completion_tokens == 4
    assert len(response.choices[0].logprobs.content[0].top_logprobs) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_tools(stream: bool) -> None:
    asked: Any = {"messages": ASKED["messages"], "tools": [WEATHER], "temperature": 0, "max_tokens": 64}
    named = {"type": "function", "function": {"name": "get_weather"}}
    response: Any = litellm.completion("pyggml/smollm2", **asked, tool_choice=named, stream=stream)
    if stream:
        response = litellm.stream_chunk_builder(list(response))
    (call,) = response.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    assert response.choices[0].finish_reason == "tool_calls"
    told = [
        *ASKED["messages"],
        response.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "It rains."},
    ]
    again = litellm.completion("pyggml/smollm2", messages=told, tools=[WEATHER], temperature=0, max_tokens=16)
    assert again.choices[0].message.content is not None


def test_structured_output() -> None:
    response = litellm.completion("pyggml/smollm2", **ASKED, response_format=Pet, max_tokens=64)
    assert Pet.model_validate_json(response.choices[0].message.content)


def test_other_parameters_pass_and_errors_name_their_cause() -> None:
    chosen = litellm.completion("pyggml/demo", **ASKED, choices=["Green", "Red"])
    assert chosen.choices[0].message.content in ("Green", "Red")
    with pytest.raises(litellm.APIConnectionError, match="top_p"):
        litellm.completion("pyggml/demo", **ASKED, top_p=7)
    with pytest.raises(litellm.APIConnectionError, match=r"none\.gguf"):
        litellm.completion("pyggml/none.gguf", **ASKED)


async def test_embeddings() -> None:
    response = litellm.embedding("pyggml/demo", input=["a dog", "a cat"])
    first, second = (row["embedding"] for row in response.data)
    assert sum(value**2 for value in first) == pytest.approx(1, abs=1e-3)
    assert first != second
    assert response.usage.prompt_tokens > 0
    assert (await litellm.aembedding("pyggml/demo", input="a dog")).data[0]["embedding"] == pytest.approx(
        first, abs=1e-5
    )


async def test_the_router(provider: PyggmlProvider) -> None:
    deployed = [{"model_name": "small", "litellm_params": {"model": "pyggml/demo"}}]
    router = litellm.Router(model_list=deployed)
    assert (await router.acompletion("small", **ASKED)).choices[0].message.content == SAID
    assert provider.llm("demo").stats().n_requests > 0

"""LiteLLM against the running server, by each of the protocols that both speak."""

from __future__ import annotations

import json
import os
from typing import Any

import litellm
import pytest
from support.response_forms import Pet

URL = os.environ["PYGGML_URL"]
QUESTION, SAID = "What colour is the sky?", "The sky is blue."
ASKED: Any = {
    "messages": [{"role": "user", "content": QUESTION}],
    "temperature": 0,
    "max_tokens": 100,
    "num_retries": 0,
}
PROTOCOLS: Any = {
    "openai": {"model": "openai/{}", "api_base": f"{URL}/v1", "api_key": "none"},
    "hosted_vllm": {"model": "hosted_vllm/{}", "api_base": f"{URL}/v1"},
    "anthropic": {"model": "anthropic/{}", "api_base": URL, "api_key": "none"},
    "ollama": {"model": "ollama_chat/{}", "api_base": URL},
}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]},
    },
}


def by(protocol: str, model: str = "demo") -> dict[str, Any]:
    options = PROTOCOLS[protocol]
    return {**options, "model": options["model"].format(model)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_completion(protocol: str) -> None:
    response = litellm.completion(**by(protocol), **ASKED)
    assert response.choices[0].message.content == SAID
    assert response.usage.completion_tokens > 0
    assert (await litellm.acompletion(**by(protocol), **ASKED)).choices[0].message.content == SAID


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streams(protocol: str) -> None:
    chunks = litellm.completion(**by(protocol), **ASKED, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SAID


@pytest.mark.parametrize("protocol", ["openai", "hosted_vllm", "anthropic"])
def test_prompts_that_are_too_long(protocol: str) -> None:
    long = [{"role": "user", "content": "a " * 40_000}]
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**by(protocol), **{**ASKED, "messages": long})


@pytest.mark.parametrize("protocol", ["openai", "hosted_vllm", "anthropic"])
def test_tools(protocol: str) -> None:
    response = litellm.completion(**by(protocol, "smollm2"), **ASKED, tools=[WEATHER], tool_choice="required")
    call, *_ = response.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    told = [
        *ASKED["messages"],
        response.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "Rain."},
    ]
    again = litellm.completion(**by(protocol, "smollm2"), **{**ASKED, "messages": told}, tools=[WEATHER])
    assert again.choices[0].finish_reason in ("stop", "length", "tool_calls")


@pytest.mark.parametrize("protocol", ["openai", "hosted_vllm", "ollama"])
def test_structured_output(protocol: str) -> None:
    response = litellm.completion(**by(protocol, "smollm2"), **ASKED, response_format=Pet)
    assert Pet.model_validate_json(response.choices[0].message.content)


def test_responses_and_embeddings() -> None:
    response = litellm.responses(**by("openai"), input=QUESTION, temperature=0)
    assert response.output[0].content[0].text == SAID
    rows = litellm.embedding(**by("openai"), input=["a dog", "a cat"], encoding_format="float").data
    assert len(rows) == 2
    assert (
        litellm.text_completion(
            **{**by("openai"), "model": "text-completion-openai/demo"}, prompt="Once upon a time", max_tokens=4
        )
        .choices[0]
        .text
    )


def test_errors_name_their_cause() -> None:
    with pytest.raises(litellm.BadRequestError, match="top_p"):
        litellm.completion(**by("openai"), **ASKED, top_p=7)
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**by("openai", "none"), **ASKED)

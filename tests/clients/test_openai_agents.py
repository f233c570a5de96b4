"""The OpenAI Agents SDK against the running server: both APIs, output types, tools and streams."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from support.response_forms import Pet

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
MODELS = [OpenAIChatCompletionsModel, OpenAIResponsesModel]

set_tracing_disabled(True)


@pytest.fixture
async def client() -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{os.environ['PYGGML_URL']}/v1", api_key="none", max_retries=0) as client:
        yield client


def agent(kind: Any, name: str, client: AsyncOpenAI, **options: Any) -> Agent[Any]:
    settings = ModelSettings(temperature=0, max_tokens=64, **options.pop("settings", {}))
    return Agent(name="A", model=kind(model=name, openai_client=client), model_settings=settings, **options)


@pytest.mark.parametrize("kind", MODELS)
async def test_answers(kind: Any, client: AsyncOpenAI) -> None:
    result = await Runner.run(agent(kind, "demo", client), QUESTION)
    assert result.final_output == SAID
    assert result.raw_responses[0].usage.output_tokens > 0
    follow = await Runner.run(
        agent(kind, "demo", client), [*result.to_input_list(), {"role": "user", "content": "Why?"}]
    )
    assert isinstance(follow.final_output, str)
    one_word = agent(kind, "demo", client, instructions="Answer in one word.")
    assert (await Runner.run(one_word, QUESTION)).final_output == "Blue."


@pytest.mark.parametrize("kind", MODELS)
async def test_streams(kind: Any, client: AsyncOpenAI) -> None:
    result = Runner.run_streamed(agent(kind, "demo", client), QUESTION)
    pieces = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]
    assert "".join(pieces) == result.final_output == SAID


@pytest.mark.parametrize("kind", MODELS)
async def test_output_types(kind: Any, client: AsyncOpenAI) -> None:
    result = await Runner.run(agent(kind, "smollm2", client, output_type=Pet), "A pet as JSON")
    assert isinstance(result.final_output, Pet)


@pytest.mark.parametrize("kind", MODELS)
async def test_output_types_with_tools(kind: Any, client: AsyncOpenAI) -> None:
    asked = []

    @function_tool
    def get_weather(city: str) -> str:
        """Tells the weather in a city."""
        asked.append(city)
        return "It rains."

    # The SDK requires a call only once; the final text then has the type.
    required = agent(
        kind, "smollm2", client, output_type=Pet, tools=[get_weather], settings={"tool_choice": "required"}
    )
    result = await Runner.run(required, "A pet as JSON", max_turns=8)
    assert asked
    assert isinstance(result.final_output, Pet)


@pytest.mark.parametrize("kind", MODELS)
async def test_tools(kind: Any, client: AsyncOpenAI) -> None:
    asked = []

    @function_tool
    def get_weather(city: str) -> str:
        """Tells the weather in a city."""
        asked.append(city)
        return "It rains."

    # The SDK lets the model choose freely after the first call.
    required = agent(kind, "smollm2", client, tools=[get_weather], settings={"tool_choice": "required"})
    result = await Runner.run(required, "What is the weather in Oslo?", max_turns=5)
    assert asked
    assert isinstance(result.final_output, str)

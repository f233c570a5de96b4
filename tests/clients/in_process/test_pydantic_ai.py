"""Pydantic AI's agents with pyggml's model."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, ModelRetry, NativeOutput, PromptedOutput, ToolOutput, UsageLimits
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.fallback import FallbackModel
from support.response_forms import Pet

import pyggml
from pyggml.integrations.pydantic_ai import PyggmlModel

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
GREEDY: Any = {"temperature": 0, "max_tokens": 200}


@pytest.fixture(scope="module")
def demo() -> PyggmlModel:
    return PyggmlModel(settings=GREEDY)


@pytest.fixture(scope="module")
def smollm2() -> PyggmlModel:
    return PyggmlModel(os.environ["PYGGML_TEST_MODEL"], n_ctx=4096, settings=GREEDY)


async def test_answers_and_streams(demo: PyggmlModel) -> None:
    agent = Agent(demo)
    result = await agent.run(QUESTION)
    assert result.output == SAID
    assert result.usage.output_tokens > 0
    async with agent.run_stream(QUESTION) as stream:
        assert "".join([piece async for piece in stream.stream_text(delta=True, debounce_by=None)]) == SAID
        assert stream.usage.output_tokens == result.usage.output_tokens
    follow = await agent.run("And grass?", message_history=result.all_messages(), model_settings={"max_tokens": 5})
    assert follow.output


def test_without_a_loop(demo: PyggmlModel) -> None:
    agent = Agent(demo, instructions="Answer in one word.")
    assert agent.run_sync(QUESTION).output == "Blue."
    assert Agent(demo, system_prompt="Answer in one word.").run_sync(QUESTION).output == "Blue."
    assert demo.model_id == "pyggml:pyggml-demo"


@pytest.mark.parametrize("form", [NativeOutput, ToolOutput, PromptedOutput])
async def test_structured_output(form: Any, smollm2: PyggmlModel) -> None:
    agent: Any = Agent(smollm2, output_type=form(Pet), retries=3)
    settings = {"temperature": 0.7, "seed": 3} if form is PromptedOutput else {}
    prompt = 'A pet as JSON, such as {"kind": "cat", "tame": true}'
    if form is PromptedOutput:
        try:
            assert isinstance((await agent.run(prompt, model_settings=settings)).output, Pet)
        except Exception as error:  # the model may miss the schema, which only the prompt names
            pytest.xfail(f"a model of 135M parameters does not follow a schema by prompt alone: {type(error).__name__}")
    else:
        assert isinstance((await agent.run(prompt)).output, Pet)
        async with agent.run_stream(prompt) as stream:
            assert isinstance(await stream.get_output(), Pet)


async def test_tools_are_called(smollm2: PyggmlModel) -> None:
    asked = []

    def get_weather(city: str) -> str:
        """Tells the weather in a city."""
        asked.append(city)
        if len(asked) == 1:
            raise ModelRetry("Try again.")
        return "It rains."

    def once(_context: Any) -> Any:
        return {"tool_choice": ["get_weather"]} if len(asked) < 2 else {"tool_choice": "none"}

    agent = Agent(smollm2, tools=[get_weather], model_settings=once, retries=2)
    result = await agent.run("What is the weather in Oslo?")
    parts = [part for message in result.all_messages() for part in message.parts]
    assert len(asked) == 2
    assert [part.tool_name for part in parts if isinstance(part, ToolCallPart)] == ["get_weather"] * 2
    assert [part.content for part in parts if isinstance(part, ToolReturnPart)][-1] == "It rains."
    assert isinstance(result.output, str)


async def test_tokens_are_counted_before_a_request(demo: PyggmlModel) -> None:
    limits = UsageLimits(input_tokens_limit=5, count_tokens_before_request=True)
    with pytest.raises(UsageLimitExceeded):
        await Agent(demo).run(QUESTION, usage_limits=limits)


async def test_other_parameters_and_refusals(demo: PyggmlModel) -> None:
    settings: Any = {"extra_body": {"choices": ["Green", "Red"]}}
    assert (await Agent(demo).run(QUESTION, model_settings=settings)).output in ("Green", "Red")
    with pytest.raises(pyggml.InvalidParameterError, match="only text"):
        await Agent(demo).run(["What is it?", BinaryContent(b"\x89PNG", media_type="image/png")])
    with pytest.raises(pyggml.InvalidParameterError, match="temperature"):
        await Agent(demo).run(QUESTION, model_settings={"temperature": -1})


async def test_direct_requests_and_fallbacks(demo: PyggmlModel) -> None:
    response = await model_request(demo, [ModelRequest.user_text_prompt(QUESTION)])
    assert isinstance(response, ModelResponse)
    assert (response.text, response.finish_reason, response.provider_name) == (SAID, "stop", "pyggml")
    assert (await Agent(FallbackModel(demo, demo)).run(QUESTION)).output == SAID

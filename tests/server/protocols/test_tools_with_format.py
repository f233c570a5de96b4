"""Tools together with an output format, over each protocol and by its own client: calls, or text of the format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import ollama
import openai
import pytest
from support.servers import servers

import pyggml
from pyggml.server import Settings, create_app

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["blue", "red"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
ASK: list[Any] = [{"role": "user", "content": "What colour is the sky?"}]
TOOL: dict[str, Any] = {"name": "get_weather", "description": "The weather", "parameters": PARAMETERS}
#: Content and arguments of the calls of an answer.
Answer = tuple[str, list[Any]]


def chat_completions(url: str, stream: bool) -> Answer:
    form = {"type": "json_schema", "json_schema": {"name": "sky", "schema": SCHEMA}}
    tools: Any = [{"type": "function", "function": TOOL}]
    options: Any = {"model": "default", "messages": ASK, "tools": tools, "response_format": form}
    options["parallel_tool_calls"] = False
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if not stream:
            message = client.chat.completions.create(**options).choices[0].message
            calls: Any = message.tool_calls or ()
            return message.content or "", [json.loads(call.function.arguments) for call in calls]
        content = arguments = ""
        for chunk in client.chat.completions.create(**options, stream=True):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            arguments += "".join(call.function.arguments for call in delta.tool_calls or ())
    return content, [json.loads(arguments)] if arguments else []


def responses(url: str, stream: bool) -> Answer:
    options: Any = {
        "model": "default",
        "input": ASK,
        "parallel_tool_calls": False,
        "tools": [{"type": "function", **TOOL}],
        "text": {"format": {"type": "json_schema", "name": "sky", "schema": SCHEMA}},
    }
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        if stream:
            with client.responses.stream(**options) as events:
                events.until_done()
                answer: Any = events.get_final_response()
        else:
            answer = client.responses.create(**options)
    return answer.output_text, [json.loads(item.arguments) for item in answer.output if item.type == "function_call"]


def messages(url: str, stream: bool) -> Answer:
    tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": PARAMETERS}
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    options: Any = {
        "model": "default",
        "max_tokens": 200,
        "messages": ASK,
        "tools": [tool],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "extra_body": {"output_config": form},
    }
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        if stream:
            with client.messages.stream(**options) as events:
                answer: Any = events.get_final_message()
        else:
            answer = client.messages.create(**options)
    content = "".join(block.text for block in answer.content if block.type == "text")
    return content, [block.input for block in answer.content if block.type == "tool_use"]


def ollama_chat(url: str, stream: bool) -> Answer:
    client = ollama.Client(host=url)
    options: Any = {"model": "default", "messages": ASK, "format": SCHEMA}
    tools: Any = [{"type": "function", "function": TOOL}]
    parts: Any = (
        [client.chat(**options, tools=tools)] if not stream else client.chat(**options, tools=tools, stream=True)
    )
    found = [part.message for part in parts]
    client._client.close()
    content = "".join(message.content or "" for message in found)
    calls = [dict(call.function.arguments) for message in found for call in message.tool_calls or ()]
    return content, calls[:1]  # its API has no field for a single call


@pytest.fixture(scope="module", params=[20.0, -20.0], ids=["calls", "answers"])
def server(request: Any) -> Iterator[tuple[str, bool]]:
    """A server whose model prefers calls or answers, by a bias of the first token of a call, and True if calls."""
    with pyggml.load(n_threads=1) as llm:
        [start] = llm.tokenize("<", add_special=False)
    app = create_app(Settings(sampling={"logit_bias": {start: request.param}, "temperature": 0, "max_tokens": 200}))
    with servers.serving(app) as url:
        yield url, request.param > 0


@pytest.mark.parametrize("ask", [chat_completions, responses, messages, ollama_chat])
def test_calls_or_the_format(ask: Callable[[str, bool], Answer], server: tuple[str, bool]) -> None:
    url, is_call = server
    content, calls = ask(url, False)
    assert (content, calls) == ask(url, True)
    if is_call:
        assert calls
        assert calls[0]["city"] in ("Rome", "Oslo")
    else:
        assert not calls
        assert json.loads(content)["colour"] in ("blue", "red")

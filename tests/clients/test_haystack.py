"""Haystack's OpenAI components against the running server."""

from __future__ import annotations

import os
from typing import Annotated, Any

from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, Document, StreamingChunk
from haystack.tools import tool
from haystack.utils import Secret
from support.response_forms import Pet

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
CONNECTION: Any = {"api_base_url": f"{os.environ['PYGGML_URL']}/v1", "api_key": Secret.from_token("none")}
GREEDY = {"temperature": 0, "max_tokens": 64}


@tool
def get_weather(city: Annotated[str, "the city"]) -> str:
    """Tells the weather in a city."""
    return f"It rains in {city}."


def generator(model: str, **options: Any) -> Any:
    return OpenAIChatGenerator(model=model, generation_kwargs=GREEDY, max_retries=0, **CONNECTION, **options)


async def test_chat() -> None:
    demo = generator("demo")
    (reply,) = demo.run([ChatMessage.from_user(QUESTION)])["replies"]
    assert (reply.text, reply.meta["usage"]["completion_tokens"] > 0) == (SAID, True)
    assert (await demo.run_async(QUESTION))["replies"][0].text == SAID


def test_streams() -> None:
    chunks: list[StreamingChunk] = []
    (reply,) = generator("demo").run(QUESTION, streaming_callback=chunks.append)["replies"]
    assert "".join(chunk.content for chunk in chunks) == reply.text == SAID


def test_tools() -> None:
    asking = generator("smollm2", tools=[get_weather])
    asked = [ChatMessage.from_user("What is the weather in Oslo?")]
    (reply,) = asking.run(asked, generation_kwargs={"tool_choice": "required"})["replies"]
    call, *_ = reply.tool_calls
    assert (call.tool_name, list(call.arguments)) == ("get_weather", ["city"])
    assert asking.run([*asked, reply, ChatMessage.from_tool("It rains.", origin=call)])["replies"]


def test_structured_output() -> None:
    found = generator("smollm2").run("A pet as JSON", generation_kwargs={"response_format": Pet})
    assert Pet.model_validate_json(found["replies"][0].text)


def test_embedders() -> None:
    options: Any = {"model": "demo", "max_retries": 0, **CONNECTION}
    (document,) = OpenAIDocumentEmbedder(**options).run([Document(content="a dog")])["documents"]
    assert len(document.embedding) == len(OpenAITextEmbedder(**options).run("a dog")["embedding"])

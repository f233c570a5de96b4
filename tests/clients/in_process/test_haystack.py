"""Haystack's pipelines with pyggml's components."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import pytest
from haystack import Document, Pipeline
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.core import serialization
from haystack.dataclasses import ChatMessage, ImageContent, StreamingChunk
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import tool
from support.response_forms import Pet

import pyggml
from pyggml.integrations.haystack import (
    PyggmlChatGenerator,
    PyggmlDocumentEmbedder,
    PyggmlGenerator,
    PyggmlTextEmbedder,
)

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
GREEDY = {"temperature": 0}
SMOLLM2: Any = {"model": os.environ["PYGGML_TEST_MODEL"], "load_options": {"n_ctx": 4096}}


@tool
def get_weather(city: Annotated[str, "the city"]) -> str:
    """Tells the weather in a city."""
    return f"It rains in {city}."


@pytest.fixture(scope="module")
def demo() -> PyggmlChatGenerator:
    return PyggmlChatGenerator(generation_kwargs=GREEDY)


def show(chunk: StreamingChunk) -> None:
    print(chunk.content, end="")


def test_chat(demo: PyggmlChatGenerator) -> None:
    (reply,) = demo.run([ChatMessage.from_user(QUESTION)])["replies"]
    assert (reply.text, reply.meta["finish_reason"]) == (SAID, "stop")
    assert reply.meta["usage"]["completion_tokens"] > 0
    told = [ChatMessage.from_system("Answer in one word."), ChatMessage.from_user(QUESTION)]
    assert demo.run(told)["replies"][0].text == "Blue."
    assert len(demo.run(QUESTION, generation_kwargs={"n": 2})["replies"]) == 2


def test_streams(demo: PyggmlChatGenerator) -> None:
    chunks: list[StreamingChunk] = []
    (reply,) = demo.run(QUESTION, streaming_callback=chunks.append)["replies"]
    assert "".join(chunk.content for chunk in chunks) == reply.text == SAID
    assert (chunks[0].start, chunks[-1].finish_reason) == (True, "stop")


async def test_coroutines(demo: PyggmlChatGenerator) -> None:
    assert (await demo.run_async(QUESTION))["replies"][0].text == SAID
    pieces = []

    async def take(chunk: StreamingChunk) -> None:
        pieces.append(chunk.content)

    await demo.run_async(QUESTION, streaming_callback=take)
    assert "".join(pieces) == SAID


def test_tools() -> None:
    generator = PyggmlChatGenerator(**SMOLLM2, tools=[get_weather], generation_kwargs={**GREEDY, "max_tokens": 64})
    asked = [ChatMessage.from_user("What is the weather in Oslo?")]
    (reply,) = generator.run(asked, generation_kwargs={"tool_choice": "required"})["replies"]
    (call,) = reply.tool_calls
    assert (call.tool_name, list(call.arguments)) == ("get_weather", ["city"])
    told = [*asked, reply, ChatMessage.from_tool("It rains.", origin=call)]
    assert generator.run(told)["replies"][0].text is not None
    chunks: list[StreamingChunk] = []
    required = {"tool_choice": "required"}
    generator.run(asked, generation_kwargs=required, streaming_callback=chunks.append)
    texts = [delta.arguments or "" for chunk in chunks for delta in chunk.tool_calls or []]
    assert json.loads("".join(texts)) == call.arguments


def test_an_agent_runs() -> None:
    generator = PyggmlChatGenerator(**SMOLLM2, generation_kwargs={**GREEDY, "max_tokens": 64})
    agent = Agent(chat_generator=generator, tools=[get_weather], max_agent_steps=2)
    assert agent.run([ChatMessage.from_user("What is the weather in Oslo?")])["messages"]


def test_structured_output() -> None:
    generator = PyggmlChatGenerator(**SMOLLM2, generation_kwargs={**GREEDY, "response_format": Pet})
    assert Pet.model_validate_json(generator.run("A pet as JSON")["replies"][0].text)


def test_images_are_refused(demo: PyggmlChatGenerator) -> None:
    picture = ImageContent(base64_image="iVBORw0KGgo=", mime_type="image/png", validation=False)
    with pytest.raises(pyggml.InvalidParameterError, match="only text"):
        demo.run([ChatMessage.from_user(content_parts=["What is it?", picture])])


def test_plain_generation(demo: PyggmlChatGenerator) -> None:
    generator = PyggmlGenerator(generation_kwargs={"max_tokens": 5})
    found = generator.run("Once upon a time")
    assert found["replies"][0].startswith(", there was")
    assert found["meta"][0]["finish_reason"] == "length"
    assert generator.llm is demo.llm


def test_a_pipeline_retrieves_and_answers_and_is_saved() -> None:
    store = InMemoryDocumentStore()
    texts = ["The sky is blue.", "A dog is an animal."]
    documents = PyggmlDocumentEmbedder(meta_fields_to_embed=["topic"]).run(
        [Document(content=text, meta={"topic": "facts"}) for text in texts]
    )["documents"]
    assert sum(value**2 for value in documents[0].embedding) == pytest.approx(1, abs=1e-3)
    store.write_documents(documents)
    pipeline = Pipeline()
    pipeline.add_component("embedder", PyggmlTextEmbedder())
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=1))
    pipeline.add_component(
        "prompt",
        ChatPromptBuilder([ChatMessage.from_user("{{question}}")], required_variables=["question"]),
    )
    pipeline.add_component("llm", PyggmlChatGenerator(generation_kwargs=GREEDY, streaming_callback=show))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("prompt.prompt", "llm.messages")
    asked: Any = {"embedder": {"text": QUESTION}, "prompt": {"question": QUESTION}}
    found = pipeline.run(asked)
    assert found["llm"]["replies"][0].text == SAID
    assert len(found["retriever"]["documents"]) == 1
    serialization.allow_deserialization_module(show.__module__)
    loaded = PyggmlChatGenerator.from_dict(pipeline.get_component("llm").to_dict())
    assert (loaded.streaming_callback, loaded.generation_kwargs) == (show, GREEDY)
    again = PyggmlDocumentEmbedder(prefix="a ").to_dict()
    assert again["init_parameters"]["prefix"] == "a "
    with pyggml.load() as own, pytest.raises(pyggml.InvalidParameterError, match="open LLM"):
        PyggmlTextEmbedder(own).to_dict()

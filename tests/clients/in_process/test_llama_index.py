"""LlamaIndex with pyggml: chat, completion, tools, structured output, agents' loops, indexes and query engines."""

from __future__ import annotations

import os
from typing import Any

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel
from support.response_forms import Pet

import pyggml
from pyggml.integrations.llama_index import Pyggml, PyggmlEmbedding

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
SMOLLM2: Any = {"model": os.environ["PYGGML_TEST_MODEL"], "load_options": {"n_ctx": 4096}}


class City(BaseModel):
    """A city."""

    name: str


def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"It rains in {city}."


WEATHER = FunctionTool.from_defaults(get_weather)


@pytest.fixture(scope="module")
def demo() -> Pyggml:
    return Pyggml(temperature=0)


@pytest.fixture(scope="module")
def smollm2() -> Pyggml:
    return Pyggml(**SMOLLM2, temperature=0, max_tokens=64)


def test_chat(demo: Pyggml) -> None:
    response = demo.chat([ChatMessage(role="user", content=QUESTION)])
    assert response.message.content == SAID
    assert response.additional_kwargs["completion_tokens"] > 0
    pieces = list(demo.stream_chat([ChatMessage(role="user", content=QUESTION)]))
    assert ("".join(piece.delta or "" for piece in pieces), pieces[-1].message.content) == (SAID, SAID)
    told = [ChatMessage(role="system", content="Answer in one word."), ChatMessage(role="user", content=QUESTION)]
    assert demo.chat(told).message.content == "Blue."
    assert len(str(demo.chat(told, max_tokens=1).message.content)) == 1


async def test_coroutines(demo: Pyggml) -> None:
    messages = [ChatMessage(role="user", content=QUESTION)]
    assert (await demo.achat(messages)).message.content == SAID
    assert "".join([piece.delta or "" async for piece in await demo.astream_chat(messages)]) == SAID
    assert (await demo.acomplete(QUESTION)).text == SAID
    assert "".join([piece.delta or "" async for piece in await demo.astream_complete(QUESTION)]) == SAID


def test_completions_answer_or_continue(demo: Pyggml) -> None:
    assert demo.complete(QUESTION).text == SAID
    continued = demo.complete("Once upon a time", formatted=True, max_tokens=5)
    assert continued.text.startswith(", there was")
    assert "".join(piece.delta or "" for piece in demo.stream_complete(QUESTION)) == SAID
    assert demo.predict(PromptTemplate("What colour is {thing}?"), thing="the sky") == SAID


def test_metadata_and_copies(demo: Pyggml) -> None:
    assert (demo.metadata.context_window, demo.metadata.model_name) == (demo.llm.n_ctx, "pyggml-demo")
    assert demo.metadata.is_function_calling_model
    assert Pyggml().llm is demo.llm
    assert demo.model_copy().chat([ChatMessage(role="user", content=QUESTION)]).message.content == SAID
    with pyggml.load() as own:
        assert Pyggml(model=own).llm is own


def test_images_are_refused(demo: Pyggml) -> None:
    picture = ChatMessage(role="user", blocks=[TextBlock(text="What is it?"), ImageBlock(url="http://localhost/a.png")])
    with pytest.raises(pyggml.InvalidParameterError, match="read only text"):
        demo.chat([picture])


def test_tools(smollm2: Pyggml) -> None:
    response = smollm2.chat_with_tools([WEATHER], "What is the weather in Oslo?", tool_required=True)
    (call,) = smollm2.get_tool_calls_from_response(response)
    assert (call.tool_name, list(call.tool_kwargs)) == ("get_weather", ["city"])
    told = [
        ChatMessage(role="user", content="What is the weather in Oslo?"),
        response.message,
        ChatMessage(role="tool", content="It rains.", additional_kwargs={"tool_call_id": call.tool_id}),
    ]
    assert smollm2.chat_with_tools([WEATHER], chat_history=told).message.content is not None
    *_, last = smollm2.stream_chat_with_tools([WEATHER], "What is the weather in Oslo?", tool_required=True)
    (streamed,) = [block for block in last.message.blocks if isinstance(block, ToolCallBlock)]
    assert smollm2.get_tool_calls_from_response(last)[0].tool_kwargs == call.tool_kwargs
    assert streamed.tool_name == "get_weather"
    assert "rains" in str(smollm2.predict_and_call([WEATHER], "The weather in Oslo?", tool_required=True))


async def test_an_agent_runs(smollm2: Pyggml) -> None:
    agent = FunctionAgent(tools=[WEATHER], llm=smollm2, initial_tool_choice="get_weather")
    assert str(await agent.run("What is the weather in Oslo?"))


def test_structured_output(smollm2: Pyggml) -> None:
    assert isinstance(smollm2.structured_predict(Pet, PromptTemplate("A pet as JSON")), Pet)
    structured = smollm2.as_structured_llm(Pet)
    assert isinstance(structured.chat([ChatMessage(role="user", content="A pet")]).raw, Pet)
    direct = smollm2.chat([ChatMessage(role="user", content="A city")], json_schema=City)
    assert City.model_validate_json(direct.message.content or "")


def test_an_index_answers(demo: Pyggml) -> None:
    embedding = PyggmlEmbedding()
    texts = ["The sky is blue.", "A dog is an animal.", "Two and two make four."]
    index = VectorStoreIndex.from_documents([Document(text=text) for text in texts], embed_model=embedding)
    nodes: Any = index.as_retriever(similarity_top_k=3).retrieve("Which colour has the sky?")
    assert {node.text for node in nodes} == set(texts)
    assert nodes[0].score >= nodes[-1].score
    assert str(index.as_query_engine(llm=demo, similarity_top_k=1).query(QUESTION))


def test_callbacks_count_tokens(demo: Pyggml) -> None:
    counter = TokenCountingHandler(tokenizer=demo.llm.tokenize)
    counted = Pyggml(temperature=0, callback_manager=CallbackManager([counter]))
    response = counted.chat([ChatMessage(role="user", content=QUESTION)])
    assert counter.completion_llm_token_count == response.additional_kwargs["completion_tokens"] > 0
    assert counter.prompt_llm_token_count == response.additional_kwargs["prompt_tokens"]


async def test_embeddings() -> None:
    embedding = PyggmlEmbedding(embed_batch_size=2)
    one, two, three = embedding.get_text_embedding_batch(["a dog", "a cat", "the sky"])
    assert sum(value**2 for value in one) == pytest.approx(1, abs=1e-3)
    assert embedding.get_query_embedding("a dog") == pytest.approx(one, abs=1e-5)
    assert (await embedding.aget_text_embedding("a cat")) == pytest.approx(two, abs=1e-5)
    assert (await embedding.aget_text_embedding_batch(["the sky"]))[0] == pytest.approx(three, abs=1e-5)

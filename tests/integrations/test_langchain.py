"""LangChain's classes with the demonstration model; its standard tests run in tests/clients/in_process."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from support.response_forms import GetWeather, Pet

import pyggml
from pyggml.integrations.langchain import ChatPyggml, PyggmlEmbeddings

QUESTION, SAID = "What colour is the sky?", "The sky is blue."


@pytest.fixture(scope="module")
def chat(llm: pyggml.LLM) -> ChatPyggml:
    llm.embed(".")  # opens a context, which stays
    return ChatPyggml(model=llm, temperature=0, max_tokens=200)


def test_answers_streams_and_chains(chat: ChatPyggml) -> None:
    answer = chat.invoke(QUESTION)
    assert (answer.content, answer.response_metadata["finish_reason"]) == (SAID, "stop")
    pieces = list(chat.stream(QUESTION))
    whole: Any = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert (whole.content, whole.usage_metadata) == (
        SAID,
        {**answer.usage_metadata, "input_token_details": whole.usage_metadata["input_token_details"]},
    )
    chain = ChatPromptTemplate.from_messages([("user", "What colour is {thing}?")]) | chat | StrOutputParser()
    assert chain.invoke({"thing": "the sky"}) == SAID
    assert [each.content for each in chat.batch([QUESTION, QUESTION])] == [SAID, SAID]
    assert chat.invoke([SystemMessage("Answer in one word."), HumanMessage(QUESTION)]).content == "Blue."


def test_coroutines(chat: ChatPyggml) -> None:
    async def main() -> tuple[Any, str]:
        pieces = [str(piece.content) async for piece in chat.astream(QUESTION)]
        return (await chat.ainvoke(QUESTION)).content, "".join(pieces)

    assert asyncio.run(main()) == (SAID, SAID)


def test_parameters_of_calls_come_first(chat: ChatPyggml, llm: pyggml.LLM) -> None:
    assert chat.invoke(QUESTION, max_tokens=2).content == "The sky"
    assert chat.bind(choices=["Green", "Red"]).invoke(QUESTION).content in ("Green", "Red")
    assert chat.invoke(QUESTION, stop=["blue"]).content == "The sky is "
    assert "logprobs" in chat.invoke(QUESTION, logprobs=1).response_metadata
    with pytest.raises(pyggml.InvalidParameterError, match="temperature"):
        ChatPyggml(model=llm, temperature=-1).invoke(QUESTION)


def test_tools(chat: ChatPyggml) -> None:
    # Lets a small model come to the point in JSON, instead of writing spaces.
    eager = dict.fromkeys(chat.llm.tokenize('"}', add_special=False), 20.0)
    bound = chat.bind_tools([GetWeather], tool_choice="any", logit_bias=eager)
    answer = bound.invoke(QUESTION)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]["city"] in ("Rome", "Oslo")) == ("GetWeather", True)
    told = [HumanMessage(QUESTION), answer, ToolMessage("It rains.", tool_call_id=call["id"])]
    assert isinstance(chat.invoke(told, max_tokens=5), AIMessage)
    cut = bound.invoke(QUESTION, max_tokens=12)
    assert not cut.tool_calls


@pytest.mark.parametrize("schema", [Pet, Pet.model_json_schema()], ids=["type", "schema"])
def test_structured_output(schema: Any, chat: ChatPyggml) -> None:
    found = chat.with_structured_output(schema).invoke("A pet as JSON")
    assert isinstance(found, Pet) or set(found) == {"kind", "tame"}
    raw = chat.with_structured_output(schema, include_raw=True).invoke("A pet as JSON")
    assert isinstance(raw["raw"], AIMessage)
    assert (raw["parsing_error"], raw["parsed"]) == (None, found)


def test_counts_and_copies(chat: ChatPyggml) -> None:
    n_tokens = chat.get_num_tokens_from_messages([HumanMessage(QUESTION)])
    assert n_tokens == chat.invoke(QUESTION).usage_metadata["input_tokens"]
    assert chat.get_num_tokens("a") == len(chat.llm.tokenize("a"))
    assert copy.deepcopy(chat).llm is chat.llm


def test_models_are_shared_by_name_and_freed() -> None:
    one, other = ChatPyggml(load_options={"n_ctx": 512}), PyggmlEmbeddings(load_options={"n_ctx": 512})
    assert one.llm is other.llm is not ChatPyggml(load_options={"n_ctx": 256}).llm
    with pytest.raises(ValueError, match="pass n_ctx to"):  # pydantic's
        ChatPyggml(model=one.llm, load_options={"n_ctx": 512})
    one.llm.close()
    assert ChatPyggml(load_options={"n_ctx": 512}).invoke(QUESTION, temperature=0).content == SAID


def test_images_are_refused(chat: ChatPyggml) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    with pytest.raises(pyggml.InvalidParameterError, match="only read text"):
        chat.invoke([HumanMessage([{"type": "text", "text": "What is it?"}, picture])])


@pytest.mark.usefixtures("chat")
def test_embeddings(llm: pyggml.LLM) -> None:
    embeddings = PyggmlEmbeddings(llm, query_prefix="query: ")
    documents = embeddings.embed_documents(["a dog", "a cat"])
    np.testing.assert_allclose(documents, llm.embed(["a dog", "a cat"], normalize=True), atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query("a dog"), llm.embed("query: a dog", normalize=True), atol=1e-6)
    assert asyncio.run(embeddings.aembed_query("a dog")) == pytest.approx(embeddings.embed_query("a dog"))

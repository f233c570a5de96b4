"""Frameworks that speak OpenAI's API against the running server: LangChain and Pydantic AI.

Instructor is tested in ``tests/clients``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import AsyncOpenAI, DefaultHttpxClient
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.response_forms import GetWeather, Pet
from support.servers import servers

QUESTION = "What colour is the sky?"
SAID = "The sky is blue."
# Lets a small model come to the point in JSON, instead of writing spaces.
EAGER: Any = {"logit_bias": {'"': 20, "}": 8}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.serving() as url:
        httpx.post(f"{url}/v1/embeddings", json={"input": "a"})  # makes their context, which then stays
        yield f"{url}/v1"


def chat_model(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=url, api_key="none", model="default", max_retries=0, **options)


def test_langchain_asks(url: str) -> None:
    llm = chat_model(url, stream_usage=True)
    answer = llm.invoke(QUESTION)
    assert (answer.content, answer.response_metadata["finish_reason"]) == (SAID, "stop")
    pieces = list(llm.stream(QUESTION))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.content == SAID
    assert whole.usage_metadata is not None
    assert answer.usage_metadata is not None
    assert whole.usage_metadata["total_tokens"] == answer.usage_metadata["total_tokens"]
    assert [each.content for each in llm.batch([QUESTION, QUESTION])] == [SAID, SAID]
    assert llm.bind(logprobs=True).invoke(QUESTION).response_metadata["logprobs"]["content"][0]["token"] == "The"


def test_langchain_asks_in_an_event_loop(url: str) -> None:
    async def main() -> tuple[Any, str]:
        llm = chat_model(url)
        pieces = [piece.content async for piece in llm.astream(QUESTION)]
        return (await llm.ainvoke(QUESTION)).content, "".join(map(str, pieces))

    assert asyncio.run(main()) == (SAID, SAID)


@pytest.mark.slow
def test_langchain_calls_tools(url: str) -> None:
    llm = chat_model(url, max_tokens=200, extra_body=EAGER)
    bound = llm.bind_tools([GetWeather], tool_choice="required", parallel_tool_calls=False)
    answer = bound.invoke(QUESTION)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]["city"] in ("Rome", "Oslo")) == ("GetWeather", True)
    streamed: Any = None
    for piece in bound.stream(QUESTION):
        streamed = piece if streamed is None else streamed + piece
    assert streamed.tool_calls[0]["args"]["city"] in ("Rome", "Oslo")
    told = [HumanMessage(QUESTION), answer, ToolMessage("It rains.", tool_call_id=call["id"])]
    assert isinstance(chat_model(url, max_tokens=5).invoke(told), AIMessage)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_answers_with_objects(method: Any, url: str) -> None:
    llm = chat_model(url, max_tokens=200, extra_body=EAGER)
    assert isinstance(llm.with_structured_output(Pet, method=method).invoke("A pet as JSON"), Pet)


@pytest.mark.parametrize("use_responses_api", [False, True])
def test_langchain_answers_with_objects_or_calls(use_responses_api: bool, url: str) -> None:
    start = httpx.post(f"{url.removesuffix('/v1')}/tokenize", json={"content": "<"}).json()["tokens"][0]
    for bias, is_call in ((60, True), (-60, False)):  # of the first token of a call
        options: Any = {"logit_bias": {start: bias}, "parallel_tool_calls": False, "temperature": 0}
        llm = chat_model(url, max_tokens=200, use_responses_api=use_responses_api, extra_body=options)
        typed = llm.with_structured_output(Pet, method="json_schema", include_raw=True, strict=True, tools=[GetWeather])
        found: Any = typed.invoke("A pet as JSON")
        assert found["parsing_error"] is None
        assert bool(found["raw"].tool_calls) is is_call
        assert isinstance(found["parsed"], Pet) is not is_call


def test_langchain_embeds(url: str) -> None:
    with DefaultHttpxClient() as client:  # LangChain closes none that it makes itself
        embeddings = OpenAIEmbeddings(
            base_url=url,
            api_key="none",  # type: ignore[arg-type]
            model="default",
            check_embedding_ctx_length=False,  # it would send the tokens of OpenAI's vocabulary
            http_client=client,
        )
        documents = embeddings.embed_documents(["a dog", "a cat"])
        assert len(documents) == 2
        np.testing.assert_allclose(embeddings.embed_query("a dog"), documents[0], atol=1e-5)


@pytest.mark.slow_except("NativeOutput")
@pytest.mark.parametrize("form", [NativeOutput, ToolOutput])
def test_pydantic_ai(form: Any, url: str) -> None:
    async def main() -> tuple[Any, str, list[str]]:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            model = OpenAIChatModel("default", provider=OpenAIProvider(openai_client=client))
            pet: Any = Agent(model, output_type=form(Pet), model_settings={"max_tokens": 300, "extra_body": EAGER})
            plain = Agent(model)
            async with plain.run_stream(QUESTION) as stream:
                pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
            return (await pet.run("A pet as JSON")).output, (await plain.run(QUESTION)).output, pieces

    pet, said, pieces = asyncio.run(main())
    assert isinstance(pet, Pet)
    assert said == "".join(pieces) == SAID

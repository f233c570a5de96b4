"""LangChain's classes for llama-cpp-python, in langchain-community."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_community.chat_models import ChatLlamaCpp
from langchain_community.embeddings import LlamaCppEmbeddings
from langchain_community.llms import LlamaCpp
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool

# LangChain sets RoPE's base to that of Llama 2, whatever the model's is; 0 is the model's own.
OWN_ROPE: dict[str, Any] = {"rope_freq_base": 0.0, "rope_freq_scale": 0.0}


@tool
def get_weather(city: str) -> str:
    """Says what the weather is like in a city."""
    return f"sunny in {city}"


@pytest.fixture(scope="module")
def llm(smollm2_path: str) -> Any:
    return LlamaCpp(model_path=smollm2_path, temperature=0.0, max_tokens=12, repeat_penalty=1.0, **OWN_ROPE)


@pytest.fixture(scope="module")
def chat(smollm2_path: str) -> Any:
    return ChatLlamaCpp(model_path=smollm2_path, temperature=0.0, max_tokens=60, repeat_penalty=1.0, **OWN_ROPE)


def test_completion_and_stream(llm: Any) -> None:
    text = llm.invoke("The capital of France is")
    assert "Paris" in text
    assert "".join(llm.stream("The capital of France is")) == text
    assert llm.get_num_tokens("The capital of France is") > 4


def test_stop_strings_and_batch(llm: Any) -> None:
    texts = llm.batch(["One, two, three,", "One, two, three, four,"], stop=[","])
    assert [text.strip() for text in texts] == ["four", "five"]


def test_grammar_file(smollm2_path: str, tmp_path: Path) -> None:
    grammar = tmp_path / "colour.gbnf"
    grammar.write_text('root ::= " red" | " blue"')
    llm = LlamaCpp(model_path=smollm2_path, grammar_path=str(grammar), streaming=False, **OWN_ROPE)
    assert llm.invoke("The sky is") in (" red", " blue")


def test_chat(chat: Any) -> None:
    messages = [SystemMessage("Answer in one word."), HumanMessage("What is the capital of France?")]
    answer = chat.invoke(messages)
    assert "Paris" in answer.content
    assert answer.response_metadata["finish_reason"] == "stop"
    assert "".join(chunk.content for chunk in chat.stream(messages)) == answer.content


def test_tool_call(chat: Any) -> None:
    bound = chat.bind_tools([get_weather], tool_choice="get_weather")
    (call,) = bound.invoke("What is the weather in Paris?").tool_calls
    assert call["name"] == "get_weather"
    assert get_weather.invoke(call["args"]).startswith("sunny in")


def test_structured_output(chat: Any) -> None:
    schema = {"title": "pet", "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    found = chat.with_structured_output(schema).invoke("A dog called Rex, as JSON")
    assert json.loads(json.dumps(found)).keys() == {"name"}


def test_embeddings(smollm2_path: str) -> None:
    embeddings = LlamaCppEmbeddings(model_path=smollm2_path, n_batch=512, verbose=False)
    vectors = embeddings.embed_documents(["Hello", "world"])
    assert len(vectors) == 2
    assert vectors[0] != vectors[1]
    assert embeddings.embed_query("Hello") == vectors[0]

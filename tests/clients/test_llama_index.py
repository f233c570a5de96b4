"""LlamaIndex's OpenAILike classes against the running server."""

from __future__ import annotations

import os
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from support.response_forms import Pet

QUESTION, SAID = "What colour is the sky?", "The sky is blue."
CONNECTION: Any = {"api_base": f"{os.environ['PYGGML_URL']}/v1", "api_key": "none", "max_retries": 0}


def llm(model: str) -> OpenAILike:
    return OpenAILike(
        model=model,
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=1024,
        temperature=0,
        max_tokens=64,
        **CONNECTION,
    )


def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"It rains in {city}."


async def test_chat() -> None:
    messages = [ChatMessage(role="user", content=QUESTION)]
    demo = llm("demo")
    assert demo.chat(messages).message.content == SAID
    assert "".join(piece.delta or "" for piece in demo.stream_chat(messages)) == SAID
    assert (await demo.achat(messages)).message.content == SAID
    assert demo.complete(QUESTION).text == SAID


def test_tools() -> None:
    smollm2, weather = llm("smollm2"), FunctionTool.from_defaults(get_weather)
    response = smollm2.chat_with_tools([weather], "What is the weather in Oslo?", tool_required=True)
    (call,) = smollm2.get_tool_calls_from_response(response)
    assert (call.tool_name, list(call.tool_kwargs)) == ("get_weather", ["city"])
    assert "rains" in str(smollm2.predict_and_call([weather], "The weather in Oslo?", tool_required=True))


def test_structured_output() -> None:
    assert isinstance(llm("smollm2").structured_predict(Pet, PromptTemplate("A pet as JSON")), Pet)


def test_embeddings() -> None:
    embedding = OpenAILikeEmbedding(model_name="demo", **CONNECTION)
    one, other = embedding.get_text_embedding_batch(["a dog", "a cat"])
    assert len(one) == len(other) > 0
    assert one != other

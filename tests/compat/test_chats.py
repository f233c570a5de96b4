"""Chat completions, chat formats and chat handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pyggml
from pyggml.compat.llama_cpp import Llama, llama_chat_format
from pyggml.compat.llama_cpp.llama_chat_format import (
    ChatFormatterResponse,
    Jinja2ChatFormatter,
    Llava15ChatHandler,
    hf_tokenizer_config_to_chat_completion_handler,
    register_chat_completion_handler,
    register_chat_format,
)

MESSAGES = [{"role": "user", "content": "What colour is the sky?"}]
GREEDY: dict[str, Any] = {"max_tokens": 12, "temperature": 0.0}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]},
}
TOOL = {"type": "function", "function": WEATHER}


def content_of(chunks: Any) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def test_dictionary(llama: Llama) -> None:
    found = llama.create_chat_completion(MESSAGES, **GREEDY)
    assert list(found) == ["id", "object", "created", "model", "choices", "usage"]
    assert (found["id"][:9], found["object"]) == ("chatcmpl-", "chat.completion")
    message = {"role": "assistant", "content": llama.llm.chat(MESSAGES, **GREEDY).message.content}
    assert found["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    assert found["usage"]["prompt_tokens"] == len(llama.llm.tokenize_chat(MESSAGES))


def test_stream(llama: Llama) -> None:
    chunks = list(llama.create_chat_completion(MESSAGES, stream=True, **GREEDY))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant"}
    assert deltas[-1] == {}
    assert len(deltas) == llama.create_chat_completion(MESSAGES, **GREEDY)["usage"]["completion_tokens"] + 2
    assert content_of(chunks) == llama.create_chat_completion(MESSAGES, **GREEDY)["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_logprobs(llama: Llama) -> None:
    found = llama.create_chat_completion(MESSAGES, logprobs=True, top_logprobs=2, **GREEDY)["choices"][0]["logprobs"]
    assert list(found) == ["content", "refusal"]
    assert list(found["content"][0]) == ["token", "bytes", "logprob", "top_logprobs"]
    assert len(found["content"][0]["top_logprobs"]) == 2
    chunks = llama.create_chat_completion(MESSAGES, logprobs=True, top_logprobs=2, stream=True, **GREEDY)
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [token for each in streamed if each for token in each["content"]] == found["content"]


def test_response_format(llama: Llama) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    options: dict[str, Any] = {"response_format": {"type": "json_object", "schema": schema}, "max_tokens": 80}
    by_loop: dict[str, Any] = {"logits_processor": [lambda _, scores: scores]}
    for extra in ({}, by_loop):
        found = llama.create_chat_completion(MESSAGES, **options, **extra)["choices"][0]["message"]["content"]
        assert json.loads(found)["colour"] in ("red", "blue")
    assert json.loads(content_of(llama.create_chat_completion(MESSAGES, stream=True, **options)))


def test_tools(llama: Llama) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    found = llama.create_chat_completion(MESSAGES, tools=[TOOL], tool_choice=choice, max_tokens=300, seed=1)["choices"][
        0
    ]
    (call,) = found["message"]["tool_calls"]
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] is None
    assert found["message"]["function_call"] == call["function"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    chunks = llama.create_chat_completion(
        MESSAGES, tools=[TOOL], tool_choice=choice, max_tokens=300, seed=1, stream=True
    )
    parts = [delta for chunk in chunks for delta in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert parts[0]["function"]["name"] == "get_weather"
    assert json.loads("".join(part["function"]["arguments"] for part in parts)) == {"city": "Oslo"}


def test_functions(llama: Llama) -> None:
    options: dict[str, Any] = {
        "functions": [WEATHER],
        "function_call": {"name": "get_weather"},
        "max_tokens": 300,
        "seed": 1,
    }
    answer = llama.create_chat_completion(MESSAGES, **options)["choices"][0]["message"]
    assert answer["function_call"]["name"] == "get_weather"
    result = {"role": "function", "name": "get_weather", "content": "sunny"}
    assert llama.create_chat_completion([*MESSAGES, answer, result], **GREEDY)["choices"][0]["message"]["content"]


def test_tools_cannot_be_combined_with_processors(llama: Llama) -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="tools cannot be combined with logits_processor"):
        llama.create_chat_completion(MESSAGES, tools=[TOOL], logits_processor=[lambda _, scores: scores])


def test_unknown_parameters(llama: Llama) -> None:
    with pytest.raises(pyggml.UnknownParameterError, match="did you mean 'max_tokens'"):
        llama.create_chat_completion(MESSAGES, max_token=3)


def test_named_formats(llama: Llama) -> None:
    with Llama(llama.model_path, n_threads=1, chat_format="chatml", n_ctx=256) as named:
        found = named.create_chat_completion(MESSAGES, **GREEDY)
        system = [{"role": "system", "content": ""}, *MESSAGES]  # which this format always has
        assert found["choices"] == llama.create_chat_completion(system, **GREEDY)["choices"]
        assert (
            content_of(named.create_chat_completion(MESSAGES, stream=True, **GREEDY))
            == (found["choices"][0]["message"]["content"])
        )
        choice = {"type": "function", "function": {"name": "get_weather"}}
        for stream in (False, True):
            called = named.create_chat_completion(MESSAGES, tools=[TOOL], tool_choice=choice, stream=stream)
            answer = (
                "".join(
                    chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]
                    for chunk in called
                    if chunk["choices"][0]["delta"]["tool_calls"]
                )
                if stream
                else called["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
            )
            assert json.loads(answer) == {"city": "Oslo"}
        with pytest.raises(pyggml.InvalidParameterError, match="Tool choice 'other' not found"):
            named.create_chat_completion(MESSAGES, tools=[TOOL], tool_choice={"function": {"name": "other"}})


def test_format_with_tools(llama: Llama) -> None:
    with Llama(llama.model_path, n_threads=1, chat_format="chatml-function-calling", n_ctx=512) as named:
        found = named.create_chat_completion(MESSAGES, tools=[TOOL], tool_choice="required", max_tokens=100)
    assert found["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chatmll", "did you mean 'chatml'"),
        ("functionary-v2", "leave out chat_format"),
        ("snoozy", "register_chat_format"),
        ("12345", "there are alpaca, "),
    ],
)
def test_unknown_formats(llama: Llama, name: str, message: str) -> None:
    with (
        Llama(llama.model_path, n_threads=1, chat_format=name, n_ctx=256) as named,
        pytest.raises(ValueError, match=message),
    ):
        named.create_chat_completion(MESSAGES)


def test_formats_and_handlers_of_the_caller(llama: Llama) -> None:
    @register_chat_format("test-shout")
    def shout(*, messages: Any, **kwargs: Any) -> ChatFormatterResponse:
        assert "tools" in kwargs
        return ChatFormatterResponse(prompt=messages[-1]["content"].upper(), stop=["."])

    @register_chat_completion_handler("test-echo")
    def echo(*, llama: Llama, messages: Any, **options: Any) -> Any:
        assert options["max_tokens"] == 12
        return {"choices": [{"message": {"content": f"{llama.n_ctx()} {messages[0]['content']}"}}]}

    try:
        with Llama(llama.model_path, n_threads=1, chat_format="test-shout", n_ctx=256) as named:
            answer = named.create_chat_completion(MESSAGES, **GREEDY)
            expected = llama("WHAT COLOUR IS THE SKY?", stop=["."], **GREEDY)
            assert answer["choices"][0]["message"]["content"] == expected["choices"][0]["text"]
            named.chat_handler = echo
            answer = named.create_chat_completion(MESSAGES, **GREEDY)
            assert answer["choices"][0]["message"]["content"] == "256 What colour is the sky?"
    finally:
        registry = llama_chat_format.LlamaChatCompletionHandlerRegistry()
        registry.unregister_chat_handler("test-shout")
        registry.unregister_chat_handler("test-echo")


def test_templates_as_handlers(llama: Llama) -> None:
    template = llama.metadata["tokenizer.chat_template"]
    formatter = Jinja2ChatFormatter(template, "<|im_end|>", "<|im_start|>", stop_token_ids=[llama.token_eos()])
    assert formatter(messages=MESSAGES).prompt == llama.llm.apply_chat_template(MESSAGES)
    config = {"chat_template": template, "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    for handler in (formatter.to_chat_handler(), hf_tokenizer_config_to_chat_completion_handler(config)):
        assert handler(llama=llama, messages=MESSAGES, **GREEDY)["choices"][0]["finish_reason"] in ("stop", "length")


def test_images_are_refused() -> None:
    with pytest.raises(pyggml.InvalidParameterError, match="images are not supported yet"):
        Llava15ChatHandler(clip_model_path="mmproj.gguf")


def test_objects_of_openai(llama: Llama) -> None:
    answer = llama.create_chat_completion_openai_v1(MESSAGES, **GREEDY)
    assert answer.choices[0].message.content
    chunks = list(llama.create_chat_completion_openai_v1(MESSAGES, stream=True, **GREEDY))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.choices[0].message.content

"""Completions in the format of chat completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyggml
from pyggml.compat.llama_cpp import llama_types as types
from pyggml.compat.llama_cpp.llama_grammar import LlamaGrammar


def grammar_of_response_format(response_format: Mapping[str, Any]) -> LlamaGrammar | None:
    """Return the grammar of a response format; None: any text.

    Raises:
        GrammarError: a grammar cannot express its schema.
    """
    schema = pyggml.SamplingParams(response_format=response_format).json_schema
    return None if schema is None else LlamaGrammar.from_string(pyggml.grammar_of(schema))


def completion_to_chat(completion: Any, stream: bool) -> Any:
    """Return a completion, or its stream, in the format of a chat completion."""
    return _chunks_to_chat(completion) if stream else _to_chat(completion)


def chat_logprobs(logprobs: types.CompletionLogprobs | None) -> types.ChatCompletionLogprobs | None:
    """Return the logprobs of a completion in the format of a chat completion."""
    if logprobs is None:
        return None
    content = [
        {"token": token, "bytes": None, "logprob": logprob, "top_logprobs": [_named(*each) for each in top.items()]}
        for token, logprob, top in zip(
            logprobs["tokens"],
            logprobs["token_logprobs"],
            [top or {} for top in logprobs["top_logprobs"]],
            strict=True,
        )
    ]
    return cast("types.ChatCompletionLogprobs", {"content": content, "refusal": None})


def _named(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": None}


def _to_chat(completion: Mapping[str, Any]) -> dict[str, Any]:
    (choice,) = completion["choices"]
    message = {"role": "assistant", "content": choice["text"]}
    return {
        **_chat_envelope(completion, "chat.completion", {"message": message}, choice),
        "usage": completion["usage"],
    }


def _chunks_to_chat(chunks: Iterator[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    is_first = True
    for chunk in chunks:
        (choice,) = chunk["choices"]
        if is_first:
            yield _chat_envelope(chunk, "chat.completion.chunk", {"delta": {"role": "assistant"}}, _NO_CHOICE)
            is_first = False
        delta = {"content": choice["text"]} if choice["finish_reason"] is None else {}
        yield _chat_envelope(chunk, "chat.completion.chunk", {"delta": delta}, choice)


def completion_to_call(completion: Any, name: str, stream: bool) -> Any:
    """Return a completion that is the arguments of a tool, or its stream, as a call of that tool."""
    return _chunks_to_call(completion, name) if stream else _completion_to_call(completion, name)


def _completion_to_call(completion: Mapping[str, Any], name: str) -> dict[str, Any]:
    (choice,) = completion["choices"]
    message = {"role": "assistant", "content": None, **_call(completion, name, choice["text"])}
    ended = {**choice, "finish_reason": "tool_calls"}
    return {**_chat_envelope(completion, "chat.completion", {"message": message}, ended), "usage": completion["usage"]}


def _chunks_to_call(chunks: Iterator[Mapping[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    empty = {"content": None, "function_call": None, "tool_calls": None}
    is_first = True
    for chunk in chunks:
        (choice,) = chunk["choices"]
        if is_first:
            yield _chat_envelope(chunk, "chat.completion.chunk", {"delta": {"role": "assistant", **empty}}, _NO_CHOICE)
            is_first = False
        if choice["finish_reason"] is not None:
            ended = {**choice, "finish_reason": "tool_calls"}
            yield _chat_envelope(chunk, "chat.completion.chunk", {"delta": {"role": None, **empty}}, ended)
            return
        call = _call(chunk, name, choice["text"])
        call["tool_calls"][0]["index"] = 0
        yield _chat_envelope(chunk, "chat.completion.chunk", {"delta": {"role": None, "content": None, **call}}, choice)


_NO_CHOICE: Mapping[str, Any] = {"logprobs": None, "finish_reason": None}


def _call(completion: Mapping[str, Any], name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call = {"id": f"call__0_{name}_{completion['id']}", "type": "function", "function": function}
    return {"function_call": function, "tool_calls": [call]}


def _chat_envelope(
    completion: Mapping[str, Any], kind: str, content: Mapping[str, Any], choice: Mapping[str, Any]
) -> dict[str, Any]:
    logprobs = chat_logprobs(choice["logprobs"])
    return {
        "id": f"chat{completion['id']}",
        "object": kind,
        "created": completion["created"],
        "model": completion["model"],
        "choices": [{"index": 0, **content, "logprobs": logprobs, "finish_reason": choice["finish_reason"]}],
    }

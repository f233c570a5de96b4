"""Chat completions with a model's template, as dictionaries in OpenAI's format."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyggml
from pyggml.compat._llama.chat_results import chat_logprobs
from pyggml.compat._llama.completion import Names, by_token, usage
from pyggml.compat._llama.sampling import Sampling
from pyggml.compat.llama_cpp import llama_types as types

if TYPE_CHECKING:
    from pyggml.compat.llama_cpp.llama import Llama


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """A chat completion for the engine to make.

    Attributes:
        llama: the model.
        messages: the conversation.
        tools: tools that the model may call.
        tool_choice: as OpenAI's.
        sampling: how tokens are chosen.
        max_tokens: maximum number of tokens; -1: up to the end of the context.
        stop: strings that end the answer.
        response_format: form of the answer.
        chat_template: replaces the model's own; None: the model's own.
        n_logprobs: number of alternatives with log probabilities; None: no log probabilities.
        model: the model's name in the result.
        id: the result's id.
        created: when it was requested, in seconds since 1970.
    """

    llama: Llama
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    tool_choice: str | Mapping[str, Any]
    sampling: Sampling
    max_tokens: int
    stop: Sequence[str]
    response_format: Mapping[str, Any] | None
    chat_template: str | None
    n_logprobs: int | None
    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4()}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def shows_raw_text(self) -> bool:
        """True if the content is all that the model writes, reasoning included, as in llama-cpp-python."""
        return not self.tools and self.response_format is None


def complete(request: ChatRequest) -> types.CreateChatCompletionResponse:
    """Answer a conversation.

    Raises:
        InferError: as :meth:`pyggml.LLM.chat`.
    """
    answer: pyggml.ChatCompletion = request.llama.llm.chat(*_conversation(request), **_options(request))
    choice = {
        "index": 0,
        "message": _message(request, answer),
        "logprobs": _logprobs(request, answer.logprobs),
        "finish_reason": answer.finish_reason,
    }
    return {
        "id": request.id,
        "object": "chat.completion",
        "created": request.created,
        "model": request.model,
        "choices": [cast("types.ChatCompletionResponseChoice", choice)],
        "usage": usage(answer.prompt_tokens, len(answer.token_ids)),
    }


def stream(request: ChatRequest) -> Iterator[types.CreateChatCompletionStreamResponse]:
    """Answer a conversation, and yield the answer token by token. Errors as :func:`complete`."""
    with request.llama.llm.stream_chat(*_conversation(request), **_options(request)) as chunks:
        yield _chunk(request, {"role": "assistant"}, None, None)
        reason: str | None = "length"
        for chunk in chunks:
            for delta, entries in _deltas(request, chunk):
                yield _chunk(request, delta, _logprobs(request, entries), None)
            reason = chunk.finish_reason or reason
        yield _chunk(request, {}, None, reason)


def _conversation(request: ChatRequest) -> tuple[Any, Any]:
    return openai_messages(request.messages), list(request.tools) or None


def openai_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in OpenAI's present format: function calls become tool calls."""
    return [_openai_message(message) for message in messages]


def _openai_message(message: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(message)
    if found.get("role") == "function":
        return {**found, "role": "tool", "tool_call_id": str(found.get("name", ""))}
    call = found.pop("function_call", None)
    if call and not found.get("tool_calls"):
        found["tool_calls"] = [{"id": str(call["name"]), "type": "function", "function": dict(call)}]
    if found.get("role") == "assistant" and found.get("content") is None:
        found["content"] = ""
    return found


def _options(request: ChatRequest) -> dict[str, Any]:
    others: dict[str, Any] = {} if request.n_logprobs is None else {"logprobs": max(1, request.n_logprobs)}
    if request.response_format is not None:
        others["response_format"] = request.response_format
    options: dict[str, Any] = {
        "params": request.sampling.params(max_tokens=request.max_tokens, stop=request.stop, **others)
    }
    if request.tools:
        options["tool_choice"] = request.tool_choice
    if request.chat_template is not None:
        options["chat_template"] = request.chat_template
    return options


def _message(request: ChatRequest, answer: pyggml.ChatCompletion) -> dict[str, Any]:
    content = answer.text if request.shows_raw_text else answer.message.content
    message: dict[str, Any] = {"role": "assistant", "content": content}
    calls = [call.to_dict() for call in answer.message.tool_calls] if request.tools else []
    if calls:
        message |= {"content": content or None, "tool_calls": calls}
    if len(calls) == 1:
        message["function_call"] = calls[0]["function"]
    return message


def _deltas(
    request: ChatRequest, chunk: pyggml.ChatChunk
) -> Iterator[tuple[dict[str, Any], Sequence[pyggml.TokenLogprobs] | None]]:
    """Yield the additions of a chunk to the message, each with its tokens' logprobs."""
    if request.shows_raw_text:
        for part in by_token(chunk, request.llama.llm.tokenizer.piece):
            if part.text or part.logprobs:
                yield {"content": part.text}, part.logprobs
        return
    if chunk.content or chunk.logprobs:
        yield {"content": chunk.content}, chunk.logprobs
    for call in chunk.tool_calls:
        delta: dict[str, Any] = {"tool_calls": [{"type": "function", **call.to_dict()}]}
        if call.index == 0:
            delta["function_call"] = {"name": call.name, "arguments": call.arguments_text}
        yield delta, None


def _logprobs(
    request: ChatRequest, entries: Sequence[pyggml.TokenLogprobs] | None
) -> types.ChatCompletionLogprobs | None:
    if request.n_logprobs is None or entries is None:
        return None
    return chat_logprobs(Names(request.llama, 0).logprobs(entries, request.n_logprobs))


def _chunk(
    request: ChatRequest,
    delta: Mapping[str, Any],
    logprobs: types.ChatCompletionLogprobs | None,
    finish_reason: str | None,
) -> types.CreateChatCompletionStreamResponse:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return {
        "id": request.id,
        "model": request.model,
        "created": request.created,
        "object": "chat.completion.chunk",
        "choices": [cast("types.ChatCompletionStreamResponseChoice", choice)],
    }

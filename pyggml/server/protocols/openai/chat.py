"""``/v1/chat/completions``: respond to a conversation with whole completions or a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from starlette.responses import Response

from pyggml import ChatChunk, ChatCompletion
from pyggml.server.http.generation import Generation, submit_chat, whole_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.sse import EVENTS, Event
from pyggml.server.http.streaming import stream_events
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.chat_request import ChatRequest
from pyggml.server.protocols.openai.generation_response import (
    GenerationResponse,
    chunk_events,
    common_fields,
    completion,
    fingerprint,
    last_events,
)

Json = dict[str, Any]


class ChatCompletionResponse(GenerationResponse):
    """One or more responses to a conversation."""

    object: Literal["chat.completion"]


async def chat(request: ServerRequest, body: ChatRequest) -> Response:
    """Respond to a conversation."""
    model = await request.lease_model(body.model, takes_adapter=True)
    generation = await submit_chat(request, model, await request.run_in_thread_if_long(body.to_chat, model))
    if body.stream:
        return stream_events(request, _chunks(request.id, body, generation))
    return await whole_response(request, generation, lambda: _completion(request.id, body, generation))


def _completion(request_id: str, body: ChatRequest, generation: Generation[ChatChunk, ChatCompletion]) -> Json:
    """Return the whole completion, with all its choices."""
    response = completion(generation.completions, body.n_choices, common_fields(request_id, generation, "chatcmpl"))
    for choice, done in zip(response["choices"], generation.completions, strict=True):
        choice["message"]["refusal"] = None
        _adjust(choice, "message", done, body)
    return {**response, **fingerprint(generation.model), **body.skipped}


async def _chunks(
    request_id: str, body: ChatRequest, generation: Generation[ChatChunk, ChatCompletion]
) -> AsyncIterator[Event]:
    """Yield the chunks of a stream as events."""
    common = common_fields(request_id, generation, "chatcmpl")
    more: Json = {**fingerprint(generation.model), **body.skipped}
    more |= {"usage": None} if body.wants_usage else {}
    form: Json = {}
    for index in range(body.n_choices):
        form = ChatChunk("").to_dict("openai", index=index, **common) | more
        form["choices"][0]["delta"] = {"role": "assistant", "content": "", "refusal": None}
        yield Event.of(form)
    async for index, chunk in generation:
        form = chunk.to_dict("openai", index=index, **common) | more
        _adjust(form["choices"][0], "delta", chunk, body)
        for event in chunk_events(chunk, form, {"delta": {}, **body.empty_token_ids}):
            yield event
    for event in last_events(form, generation.completions, body):
        yield event


def _adjust(
    choice: Json, kind: Literal["message", "delta"], result: ChatCompletion | ChatChunk, body: ChatRequest
) -> None:
    """Adjust a choice to the options of the request."""
    if body.return_token_ids:
        choice["token_ids"] = result.token_ids
    if choice["logprobs"] is not None:
        for token in choice["logprobs"]["content"]:
            del token["top_logprobs"][body.top_logprobs or 0 :]
    if body.uses_functions:
        calls = choice[kind].pop("tool_calls", None)
        if calls:
            choice[kind]["function_call"] = calls[0]["function"]
        if choice["finish_reason"] == "tool_calls":
            choice["finish_reason"] = "function_call"


# The second path is llama-server's, for clients whose base URL has no /v1.
CHAT = tuple(
    Endpoint("POST", path, chat, ChatCompletionResponse, EVENTS)
    for path in ("/v1/chat/completions", "/chat/completions")
)

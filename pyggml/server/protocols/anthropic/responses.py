"""Responses of Anthropic's API: a whole message, or its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from pyggml import ChatChunk, ChatCompletion
from pyggml.server.http.generation import Generation
from pyggml.server.http.sse import Event
from pyggml.server.protocols.anthropic.requests import CreateMessage, Text, Thinking, ToolUse
from pyggml.server.protocols.tool_calls import complete_calls

# Clients only send thinking back with a signature, which proves to Anthropic's server that it generated the thinking.
_SIGNATURE = "unsigned"

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "model_context_window_exceeded"
]


class Usage(BaseModel):
    """Numbers of tokens. Cached tokens do not count as input tokens."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class Message(BaseModel):
    """A response to a conversation.

    ``skipped_tools`` and ``skipped_blocks``, if there are any, are types of tools and blocks that were left out.
    """

    model_config = ConfigDict(extra="allow")

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Text | Thinking | ToolUse]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: Usage


def message(request_id: str, body: CreateMessage, generation: Generation[ChatChunk, ChatCompletion]) -> dict[str, Any]:
    """Return the whole message."""
    [completion] = generation.completions
    return {
        **_envelope(request_id, body, generation.model.name),
        "content": _content(body, completion),
        **_stop(body, completion),
        "usage": _usage(completion, len(completion.token_ids)),
    }


async def events(
    request_id: str, body: CreateMessage, generation: Generation[ChatChunk, ChatCompletion]
) -> AsyncIterator[Event]:
    """Yield the events of a stream."""
    blocks = _BlockEvents(body)
    has_started = False
    async for _, chunk in generation:
        if not has_started:  # the number of cached tokens is known from the first chunk on
            usage = _usage(generation, 0)
            empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
            yield _event("message_start", message={**_envelope(request_id, body, generation.model.name), **empty})
            has_started = True
        for event in blocks.add(chunk):
            yield event
    for event in blocks.close():
        yield event
    [completion] = generation.completions
    usage = _usage(completion, len(completion.token_ids))
    yield _event("message_delta", delta=_stop(body, completion), usage=usage)
    yield _event("message_stop")


class _BlockEvents:
    """Events of the content blocks of a stream."""

    def __init__(self, body: CreateMessage) -> None:
        self._shows_thinking = _shows_thinking(body)
        self._index = -1
        self._open: str | None = None

    def add(self, chunk: ChatChunk) -> Iterator[Event]:
        """Yield the events of a chunk."""
        if chunk.reasoning_content:
            yield from self._start("thinking", thinking="", signature="")
            if self._shows_thinking:
                yield self._delta("thinking_delta", thinking=chunk.reasoning_content)
        if chunk.content:
            yield from self._start("text", text="")
            yield self._delta("text_delta", text=chunk.content)
        for call in chunk.tool_calls:
            if call.id:  # the first delta of a call
                yield from self.close()
                yield from self._start("tool_use", id=call.id, name=call.name, input={})
            if call.arguments_text:
                yield self._delta("input_json_delta", partial_json=call.arguments_text)

    def close(self) -> Iterator[Event]:
        """End the last block."""
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta("signature_delta", signature=_SIGNATURE)
        yield _event("content_block_stop", index=self._index)
        self._open = None

    def _start(self, kind: str, **empty: Any) -> Iterator[Event]:
        """Start a block, unless one of that kind is open."""
        if self._open == kind:
            return
        yield from self.close()
        self._index += 1
        self._open = kind
        yield _event("content_block_start", index=self._index, content_block={"type": kind, **empty})

    def _delta(self, kind: str, **fields: Any) -> Event:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})


def _envelope(request_id: str, body: CreateMessage, model: str) -> dict[str, Any]:
    return {"id": f"msg_{request_id}", "type": "message", "role": "assistant", "model": model, **body.skipped}


def _content(body: CreateMessage, completion: ChatCompletion) -> list[dict[str, Any]]:
    reply = completion.message
    blocks: list[dict[str, Any]] = []
    if reply.reasoning_content:
        thinking = reply.reasoning_content if _shows_thinking(body) else ""
        blocks.append({"type": "thinking", "thinking": thinking, "signature": _SIGNATURE})
    if reply.content:
        blocks.append({"type": "text", "text": reply.content})
    for call, arguments in complete_calls(reply.tool_calls):
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def _shows_thinking(body: CreateMessage) -> bool:
    return body.thinking is None or body.thinking.display != "omitted"


def _stop(body: CreateMessage, completion: ChatCompletion) -> dict[str, Any]:
    sequence = completion.stop_reason if completion.stop_reason in body.stop_strings else None
    return {"stop_reason": "stop_sequence" if sequence else _stop_reason(completion), "stop_sequence": sequence}


def _stop_reason(completion: ChatCompletion) -> StopReason:
    if completion.finish_reason == "tool_calls":
        return "tool_use"
    if completion.finish_reason == "stop":
        return "end_turn"
    if completion.finish_reason == "length":
        return "model_context_window_exceeded" if completion.stop_reason == "context" else "max_tokens"
    return "pause_turn"  # cancelled or timed out: the client can send the message back to continue it


def _usage(counts: ChatCompletion | Generation[ChatChunk, ChatCompletion], output_tokens: int) -> dict[str, int]:
    return {
        "input_tokens": counts.prompt_tokens - counts.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached_tokens,
        "output_tokens": output_tokens,
    }


def _event(name: str, **data: Any) -> Event:
    return Event.of({"type": name, **data}, name)

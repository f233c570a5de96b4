"""What Anthropic's API answers: a message, or the events of which it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import from_json

from pyggml import ChatChunk, ChatCompletion, ToolCall, ToolCallDelta
from pyggml.server.http.generation import Generation
from pyggml.server.protocols.anthropic.requests import CreateMessage, Text, Thinking, ToolUse
from pyggml.server.protocols.endpoint import Event

# Clients send a thinking block back only with a signature, which would prove to Anthropic's server that it wrote it.
_SIGNATURE = "unsigned"

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "model_context_window_exceeded"
]


class Usage(BaseModel):
    """How many tokens it took. Those from the cache are not counted as input again."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class Message(BaseModel):
    """An answer."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Text | Thinking | ToolUse]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: Usage


def message(call_id: str, request: CreateMessage, model: str, done: ChatCompletion) -> dict[str, Any]:
    """The whole answer."""
    return {
        **_envelope(call_id, model),
        "content": _content(request, done),
        **_stop(request, done),
        "usage": _usage(done.prompt_tokens, done.cached_tokens, len(done.token_ids)),
    }


async def events(
    call_id: str, request: CreateMessage, generation: Generation[ChatChunk, ChatCompletion]
) -> AsyncIterator[Event]:
    """The answer as it is generated."""
    blocks = _Blocks(request)
    has_begun = False
    async for _, chunk in generation:
        if not has_begun:  # only now is it known what the cache had
            usage = _usage(generation.prompt_tokens, generation.cached_tokens, 0)
            begun: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
            yield _event("message_start", message={**_envelope(call_id, generation.served.name), **begun})
            has_begun = True
        for event in blocks.grow(chunk):
            yield event
    for event in blocks.close():
        yield event
    [done] = generation.completions
    usage = _usage(done.prompt_tokens, done.cached_tokens, len(done.token_ids))
    yield _event("message_delta", delta=_stop(request, done), usage=usage)
    yield _event("message_stop")


class _Blocks:
    """The blocks of an answer that is being generated, one after the other."""

    def __init__(self, request: CreateMessage) -> None:
        self._shows_thinking = _shows_thinking(request)
        self._index = -1
        self._open: str | None = None

    def grow(self, chunk: ChatChunk) -> Iterator[Event]:
        """What a chunk adds."""
        if chunk.reasoning_content:
            yield from self._enter("thinking", thinking="", signature="")
            if self._shows_thinking:
                yield self._delta("thinking_delta", thinking=chunk.reasoning_content)
        if chunk.content:
            yield from self._enter("text", text="")
            yield self._delta("text_delta", text=chunk.content)
        for call in chunk.tool_calls:
            yield from self._grow_call(call)

    def close(self) -> Iterator[Event]:
        """Ends the last block."""
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta("signature_delta", signature=_SIGNATURE)
        yield _event("content_block_stop", index=self._index)
        self._open = None

    def _grow_call(self, call: ToolCallDelta) -> Iterator[Event]:
        if call.id:  # its first piece
            yield from self.close()
            yield from self._enter("tool_use", id=call.id, name=call.name, input={})
        if call.arguments_text:
            yield self._delta("input_json_delta", partial_json=call.arguments_text)

    def _enter(self, kind: str, **empty: Any) -> Iterator[Event]:
        """Begins a block, unless one of that kind is open."""
        if self._open == kind:
            return
        yield from self.close()
        self._index += 1
        self._open = kind
        yield _event("content_block_start", index=self._index, content_block={"type": kind, **empty})

    def _delta(self, kind: str, **news: Any) -> Event:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **news})


def _envelope(call_id: str, model: str) -> dict[str, Any]:
    return {"id": f"msg_{call_id}", "type": "message", "role": "assistant", "model": model}


def _content(request: CreateMessage, done: ChatCompletion) -> list[dict[str, Any]]:
    answer = done.message
    blocks: list[dict[str, Any]] = []
    if answer.reasoning_content:
        thinking = answer.reasoning_content if _shows_thinking(request) else ""
        blocks.append({"type": "thinking", "thinking": thinking, "signature": _SIGNATURE})
    if answer.content:
        blocks.append({"type": "text", "text": answer.content})
    return blocks + _tool_uses(answer.tool_calls)


def _tool_uses(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)} for call in calls]


def _input(call: ToolCall) -> Any:
    """The arguments of a call: what there is of them, if it was cut off, as clients read them from a stream."""
    return from_json(call.arguments_text, allow_partial=True) if call.arguments_text else {}


def _shows_thinking(request: CreateMessage) -> bool:
    return request.thinking is None or request.thinking.display != "omitted"


def _stop(request: CreateMessage, done: ChatCompletion) -> dict[str, Any]:
    own = done.stop_reason if done.stop_reason in (request.stop_sequences or ()) else None
    return {"stop_reason": "stop_sequence" if own else _stop_reason(request, done), "stop_sequence": own}


def _stop_reason(request: CreateMessage, done: ChatCompletion) -> StopReason:
    if done.finish_reason == "tool_calls":
        return "tool_use"
    if done.finish_reason == "stop":
        return "end_turn"
    if done.finish_reason == "length":
        return "max_tokens" if len(done.token_ids) >= request.max_tokens else "model_context_window_exceeded"
    return "pause_turn"  # cancelled or out of time: whoever sends it back gets the rest


def _usage(prompt_tokens: int, cached_tokens: int, output_tokens: int) -> dict[str, int]:
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
    }


def _event(name: str, **data: Any) -> Event:
    return Event.of({"type": name, **data}, name)

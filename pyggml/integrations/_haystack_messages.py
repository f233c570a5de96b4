"""Haystack's messages and chunks, from and to pyggml's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haystack.dataclasses import (
    ChatMessage,
    ComponentInfo,
    ReasoningContent,
    StreamingChunk,
    ToolCall,
    ToolCallDelta,
)

from pyggml import LLM, ChatChunk, ChatCompletion, InvalidParameterError


class Chunks:
    """Converts chunks to Haystack's, each of which holds one kind of content."""

    def __init__(self, component: ComponentInfo, name: str) -> None:
        """Convert for a component and a model's name."""
        self._info, self._meta = component, {"model": name}
        self._blocks: dict[Any, int] = {}

    def of(self, chunk: ChatChunk) -> Iterator[StreamingChunk]:
        """Yield Haystack's chunks of one; the last has the finish reason."""
        made = [*self._contents(chunk)]
        if chunk.finish_reason is not None:
            made.append({"content": ""})
            reason = chunk.finish_reason if chunk.finish_reason in ("stop", "length", "tool_calls") else "stop"
            made[-1] |= {"finish_reason": reason}
        for fields in made:
            yield StreamingChunk(**{"content": "", **fields}, component_info=self._info, meta=dict(self._meta))

    def _contents(self, chunk: ChatChunk) -> Iterator[dict[str, Any]]:
        if chunk.reasoning_content:
            yield {"reasoning": ReasoningContent(reasoning_text=chunk.reasoning_content), **self._block("reasoning")}
        if chunk.content:
            yield {"content": chunk.content, **self._block("content")}
        for call in chunk.tool_calls:
            delta = ToolCallDelta(
                index=call.index, id=call.id or None, tool_name=call.name or None, arguments=call.arguments_text or None
            )
            yield {"tool_calls": [delta], **self._block(call.index)}

    def _block(self, key: Any) -> dict[str, Any]:
        starts = key not in self._blocks
        return {"index": self._blocks.setdefault(key, len(self._blocks)), "start": starts}


def message_dict(message: ChatMessage) -> dict[str, Any]:
    """A message in OpenAI's format."""
    if getattr(message, "images", None) or getattr(message, "files", None):
        raise InvalidParameterError("a message has an image or a file: pyggml models read only text here")
    found = message.to_openai_dict_format(require_tool_call_ids=False)
    found = {key: value for key, value in found.items() if value is not None}
    if message.reasoning is not None:
        found["reasoning_content"] = message.reasoning.reasoning_text
    return found if "content" in found or "tool_calls" in found else {**found, "content": ""}


def reply(done: ChatCompletion, number: int, name: str, llm: LLM) -> ChatMessage:
    """The answer with the given number among those of a request, by the model of this name."""
    message = done.message
    calls = [
        ToolCall(id=call.id, tool_name=call.name, arguments=call.arguments)
        for call in message.tool_calls
        if done.finish_reason == "tool_calls" or _is_whole(call)
    ]
    meta = completion_meta(done, number, name)
    if done.logprobs is not None:
        meta["logprobs"] = done.to_dict("openai", tokenizer=llm.tokenizer)["choices"][0]["logprobs"]
    return ChatMessage.from_assistant(
        text=message.content or None, tool_calls=calls, meta=meta, reasoning=message.reasoning_content or None
    )


def _is_whole(call: Any) -> bool:
    try:
        return isinstance(call.arguments, dict)
    except InvalidParameterError:
        return False  # cut off by max_tokens, which the finish reason says


def completion_meta(done: Any, number: int, name: str) -> dict[str, Any]:
    """Metadata of an answer, as Haystack's components give it."""
    usage = done.to_dict("openai")["usage"]
    return {"model": name, "index": number, "finish_reason": done.finish_reason, "usage": usage}


def floats(vector: Any) -> list[float]:
    """A vector as Haystack keeps it."""
    return [float(value) for value in vector]

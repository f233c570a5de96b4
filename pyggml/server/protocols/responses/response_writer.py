"""Items and events of a response of ``/v1/responses``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from pyggml import ChatChunk, ChatCompletion, ToolCallDelta
from pyggml.server.http.errors import Failure
from pyggml.server.http.generation import Generation
from pyggml.server.protocols.responses.request import CreateResponse

Item = dict[str, Any]


class ResponseWriter:
    """A response, built item by item, and its events. A whole completion is added as one chunk.

    Attributes:
        output: the items so far.
    """

    def __init__(self, body: CreateResponse, generation: Generation[ChatChunk, ChatCompletion], id: str) -> None:
        """Start without items."""
        self.output: list[Item] = []
        self._body = body
        self._generation = generation
        self._id = f"resp_{id}"
        self._n_events = 0
        self._index: int | None = None  # index of the current call

    # --- events ---------------------------------------------------------------------------------------------

    def start(self) -> Iterator[Item]:
        """Yield the first events."""
        yield self._event("response.created", response=self.response("in_progress"))
        yield self._event("response.in_progress", response=self.response("in_progress"))

    def add(self, chunk: ChatChunk) -> Iterator[Item]:
        """Yield the events of a chunk."""
        if chunk.reasoning_content:
            yield from self._reasoning(chunk.reasoning_content)
        if chunk.content:
            yield from self._text(chunk)
        for call in chunk.tool_calls:
            yield from self._call(call)

    def end(self, completion: ChatCompletion, n_reasoning: int = 0) -> Iterator[Item]:
        """Yield the last events.

        Args:
            completion: the whole completion.
            n_reasoning: number of tokens of its reasoning.
        """
        status, reason = status_of(completion)
        yield from self._done("completed" if status == "completed" else "incomplete")
        response = self.response(status, reason, usage_of(completion, n_reasoning))
        name = "response.completed" if status == "completed" else "response.incomplete"
        yield self._event(name, response=response)

    def failed(self, failure: Failure) -> Item:
        """Return the last event of a response that fails."""
        code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
        error = {"code": code, "message": failure.message}
        return self._event("response.failed", response={**self.response("failed"), "error": error})

    def response(self, status: str, incomplete: str | None = None, usage: Item | None = None) -> Item:
        """Return the response in its current state."""
        body = self._body
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._generation.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": incomplete} if incomplete else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": self._generation.model.name,
            "output": list(self.output),
            "parallel_tool_calls": bool(body.parallel_tool_calls),
            "previous_response_id": None,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
            "store": False,
            "temperature": body.temperature,
            "text": {"format": body.format},
            "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
            "tools": body.tools or [],
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": usage,
            "metadata": body.metadata or {},
        }

    # --- items ----------------------------------------------------------------------------------------------

    def _reasoning(self, text: str) -> Iterator[Item]:
        if not self._is_open("reasoning"):
            yield from self._begin(_reasoning_item(), {"type": "reasoning_text", "text": ""})
        self._part["text"] += text
        yield self._event("response.reasoning_text.delta", delta=text, **self._position)

    def _text(self, chunk: ChatChunk) -> Iterator[Item]:
        if not self._is_open("message"):
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield from self._begin(_message_item(), part)
        logprobs = self._logprobs(chunk)
        self._part["text"] += chunk.content
        self._part["logprobs"] += logprobs
        yield self._event("response.output_text.delta", delta=chunk.content, logprobs=logprobs, **self._position)

    def _logprobs(self, chunk: ChatChunk) -> list[Item]:
        if chunk.logprobs is None:
            return []
        choice = chunk.to_dict("openai", tokenizer=self._generation.model.llm.tokenizer)["choices"][0]
        entries: list[Item] = choice["logprobs"]["content"]
        return entries

    def _call(self, call: ToolCallDelta) -> Iterator[Item]:
        if not self._is_open("function_call") or call.index != self._index:
            self._index = call.index
            yield from self._begin(_call_item(call), None)
        item = self.output[-1]
        item["arguments"] += call.arguments_text
        if call.arguments_text:
            position = {"item_id": item["id"], "output_index": len(self.output) - 1}
            yield self._event("response.function_call_arguments.delta", delta=call.arguments_text, **position)

    def _is_open(self, kind: str) -> bool:
        return bool(self.output) and self.output[-1]["type"] == kind and self.output[-1]["status"] == "in_progress"

    def _begin(self, item: Item, part: Item | None) -> Iterator[Item]:
        yield from self._done("completed")
        self.output.append(item)
        yield self._event("response.output_item.added", item=item, output_index=len(self.output) - 1)
        if part is not None:
            yield self._event("response.content_part.added", part=part, **self._position)
            item["content"].append(part)

    def _done(self, status: str) -> Iterator[Item]:
        """End the current item, if any."""
        if not self.output or self.output[-1]["status"] != "in_progress":
            return
        item = self.output[-1]
        if item["type"] == "function_call":
            position = {"item_id": item["id"], "output_index": len(self.output) - 1, "name": item["name"]}
            yield self._event("response.function_call_arguments.done", arguments=item["arguments"], **position)
        else:
            yield from self._part_done(item["type"])
        item["status"] = status
        yield self._event("response.output_item.done", item=item, output_index=len(self.output) - 1)

    def _part_done(self, kind: str) -> Iterator[Item]:
        text = self._part["text"]
        if kind == "reasoning":
            yield self._event("response.reasoning_text.done", text=text, **self._position)
        else:
            logprobs = self._part["logprobs"]
            yield self._event("response.output_text.done", text=text, logprobs=logprobs, **self._position)
        yield self._event("response.content_part.done", part=self._part, **self._position)

    @property
    def _part(self) -> Item:
        part: Item = self.output[-1]["content"][0]
        return part

    @property
    def _position(self) -> Item:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1, "content_index": 0}

    def _event(self, kind: str, **data: Any) -> Item:
        self._n_events += 1
        return {"type": kind, "sequence_number": self._n_events - 1, **data}


def status_of(completion: ChatCompletion) -> tuple[str, str | None]:
    """Return the status of a response that has ended, and why it is incomplete."""
    if completion.finish_reason in ("stop", "tool_calls"):
        return "completed", None
    return "incomplete", "max_output_tokens"


def usage_of(completion: ChatCompletion, n_reasoning: int) -> Item:
    """Return the numbers of tokens."""
    n_generated = len(completion.token_ids)
    return {
        "input_tokens": completion.prompt_tokens,
        "input_tokens_details": {"cached_tokens": completion.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": n_generated,
        "output_tokens_details": {"reasoning_tokens": min(n_reasoning, n_generated)},
        "total_tokens": completion.prompt_tokens + n_generated,
    }


def as_chunk(completion: ChatCompletion) -> ChatChunk:
    """Return a whole completion as one chunk."""
    message = completion.message
    calls = [
        ToolCallDelta(index, call.id, call.name, call.arguments_text) for index, call in enumerate(message.tool_calls)
    ]
    return ChatChunk(
        "",
        content=message.content,
        reasoning_content=message.reasoning_content,
        tool_calls=calls,
        logprobs=completion.logprobs,
    )


def _reasoning_item() -> Item:
    return {"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "status": "in_progress", "summary": [], "content": []}


def _message_item() -> Item:
    begun = {"status": "in_progress", "role": "assistant", "content": []}
    return {"type": "message", "id": f"msg_{uuid.uuid4().hex}", **begun}


def _call_item(call: ToolCallDelta) -> Item:
    begun = {"status": "in_progress", "call_id": call.id, "name": call.name, "arguments": ""}
    return {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", **begun}

"""``/v1/responses``: a chat whose response is a list of items."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from pyggml import ChatChunk, ChatCompletion, ToolCallDelta
from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.http.generation import Generation, submit_chat
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import LONG_BYTES
from pyggml.server.http.sse import Event
from pyggml.server.http.streaming import stream_events
from pyggml.server.protocols.responses.request import Conversation, CreateResponse, skipped_items
from pyggml.server.protocols.responses.store import Item as StoredItem
from pyggml.server.protocols.responses.store import StoredResponse

Item = dict[str, Any]


class ResponseObject(BaseModel):
    """A response, as a list of items."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: str
    created_at: float
    status: str
    model: str
    output: list[Item]
    usage: dict[str, Any] | None = None


async def create(request: ServerRequest, body: CreateResponse) -> Response:
    """Respond to a conversation."""
    model = await request.lease_model(body.model, takes_adapter=True)
    items = conversation(request, body)
    chat = await request.run_in_thread_if_long(body.to_chat, [item.value for item in items])
    generation = await submit_chat(request, model, chat)
    writer = _ResponseWriter(body, generation, items, request.worker.stored_responses.max_bytes)
    if body.stream:
        first = await request.run_in_thread_if_long(_encode, writer.start())
        return stream_events(request, _events(request, writer, generation, first))
    await request.cancel_on_disconnect(generation.finish())
    response, stored = await request.run_for("responses", _whole_response, writer, generation)
    _store(request, stored)
    return response


def conversation(request: ServerRequest, body: Conversation) -> list[StoredItem]:
    """Return all items of a conversation, including those of the stored response that it continues.

    Raises:
        RequestError: 400, a response or an item is not stored; 413, the conversation is larger than a body may be.
    """
    stored = request.worker.stored_responses.of(request.owner)
    items, n_bytes = stored.conversation(body.input_items, body.previous_response_id)
    limit = request.worker.settings.max_body_bytes
    if n_bytes > limit:
        message = (
            f"the conversation has {n_bytes} bytes of stored items; the limit is max_body_bytes={limit}: leave some out"
        )
        raise RequestError(Failure(413, "too_large", message, "conversation_too_large", "input"))
    request.has_long_body = request.has_long_body or n_bytes >= LONG_BYTES
    return items


def _store(request: ServerRequest, stored: StoredResponse | None) -> None:
    if stored is not None:
        request.worker.stored_responses.of(request.owner).add(stored)


def _whole_response(
    writer: _ResponseWriter, generation: Generation[ChatChunk, ChatCompletion]
) -> tuple[Response, StoredResponse | None]:
    events = [*writer.add(_as_chunk(generation.completions[0])), *_end(writer, generation)]
    response = events[-1]["response"]
    stored = writer.to_store(response)
    return JSONResponse(response), stored


async def _events(
    request: ServerRequest,
    writer: _ResponseWriter,
    generation: Generation[ChatChunk, ChatCompletion],
    first: list[Event],
) -> AsyncIterator[Event]:
    for event in first:
        yield event
    try:
        async for _, chunk in generation:
            for event in _encode(writer.add(chunk)):
                yield event
        # They repeat the whole response and the request.
        last, stored = await request.run_for("responses", _last_events, writer, generation)
        _store(request, stored)
        for event in last:
            yield event
    except Exception as error:
        for event in _encode([writer.failed(request.record_failure(error))]):
            yield event


def _last_events(
    writer: _ResponseWriter, generation: Generation[ChatChunk, ChatCompletion]
) -> tuple[list[Event], StoredResponse | None]:
    events = list(_end(writer, generation))
    stored = writer.to_store(events[-1]["response"])
    return _encode(events), stored


def _end(writer: _ResponseWriter, generation: Generation[ChatChunk, ChatCompletion]) -> Iterator[Item]:
    """Yield the last events. Tokenizes the reasoning, to count its tokens."""
    (completion,) = generation.completions
    reasoning = completion.message.reasoning_content
    tokenizer = generation.model.llm.tokenizer
    return writer.end(completion, len(tokenizer.encode(reasoning, add_special=False)) if reasoning else 0)


def _encode(events: Iterable[Item]) -> list[Event]:
    return [Event.of(event, event["type"]) for event in events]


class _ResponseWriter:
    """A response, built item by item, and its events. A whole completion is added as one chunk.

    Attributes:
        output: the items so far.
    """

    def __init__(
        self,
        body: CreateResponse,
        generation: Generation[ChatChunk, ChatCompletion],
        given: list[StoredItem],
        max_stored_bytes: int,
    ) -> None:
        """Start without items; ``given`` are those of the conversation before the response.

        Responses of more than ``max_stored_bytes`` with their conversation are not stored.
        """
        self.output: list[Item] = []
        self._body = body
        self._generation = generation
        self._given = given
        self._max_stored_bytes = max_stored_bytes
        self._is_stored = body.is_stored and max_stored_bytes > 0
        self._id = f"resp_{uuid.uuid4().hex}"  # new, so that no client can replace a stored response
        self._n_events = 0
        self._index: int | None = None  # index of the current call

    # --- events ---------------------------------------------------------------------------------------------

    def start(self) -> Iterator[Item]:
        """Yield the first events."""
        yield self._event("response.created", response=self._response("in_progress"))
        yield self._event("response.in_progress", response=self._response("in_progress"))

    def add(self, chunk: ChatChunk) -> Iterator[Item]:
        """Yield the events of a chunk."""
        if chunk.reasoning_content:
            yield from self._reasoning(chunk.reasoning_content)
        if chunk.content:
            yield from self._text(chunk)
        for call in chunk.tool_calls:
            yield from self._call(call)

    def end(self, completion: ChatCompletion, n_reasoning: int = 0) -> Iterator[Item]:
        """Yield the last events of a completion with ``n_reasoning`` tokens of reasoning."""
        status = "completed" if completion.finish_reason in ("stop", "tool_calls") else "incomplete"
        yield from self._done(status)
        response = self._response(status, _usage(completion, n_reasoning))
        yield self._event(f"response.{status}", response=response)

    def failed(self, failure: Failure) -> Item:
        """Return the last event of a response that fails."""
        code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
        error = {"code": code, "message": failure.message}
        return self._event("response.failed", response={**self._response("failed"), "error": error})

    def to_store(self, response: Item) -> StoredResponse | None:
        """Return what to store of the finished response; None: nothing, as the response then says."""
        stored = StoredResponse.of(response, self._given) if self._is_stored else None
        if stored is None or stored.whole_bytes <= self._max_stored_bytes:
            return stored
        response["store"] = False
        return None

    def _response(self, status: str, usage: Item | None = None) -> Item:
        """Return the response in its current state."""
        body = self._body
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._generation.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": self._generation.model.name,
            "output": list(self.output),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
            "store": self._is_stored,
            "temperature": body.temperature,
            "text": {"format": body.format},
            "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
            "tools": body.tools or [],
            "top_p": body.top_p,
            "truncation": body.truncation or "disabled",
            "usage": usage,
            "metadata": body.metadata or {},
            **({"skipped_tools": body.skipped_tools} if body.skipped_tools else {}),
            **({"skipped_items": skipped} if (skipped := skipped_items([item.value for item in self._given])) else {}),
        }

    # --- items ----------------------------------------------------------------------------------------------

    def _reasoning(self, text: str) -> Iterator[Item]:
        if not self._is_open("reasoning"):
            item = _new_item("reasoning", "rs", summary=[], content=[])
            yield from self._begin(item, {"type": "reasoning_text", "text": ""})
        self._part["text"] += text
        yield self._event("response.reasoning_text.delta", delta=text, **self._position)

    def _text(self, chunk: ChatChunk) -> Iterator[Item]:
        if not self._is_open("message"):
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield from self._begin(_new_item("message", "msg", role="assistant", content=[]), part)
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
            item = _new_item("function_call", "fc", call_id=call.id, name=call.name, arguments="")
            yield from self._begin(item, None)
        self.output[-1]["arguments"] += call.arguments_text
        if call.arguments_text:
            kind = "response.function_call_arguments.delta"
            yield self._event(kind, delta=call.arguments_text, **self._item_position)

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
            done = {**self._item_position, "name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **done)
        else:
            part = self._part
            kind, more = "reasoning_text", {}
            if item["type"] == "message":
                kind, more = "output_text", {"logprobs": part["logprobs"]}
            yield self._event(f"response.{kind}.done", text=part["text"], **more, **self._position)
            yield self._event("response.content_part.done", part=part, **self._position)
        item["status"] = status
        yield self._event("response.output_item.done", item=item, output_index=len(self.output) - 1)

    @property
    def _part(self) -> Item:
        part: Item = self.output[-1]["content"][0]
        return part

    @property
    def _item_position(self) -> Item:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1}

    @property
    def _position(self) -> Item:
        return {**self._item_position, "content_index": 0}

    def _event(self, kind: str, **data: Any) -> Item:
        self._n_events += 1
        return {"type": kind, "sequence_number": self._n_events - 1, **data}


def _usage(completion: ChatCompletion, n_reasoning: int) -> Item:
    n_generated = len(completion.token_ids)
    return {
        "input_tokens": completion.prompt_tokens,
        "input_tokens_details": {"cached_tokens": completion.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": n_generated,
        "output_tokens_details": {"reasoning_tokens": min(n_reasoning, n_generated)},
        "total_tokens": completion.prompt_tokens + n_generated,
    }


def _as_chunk(completion: ChatCompletion) -> ChatChunk:
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


def _new_item(kind: str, prefix: str, **fields: Any) -> Item:
    return {"type": kind, "id": f"{prefix}_{uuid.uuid4().hex}", "status": "in_progress", **fields}

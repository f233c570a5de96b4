"""``/v1/responses``: a chat whose response is a list of items. The server stores no responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from pyggml import ChatChunk, ChatCompletion
from pyggml.server.http.generation import Generation, submit_chat
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.sse import EVENTS, Event
from pyggml.server.http.streaming import stream_events
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.openai.errors import error_body
from pyggml.server.protocols.responses.request import CreateResponse
from pyggml.server.protocols.responses.response_writer import ResponseWriter, as_chunk


class ResponseObject(BaseModel):
    """A response, as a list of items."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: str
    created_at: float
    status: str
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None = None


async def create(request: ServerRequest, body: CreateResponse) -> Response:
    """Respond to a conversation."""
    model = await request.lease_model(body.model)
    generation = await submit_chat(request, model, await request.run_in_thread_if_long(body.to_chat))
    writer = ResponseWriter(body, generation, request.id)
    if body.stream:
        first = await request.run_in_thread_if_long(_encode, writer.start())
        return stream_events(request, _events(request, writer, generation, first))
    await request.cancel_on_disconnect(generation.finish())
    return await request.run_in_thread(_whole_response, writer, generation)


def _whole_response(writer: ResponseWriter, generation: Generation[ChatChunk, ChatCompletion]) -> Response:
    events = [*writer.add(as_chunk(generation.completions[0])), *_end(writer, generation)]
    return JSONResponse(events[-1]["response"])


async def _events(
    request: ServerRequest,
    writer: ResponseWriter,
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
        for event in await asyncio.to_thread(lambda: _encode(_end(writer, generation))):
            yield event
    except Exception as error:
        for event in _encode([writer.failed(request.record_failure(error))]):
            yield event


def _end(writer: ResponseWriter, generation: Generation[ChatChunk, ChatCompletion]) -> Iterator[dict[str, Any]]:
    """Yield the last events. Tokenizes the reasoning, to count its tokens."""
    (completion,) = generation.completions
    reasoning = completion.message.reasoning_content
    tokenizer = generation.model.llm.tokenizer
    return writer.end(completion, len(tokenizer.encode(reasoning, add_special=False)) if reasoning else 0)


def _encode(events: Iterable[dict[str, Any]]) -> list[Event]:
    return [Event.of(event, event["type"]) for event in events]


RESPONSES = Protocol("responses", (Endpoint("POST", "/v1/responses", create, ResponseObject, EVENTS),), error_body)

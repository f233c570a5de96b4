"""OpenAI's ``/v1/responses``: a chat whose answer is a list of items. Nothing is kept between requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from pyggml import ChatChunk, ChatCompletion
from pyggml.server.http.generation import Generation
from pyggml.server.http.request import Call
from pyggml.server.protocols.endpoint import EVENTS, Endpoint, Event, Protocol
from pyggml.server.protocols.openai.errors import error_body
from pyggml.server.protocols.responses.request import CreateResponse
from pyggml.server.protocols.responses.response_writer import Writer, whole


class ResponseObject(BaseModel):
    """An answer, as a list of items."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: str
    created_at: float
    status: str
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None = None


async def create(call: Call, body: CreateResponse) -> Response:
    """Answers a conversation."""
    body.require_nothing_kept()
    served = await call.model(body.model)
    messages = await call.prepared(body.messages)
    generation = await call.chat(served, messages, body.sampling, **body.chat_options)
    writer = Writer(body, generation, call.id)
    if body.stream:
        begun = await call.prepared(_sent, writer.begin())
        return call.events(_events(call, writer, generation, begun))
    await call.finish(generation)
    return await call.aside(_whole, writer, generation)


def _whole(writer: Writer, generation: Generation[ChatChunk, ChatCompletion]) -> Response:
    (completion,) = generation.completions
    *_, last = *writer.add(whole(completion)), *writer.end(completion, _n_reasoning(generation))
    return JSONResponse(last["response"])


async def _events(
    call: Call, writer: Writer, generation: Generation[ChatChunk, ChatCompletion], begun: list[Event]
) -> AsyncIterator[Event]:
    for event in begun:
        yield event
    try:
        async for _, chunk in generation:
            for event in _sent(writer.add(chunk)):
                yield event
        for event in await asyncio.to_thread(_ended, writer, generation):
            yield event
    except Exception as error:
        for event in _sent([writer.failed(call.failed(error))]):
            yield event


def _ended(writer: Writer, generation: Generation[ChatChunk, ChatCompletion]) -> list[Event]:
    """The last events, which repeat the whole answer and what was asked."""
    (completion,) = generation.completions
    return _sent(writer.end(completion, _n_reasoning(generation)))


def _sent(events: Iterable[dict[str, Any]]) -> list[Event]:
    return [Event.of(event, event["type"]) for event in events]


def _n_reasoning(generation: Generation[ChatChunk, ChatCompletion]) -> int:
    """Number of tokens of an answer's reasoning."""
    (completion,) = generation.completions
    if not completion.message.reasoning_content:
        return 0
    tokenizer = generation.served.llm.tokenizer
    return len(tokenizer.encode(completion.message.reasoning_content, add_special=False))


_CREATE = Endpoint(
    "POST",
    "/v1/responses",
    create,
    "Answer a conversation",
    body=CreateResponse,
    answer=ResponseObject,
    events=EVENTS,
)

RESPONSES = Protocol("responses", (_CREATE,), error_body)

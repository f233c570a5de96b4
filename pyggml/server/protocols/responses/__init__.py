"""OpenAI's ``/v1/responses``: a chat whose answer is a list of items. Nothing is kept between requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from pyggml import ChatChunk, ChatCompletion
from pyggml.server.call import Call
from pyggml.server.generation import Generation
from pyggml.server.protocol import Endpoint, Event, Protocol
from pyggml.server.protocols.openai.errors import error_body
from pyggml.server.protocols.responses.request import CreateResponse
from pyggml.server.protocols.responses.writing import Writer, whole


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
    generation = await call.chat(served, body.messages(), body.sampling, **body.chat_options)
    writer = Writer(body, generation, call.id)
    if body.stream:
        return call.events(_events(call, writer, generation))
    (completion,) = await call.finish(generation)
    *_, last = *writer.add(whole(completion)), *writer.end(completion, await _n_reasoning(generation))
    return JSONResponse(last["response"])


async def _events(
    call: Call, writer: Writer, generation: Generation[ChatChunk, ChatCompletion]
) -> AsyncIterator[Event]:
    for event in _sent(writer.begin()):
        yield event
    try:
        async for _, chunk in generation:
            for event in _sent(writer.add(chunk)):
                yield event
        (completion,) = generation.completions
        for event in _sent(writer.end(completion, await _n_reasoning(generation))):
            yield event
    except Exception as error:
        for event in _sent([writer.failed(call.failed(error))]):
            yield event


def _sent(events: Iterable[dict[str, Any]]) -> Iterable[Event]:
    for event in events:
        yield Event(json.dumps(event, ensure_ascii=False, separators=(",", ":")), event["type"])


async def _n_reasoning(generation: Generation[ChatChunk, ChatCompletion]) -> int:
    """Number of tokens of an answer's reasoning."""
    (completion,) = generation.completions
    if not completion.message.reasoning_content:
        return 0
    tokenizer = generation.served.llm.tokenizer
    return len(await asyncio.to_thread(tokenizer.encode, completion.message.reasoning_content, add_special=False))


_CREATE = Endpoint(
    "POST",
    "/v1/responses",
    create,
    "Answer a conversation",
    body=CreateResponse,
    answer=ResponseObject,
    events="text/event-stream",
)

RESPONSES = Protocol("responses", (_CREATE,), error_body)

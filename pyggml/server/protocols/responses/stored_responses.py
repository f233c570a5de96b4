"""Endpoints for stored responses, and for the number of tokens of a conversation."""

from __future__ import annotations

import uuid
from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.protocols.pages import page
from pyggml.server.protocols.responses.create_response import conversation
from pyggml.server.protocols.responses.request import Conversation
from pyggml.server.protocols.responses.store import OwnResponses


class DeletedResponse(BaseModel):
    """A response that is no longer stored."""

    id: str
    object: Literal["response"]
    deleted: bool


class InputItems(BaseModel):
    """The conversation before a response, the newest item first unless the query asks for another order."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(BaseModel):
    """Number of tokens of a conversation."""

    object: Literal["response.input_tokens"]
    input_tokens: int


async def retrieve(request: ServerRequest) -> Response:
    """Return a stored response."""
    stored = _stored(request).find(request.http.path_params["id"])
    return await request.run_for("responses", JSONResponse, stored.response)


async def delete(request: ServerRequest) -> Response:
    """Drop a stored response."""
    id = request.http.path_params["id"]
    _stored(request).remove(id)
    return JSONResponse({"id": id, "object": "response", "deleted": True})


async def input_items(request: ServerRequest) -> Response:
    """Return the conversation before a stored response."""
    stored = _stored(request).find(request.http.path_params["id"])
    query = request.http.query_params

    def respond() -> Response:
        given = enumerate(stored.items[: stored.n_input])
        items = [_as_returned(item.value, f"{stored.id} {index}") for index, item in given]
        if query.get("order") != "asc":
            items.reverse()
        return JSONResponse({"object": "list", **page(items, query, "after")})

    return await request.run_for("responses", respond)


async def input_tokens(request: ServerRequest, body: Conversation) -> Response:
    """Count the tokens of a conversation, as in the usage of a response to it."""
    llm = (await request.lease_model(body.model)).llm
    items = [item.value for item in conversation(request, body)]

    def count() -> int:
        return len(llm.tokenize_chat(body.messages(items), response_format=body.response_format, **body.options()))

    n_tokens = await request.run_in_thread(count)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": n_tokens})


def _as_returned(item: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an item as OpenAI's API does: with an ID, and its text in parts."""
    item = {"type": "message", "id": f"msg_{uuid.uuid5(uuid.NAMESPACE_OID, name).hex}", **item}
    if item["type"] == "message" and isinstance(item.get("content"), str):
        part = {"type": "input_text", "text": item["content"]}
        item["content"] = [
            part | {"type": "output_text", "annotations": []} if item.get("role") == "assistant" else part
        ]
    return item


def _stored(request: ServerRequest) -> OwnResponses:
    return request.worker.stored_responses.of(request.owner)

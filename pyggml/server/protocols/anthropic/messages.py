"""Anthropic's Messages API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http.errors import Failure
from pyggml.server.http.request import Call
from pyggml.server.protocols.anthropic.requests import Conversation, CreateMessage
from pyggml.server.protocols.anthropic.responses import Message, events, message
from pyggml.server.protocols.endpoint import EVENTS, Endpoint, Event, Protocol


class TokenCount(BaseModel):
    """How many tokens a conversation is."""

    input_tokens: int


async def messages(call: Call, body: CreateMessage) -> Response:
    """Answers a conversation, at once or in events."""
    body.require_nothing_else()
    served = await call.model(body.model)
    conversation = await call.prepared(body.library_messages)
    generation = await call.chat(served, conversation, body.sampling(), **body.options(conversation))
    if body.stream:
        return call.events(events(call.id, body, generation))
    [done] = await call.finish(generation)
    return JSONResponse(message(call.id, body, served.name, done))


async def count_tokens(call: Call, body: Conversation) -> Response:
    """Counts the tokens of a conversation, as an answer to it would."""
    body.require_nothing_else()
    llm = (await call.model(body.model)).llm

    def count() -> int:
        conversation = body.library_messages()
        return len(llm.tokenize_chat(conversation, json_schema=body.json_schema, **body.options(conversation)))

    return JSONResponse({"input_tokens": await call.aside(count)})


# Others are api_error from 500 on, and invalid_request_error before.
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def _error_body(failure: Failure) -> dict[str, Any]:
    kind = _TYPES.get(failure.status, "api_error" if failure.status >= 500 else "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": failure.message}
    if failure.code:
        error["details"] = {"error_code": failure.code}
    return {"type": "error", "error": error, "request_id": failure.request_id}


ANTHROPIC = Protocol(
    "anthropic",
    (
        Endpoint("POST", "/v1/messages", messages, "Answer a conversation", CreateMessage, Message, EVENTS),
        Endpoint(
            "POST",
            "/v1/messages/count_tokens",
            count_tokens,
            "Count the tokens of a conversation",
            Conversation,
            TokenCount,
        ),
    ),
    _error_body,
    ping=Event.of({"type": "ping"}, "ping"),
)

"""``/v1/messages``: Anthropic's Messages API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http.errors import Failure
from pyggml.server.http.generation import submit_chat, whole_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.sse import EVENTS, Event
from pyggml.server.http.streaming import stream_events
from pyggml.server.protocols.anthropic.requests import Conversation, CreateMessage
from pyggml.server.protocols.anthropic.responses import Message, events, message
from pyggml.server.protocols.batches import ANTHROPIC_BATCHES
from pyggml.server.protocols.endpoint import Endpoint, Protocol


class TokenCount(BaseModel):
    """Number of tokens of a conversation."""

    input_tokens: int


async def messages(request: ServerRequest, body: CreateMessage) -> Response:
    """Respond to a conversation."""
    model = await request.lease_model(body.model, takes_adapter=True)
    generation = await submit_chat(request, model, await request.run_in_thread_if_long(body.to_chat))
    if body.stream:
        return stream_events(request, events(request.id, body, generation))
    return await whole_response(request, generation, lambda: message(request.id, body, generation))


async def count_tokens(request: ServerRequest, body: Conversation) -> Response:
    """Count the tokens of a conversation, as in the usage of a response to it."""
    llm = (await request.lease_model(body.model)).llm

    def count() -> int:
        conversation = body.library_messages()
        return len(llm.tokenize_chat(conversation, json_schema=body.output_schema, **body.options(conversation)))

    return JSONResponse({"input_tokens": await request.run_in_thread(count)})


# Other statuses are api_error from 500 on, and invalid_request_error below.
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
        Endpoint("POST", "/v1/messages", messages, Message, EVENTS),
        Endpoint("POST", "/v1/messages/count_tokens", count_tokens, TokenCount),
        *ANTHROPIC_BATCHES,
    ),
    _error_body,
    ping=Event.of({"type": "ping"}, "ping"),
)

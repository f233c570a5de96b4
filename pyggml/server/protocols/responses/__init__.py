"""OpenAI's Responses API."""

from __future__ import annotations

from pyggml.server.http.sse import EVENTS
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.openai.errors import error_body
from pyggml.server.protocols.responses.create_response import ResponseObject, create
from pyggml.server.protocols.responses.stored_responses import (
    DeletedResponse,
    InputItems,
    InputTokens,
    delete,
    input_items,
    input_tokens,
    retrieve,
)

RESPONSES = Protocol(
    "responses",
    (
        # The second path is for clients whose base URL has no /v1.
        *(Endpoint("POST", path, create, ResponseObject, EVENTS) for path in ("/v1/responses", "/responses")),
        Endpoint("POST", "/v1/responses/input_tokens", input_tokens, InputTokens),
        Endpoint("GET", "/v1/responses/{id}", retrieve, ResponseObject),
        Endpoint("DELETE", "/v1/responses/{id}", delete, DeletedResponse),
        Endpoint("GET", "/v1/responses/{id}/input_items", input_items, InputItems),
    ),
    error_body,
)

"""``/v1/chat/completions``: parse the request, submit it, and respond with the whole completion or a stream."""

from __future__ import annotations

from starlette.responses import Response

from pyggml.server.http.generation import submit_chat
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.sse import EVENTS
from pyggml.server.http.streaming import stream_events
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.chat_request import ChatRequest
from pyggml.server.protocols.openai.chat_response import ChatCompletionResponse, chat_chunks, chat_completion
from pyggml.server.protocols.openai.generation_response import json_response


async def chat(request: ServerRequest, body: ChatRequest) -> Response:
    """Respond to a conversation."""
    model = await request.lease_model(body.model)
    chat_input = await request.run_in_thread_if_long(body.to_chat, model)
    generation = await submit_chat(request, model, chat_input)
    if body.stream:
        return stream_events(request, chat_chunks(request.id, body, generation))
    completions = await request.cancel_on_disconnect(generation.finish())
    return await json_response(request, completions, lambda: chat_completion(request.id, body, generation))


# The second path is llama-server's, for clients whose base URL has no /v1.
CHAT = tuple(
    Endpoint("POST", path, chat, "Respond to a conversation", ChatRequest, ChatCompletionResponse, stream_type=EVENTS)
    for path in ("/v1/chat/completions", "/chat/completions")
)

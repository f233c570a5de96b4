"""Ollama's API. It serves the models of the server; requests download others only if the operator allows it."""

from __future__ import annotations

from typing import Any

from pyggml.server.http.errors import Failure
from pyggml.server.http.sse import LINES
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.ollama import embeddings, generate_and_chat, models, pull


def _error_body(failure: Failure) -> dict[str, Any]:
    return {"error": failure.message}


OLLAMA = Protocol(
    "ollama",
    (
        Endpoint("POST", "/api/generate", generate_and_chat.generate, generate_and_chat.GenerateResponse, LINES),
        Endpoint("POST", "/api/chat", generate_and_chat.chat, generate_and_chat.ChatResponse, LINES),
        Endpoint("POST", "/api/embed", embeddings.embed, embeddings.EmbedResponse),
        Endpoint("POST", "/api/embeddings", embeddings.embed_one, embeddings.EmbeddingsResponse),
        Endpoint("GET", "/api/tags", models.tags, models.ModelList),
        Endpoint("GET", "/api/ps", models.ps, models.RunningList),
        Endpoint("POST", "/api/show", models.show, models.ShowResponse),
        Endpoint("GET", "/api/version", models.version, models.Version),
        Endpoint("POST", "/api/pull", pull.pull, pull.PullProgress, LINES, is_uncounted=True),
        *(Endpoint("POST", f"/api/{name}", models.refuse) for name in ("push", "create", "copy")),
        Endpoint("DELETE", "/api/delete", models.refuse),
        Endpoint("GET", "/", models.alive, stream_type="text/plain", is_open=True),
    ),
    _error_body,
)

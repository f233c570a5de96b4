"""Ollama's API. It serves the models of the server; requests download none."""

from __future__ import annotations

from typing import Any

from pyggml.server.http.errors import Failure
from pyggml.server.http.sse import LINES
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.ollama import embeddings, generate_and_chat, models
from pyggml.server.protocols.ollama.requests import ChatRequest, GenerateRequest

_REFUSED = "Refused: requests cannot change the models"


def _error_body(failure: Failure) -> dict[str, Any]:
    return {"error": failure.message}


OLLAMA = Protocol(
    "ollama",
    (
        Endpoint(
            "POST",
            "/api/generate",
            generate_and_chat.generate,
            "Respond to a prompt, or continue it",
            GenerateRequest,
            generate_and_chat.GenerateResponse,
            LINES,
        ),
        Endpoint(
            "POST",
            "/api/chat",
            generate_and_chat.chat,
            "Respond to a conversation",
            ChatRequest,
            generate_and_chat.ChatResponse,
            LINES,
        ),
        Endpoint(
            "POST",
            "/api/embed",
            embeddings.embed,
            "Convert texts to vectors",
            embeddings.EmbedRequest,
            embeddings.EmbedResponse,
        ),
        Endpoint(
            "POST",
            "/api/embeddings",
            embeddings.embed_one,
            "Convert a text to a vector",
            embeddings.EmbeddingsRequest,
            embeddings.EmbeddingsResponse,
        ),
        Endpoint("GET", "/api/tags", models.tags, "List the models", None, models.ModelList),
        Endpoint("GET", "/api/ps", models.ps, "List the loaded models", None, models.RunningList),
        Endpoint("POST", "/api/show", models.show, "Describe a model", models.ShowRequest, models.ShowResponse),
        Endpoint("GET", "/api/version", models.version, "Return ollama's version", None, models.Version),
        *(Endpoint("POST", f"/api/{name}", models.refuse, _REFUSED) for name in ("pull", "push", "create", "copy")),
        Endpoint("DELETE", "/api/delete", models.refuse, _REFUSED),
        Endpoint("GET", "/", models.alive, "Check that the server runs", stream_type="text/plain", is_open=True),
    ),
    _error_body,
)

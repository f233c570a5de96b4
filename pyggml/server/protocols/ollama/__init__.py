"""Ollama's API. Models are those that the server was started with: nothing is downloaded for a request."""

from __future__ import annotations

from typing import Any

from pyggml.server.http.errors import Failure
from pyggml.server.protocols.endpoint import LINES, Endpoint, Protocol
from pyggml.server.protocols.ollama import embeddings as embedding
from pyggml.server.protocols.ollama import generate_and_chat, models
from pyggml.server.protocols.ollama.requests import Chat, Generate

_FIXED = "Refused: requests do not change the models"


def _error_body(failure: Failure) -> dict[str, Any]:
    return {"error": failure.message}


OLLAMA = Protocol(
    "ollama",
    (
        Endpoint(
            "POST",
            "/api/generate",
            generate_and_chat.generate,
            "Answer or continue a prompt",
            Generate,
            generate_and_chat.Generated,
            LINES,
        ),
        Endpoint(
            "POST",
            "/api/chat",
            generate_and_chat.chat,
            "Answer a conversation",
            Chat,
            generate_and_chat.Answered,
            LINES,
        ),
        Endpoint(
            "POST", "/api/embed", embedding.embed, "Convert texts to vectors", embedding.Embed, embedding.Embeddings
        ),
        Endpoint(
            "POST",
            "/api/embeddings",
            embedding.embed_one,
            "Convert a text to a vector",
            embedding.EmbedOne,
            embedding.Embedding,
        ),
        Endpoint("GET", "/api/tags", models.tags, "List the models", None, models.ModelList),
        Endpoint("GET", "/api/ps", models.ps, "List the models that are loaded", None, models.RunningList),
        Endpoint("POST", "/api/show", models.show, "Describe a model", models.Show, models.Shown),
        Endpoint("GET", "/api/version", models.version, "Say whose API this is", None, models.Version),
        *(Endpoint("POST", f"/api/{name}", models.refuse, _FIXED) for name in ("pull", "push", "create", "copy")),
        Endpoint("DELETE", "/api/delete", models.refuse, _FIXED),
        Endpoint("GET", "/", models.alive, "Whether anything is here", events="text/plain", is_open=True),
    ),
    _error_body,
)

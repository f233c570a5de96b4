"""Models in Anthropic's format at ``/v1/models``, a path that OpenAI's API has too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from pyggml.server.models.pool import ModelInfo
from pyggml.server.protocols.timestamps import rfc3339


def is_anthropic(request: Request) -> bool:
    """Return True if the client is Anthropic's, which always sends the version of its API."""
    return "anthropic-version" in request.headers


def describe(info: ModelInfo) -> dict[str, Any]:
    """Describe a model."""
    return {
        "id": info.name,
        "type": "model",
        "display_name": info.name,
        "created_at": rfc3339(info.created),
        "lifecycle": "active",
        "max_input_tokens": info.n_ctx,
        "max_tokens": info.n_ctx,
    }


def page(infos: Sequence[ModelInfo]) -> dict[str, Any]:
    """Return all models as one page."""
    ids = [info.name for info in infos]
    return {"data": [describe(info) for info in infos], "has_more": False, "first_id": ids[0], "last_id": ids[-1]}

"""Models as Anthropic's clients expect them at ``/v1/models``, a path that OpenAI's API has too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from pyggml.server.models.pool import ModelInfo
from pyggml.server.protocols.timestamps import rfc3339


def asks(request: Request) -> bool:
    """Whether it is Anthropic's client that asks: it always names a version of its API."""
    return "anthropic-version" in request.headers


def about(info: ModelInfo) -> dict[str, Any]:
    """A model."""
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
    """All models, on one page."""
    ids = [info.name for info in infos]
    return {"data": [about(info) for info in infos], "has_more": False, "first_id": ids[0], "last_id": ids[-1]}

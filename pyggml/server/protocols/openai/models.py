"""``/v1/models``: what the server offers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import Call
from pyggml.server.models.pool import ModelInfo
from pyggml.server.protocols.anthropic import models as anthropic_models
from pyggml.server.protocols.endpoint import Endpoint


class Meta(BaseModel):
    """What is known of a model, under llama-server's names."""

    n_ctx: int | None
    n_params: int | None
    size: int | None


class Model(BaseModel):
    """A model that requests may name. ``max_model_len`` is vLLM's name for ``n_ctx``."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    max_model_len: int | None
    meta: Meta


class ModelList(BaseModel):
    """All of them, the default one first."""

    object: Literal["list"]
    data: list[Model]


async def models(call: Call, body: None) -> Response:  # noqa: ARG001
    """Lists the models."""
    infos = await call.worker.models.infos()
    if anthropic_models.asks(call.request):
        return JSONResponse(anthropic_models.page(infos))
    return JSONResponse({"object": "list", "data": [_about(each) for each in infos]})


async def model(call: Call, body: None) -> Response:  # noqa: ARG001
    """Says that a model is there."""
    info = await call.worker.models.info(call.request.path_params["name"])
    return JSONResponse(anthropic_models.about(info) if anthropic_models.asks(call.request) else _about(info))


def _about(info: ModelInfo) -> dict[str, Any]:
    return {
        "id": info.name,
        "object": "model",
        "created": info.created,
        "owned_by": "pyggml",
        "aliases": list(info.aliases),
        "max_model_len": info.n_ctx,
        "meta": {"n_ctx": info.n_ctx, "n_params": info.n_params, "size": info.size_bytes},
    }


MODELS = (
    *(Endpoint("GET", path, models, "List the models", None, ModelList) for path in ("/v1/models", "/models")),
    Endpoint("GET", "/v1/models/{name:path}", model, "Describe a model", None, Model),
)

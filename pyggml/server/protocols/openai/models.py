"""``/v1/models``: the models of the server, for clients of OpenAI and of Anthropic."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.models.pool import ModelInfo
from pyggml.server.protocols.anthropic import models as anthropic_models
from pyggml.server.protocols.endpoint import Endpoint


class Meta(BaseModel):
    """Properties of a model, with llama-server's names."""

    n_ctx: int | None
    n_params: int | None
    size: int | None


class Model(BaseModel):
    """A model of the server. ``max_model_len`` is vLLM's name of ``n_ctx``."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    max_model_len: int | None
    meta: Meta


class ModelList(BaseModel):
    """All models, the default first."""

    object: Literal["list"]
    data: list[Model]


async def models(request: ServerRequest) -> Response:
    """List the models."""
    infos = await request.worker.models.infos()
    if anthropic_models.is_anthropic(request.http):
        return JSONResponse(anthropic_models.page(infos))
    return JSONResponse({"object": "list", "data": [_describe(each) for each in infos]})


async def model(request: ServerRequest) -> Response:
    """Describe a model."""
    info = await request.worker.models.info(request.http.path_params["name"])
    describe = anthropic_models.describe if anthropic_models.is_anthropic(request.http) else _describe
    return JSONResponse(describe(info))


def _describe(info: ModelInfo) -> dict[str, Any]:
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
    *(Endpoint("GET", path, models, ModelList) for path in ("/v1/models", "/models")),
    Endpoint("GET", "/v1/models/{name:path}", model, Model),
)

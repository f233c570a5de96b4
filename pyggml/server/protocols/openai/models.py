"""``/v1/models``: what the server offers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.call import Call
from pyggml.server.models import ModelInfo
from pyggml.server.protocol import Endpoint
from pyggml.server.protocols.anthropic import models as anthropic_models


class Model(BaseModel):
    """A model that requests may name."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


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
    return {"id": info.name, "object": "model", "created": info.created, "owned_by": "pyggml"}


MODELS = (
    Endpoint("GET", "/v1/models", models, "List the models", None, ModelList),
    Endpoint("GET", "/v1/models/{name:path}", model, "Describe a model", None, Model),
)

"""``/v1/models``: what the server offers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.call import Call
from pyggml.server.failures import Failure, RequestError
from pyggml.server.models import DEFAULT
from pyggml.server.protocol import Endpoint


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
    return JSONResponse({"object": "list", "data": [_about(call, name) for name in call.worker.models.names]})


async def model(call: Call, body: None) -> Response:  # noqa: ARG001
    """Says that a model is there."""
    name, names = call.request.path_params["name"], call.worker.models.names
    if name == DEFAULT:
        name = names[0]
    if name not in names:
        raise RequestError(Failure(404, "not_found", f"there is no model {name!r}", "model_not_found", "model"))
    return JSONResponse(_about(call, name))


def _about(call: Call, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": call.worker.created, "owned_by": "pyggml"}


MODELS = (
    Endpoint("GET", "/v1/models", models, "List the models", None, ModelList),
    Endpoint("GET", "/v1/models/{name:path}", model, "Describe a model", None, Model),
)

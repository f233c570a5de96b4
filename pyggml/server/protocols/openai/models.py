"""``/v1/models``: the models of the server, for clients of OpenAI and of Anthropic."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.models.adapters import adapter_names, require_adapter
from pyggml.server.models.pool import ModelInfo
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.timestamps import rfc3339


class Meta(BaseModel):
    """Properties of a model, with llama-server's names."""

    n_ctx: int | None
    n_params: int | None
    size: int | None


class Model(BaseModel):
    """A model of the server. With vLLM's names, ``root`` is the model of an alias, ``max_model_len`` is ``n_ctx``."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    aliases: list[str]
    max_model_len: int | None
    meta: Meta


class ModelList(BaseModel):
    """All models, the default first."""

    object: Literal["list"]
    data: list[Model]


async def models(request: ServerRequest) -> Response:
    """List the models, each followed by its adapters, and then all aliases."""
    infos = await request.worker.models.infos()
    adapters = {each.name: adapter_names(each) for each in request.worker.models.loaded}
    data = [
        _describe(request, info, name)
        for info in infos
        for name in (info.name, *(f"{info.name}:{each}" for each in adapters.get(info.name, ())))
    ]
    data += [_describe(request, info, alias) for info in infos for alias in info.aliases]
    if _is_anthropic(request):
        page = {"has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}
        return JSONResponse({"data": data, **page})
    return JSONResponse({"object": "list", "data": data})


async def model(request: ServerRequest) -> Response:
    """Describe a model, or one of its adapters."""
    name = request.http.path_params["name"]
    if not name:  # a trailing slash
        return await models(request)
    base, adapter = request.worker.models.split(name)
    info = await request.worker.models.info(base)
    if adapter is not None:
        require_adapter(await request.lease_model(base), adapter)
    return JSONResponse(_describe(request, info, info.name if adapter is None else f"{info.name}:{adapter}"))


def _is_anthropic(request: ServerRequest) -> bool:
    """Return True if the client is Anthropic's, which always sends the version of its API."""
    return "anthropic-version" in request.http.headers


def _describe(request: ServerRequest, info: ModelInfo, name: str) -> dict[str, Any]:
    if _is_anthropic(request):
        return {
            "id": name,
            "type": "model",
            "display_name": name,
            "created_at": rfc3339(info.created),
            "lifecycle": "active",
            "max_input_tokens": info.n_ctx,
            "max_tokens": info.n_ctx,
        }
    return {
        "id": name,
        "object": "model",
        "created": info.created,
        "owned_by": "pyggml",
        "root": info.name,
        "aliases": list(info.aliases),
        "max_model_len": info.n_ctx,
        "meta": {"n_ctx": info.n_ctx, "n_params": info.n_params, "size": info.size_bytes},
    }


MODELS = (
    *(Endpoint("GET", path, models, ModelList) for path in ("/v1/models", "/models")),
    Endpoint("GET", "/v1/models/{name:path}", model, Model),
)

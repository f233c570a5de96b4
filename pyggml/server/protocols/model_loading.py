"""llama-server's ``/models/load`` and ``/models/unload``."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.endpoint import Endpoint


class ModelName(Body):
    """A model to load or unload."""

    model: str = DEFAULT


class Done(BaseModel):
    """The result."""

    success: bool


async def load(request: ServerRequest, body: ModelName) -> Response:
    """Load a model, unless it is loaded."""
    await request.lease_model(body.model)
    return JSONResponse({"success": True})


async def unload(request: ServerRequest, body: ModelName) -> Response:
    """Unload a model once no request uses it; the next request loads it again."""
    request.worker.models.unload(body.model)
    return JSONResponse({"success": True})


MODEL_LOADING = (
    Endpoint("POST", "/models/load", load, Done, is_uncounted=True),
    Endpoint("POST", "/models/unload", unload, Done, is_uncounted=True),
)

"""What ollama's API tells of the models and of the server, and what it may not do with them here."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, Response

from pyggml.server.call import Call
from pyggml.server.failures import Failure, RequestError

# The version of ollama whose documentation and source this follows: clients ask whether it is new enough for them.
_VERSION = "0.32.15"


class Version(BaseModel):
    """The version of ollama whose API this is."""

    version: str


async def version(call: Call, body: None) -> Response:  # noqa: ARG001
    """Says which version's API this is."""
    return JSONResponse({"version": _VERSION})


async def alive(call: Call, body: None) -> Response:  # noqa: ARG001
    """Answers clients that ask whether anything is here, where there is no page."""
    return PlainTextResponse("pyggml is running")


async def refuse(call: Call, body: None) -> Response:  # noqa: ARG001
    """Refuses to change which models there are.

    Raises:
        RequestError: 403.
    """
    message = "requests do not change the models: start the server with those it has to offer, as 'pyggml serve " \
        "hf:org/repo' does, which downloads the model"  # fmt: skip
    raise RequestError(Failure(403, "invalid", message, "models_are_fixed"))

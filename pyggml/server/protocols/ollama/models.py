"""Ollama's endpoints for models and for the server's version. Requests cannot change the models."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, PlainTextResponse, Response

import pyggml
from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT, ModelInfo
from pyggml.server.protocols.timestamps import rfc3339

Json = dict[str, Any]

# The version of ollama whose API this implements; clients check that it is new enough.
_VERSION = "0.32.15"


class Details(BaseModel):
    """Properties of a model."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: int | None
    embedding_length: int | None


class Listed(BaseModel):
    """A model of the server."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details
    capabilities: list[str]


class ModelList(BaseModel):
    """All models, the default first."""

    models: list[Listed]


class Running(BaseModel):
    """A loaded model."""

    name: str
    model: str
    size: int
    size_vram: int
    digest: str
    details: Details
    context_length: int
    expires_at: str


class RunningList(BaseModel):
    """All loaded models."""

    models: list[Running]


class ShowRequest(Body):
    """A model to describe; ``name`` is the older name of ``model``."""

    model: str = ""
    name: str = ""


class ShowResponse(BaseModel):
    """Metadata of a model, without lists and long texts."""

    model_config = ConfigDict(protected_namespaces=())

    license: str
    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: Json
    capabilities: list[str]
    modified_at: str


class Version(BaseModel):
    """The implemented version of ollama's API."""

    version: str


async def tags(request: ServerRequest) -> Response:
    """List the models, and then all aliases."""
    infos = await request.worker.models.infos()
    named = [(info, info.name) for info in infos] + [(info, alias) for info in infos for alias in info.aliases]
    return JSONResponse({"models": [_listed(info, name) for info, name in named]})


async def ps(request: ServerRequest) -> Response:
    """List the loaded models, and when they are unloaded if no request uses them."""
    loaded = {model.name: model for model in request.worker.models.loaded}
    models = []
    for info in await request.worker.models.infos():
        if info.name in loaded:
            memory = loaded[info.name].memory
            devices = () if memory is None else memory.devices[1:]
            running = {
                "size": info.memory_bytes or info.size_bytes or 0,
                "size_vram": sum(device.total_bytes for device in devices),
                "context_length": info.n_ctx or 0,
                "expires_at": _expires_at(request.worker.models.expires(info.name)),
            }
            models.append({**_named(info, info.name), **running})
    return JSONResponse({"models": models})


async def show(request: ServerRequest, body: ShowRequest) -> Response:
    """Describe a model."""
    info = await request.worker.models.info(body.model or body.name or DEFAULT)
    report = info.report
    metadata = {} if report is None else dict(report.to_dict()["metadata"])
    template = metadata.pop("tokenizer.chat_template", "")
    parameters = _parameters(None if report is None else report.recommended_sampling)
    shown = {
        "license": str(metadata.get("general.license", "")),
        "modelfile": _modelfile(info.name, template, parameters),
        "parameters": parameters,
        "template": template,
        "details": _details(info),
        "model_info": {**metadata, "general.parameter_count": info.n_params},
        "capabilities": _capabilities(info),
        "modified_at": rfc3339(info.created),
    }
    return JSONResponse(shown)


async def version(_: ServerRequest) -> Response:
    """Return the implemented version of ollama's API."""
    return JSONResponse({"version": _VERSION})


async def alive(_: ServerRequest) -> Response:
    """Report that the server is running, if the web page is disabled."""
    return PlainTextResponse("pyggml is running")


async def refuse(_: ServerRequest) -> Response:
    """Refuse to change the models.

    Raises:
        RequestError: 403.
    """
    message = "requests cannot change the models: start the server with them; 'pyggml serve hf:org/repo' downloads one"
    raise RequestError(Failure(403, "invalid", message, "models_are_fixed"))


def _expires_at(expires: float | None) -> str:
    return _NEVER if expires is None else rfc3339(expires)


# Ollama's clients show a time so far away as "Forever".
_NEVER = "9999-12-31T23:59:59Z"


def _listed(info: ModelInfo, name: str) -> Json:
    size = info.file_bytes or info.size_bytes or 0
    return {
        **_named(info, name),
        "modified_at": rfc3339(info.created),
        "size": size,
        "capabilities": _capabilities(info),
    }


def _named(info: ModelInfo, name: str) -> Json:
    name = name if ":" in name else f"{name}:latest"
    return {"name": name, "model": name, "digest": _digest(info), "details": _details(info)}


def _digest(info: ModelInfo) -> str:
    """Return a digest that changes with the model's file. Ollama's is that of a manifest."""
    return hashlib.sha256(f"{info.name} {info.file_bytes} {info.created}".encode()).hexdigest()


def _details(info: ModelInfo) -> Json:
    report = info.report
    return {
        "parent_model": "",
        "format": report.format if report else "",
        "family": info.architecture or "",
        "families": [info.architecture] if info.architecture else [],
        "parameter_size": _format_n_params(info.n_params),
        "quantization_level": info.file_type or "",
        "context_length": report.n_ctx_train if report else None,
        "embedding_length": report.n_embd if report else None,
    }


def _capabilities(info: ModelInfo) -> list[str]:
    """Return a model's capabilities according to its metadata. Any chat template supports tools."""
    report = info.report
    if report is None:
        return []
    if f"{report.architecture}.pooling_type" in report.metadata:
        return ["embedding"]
    found = ["completion"]
    if report.chat_template is not None:
        found += ["tools", *(["thinking"] if report.chat_template.supports.thinking else [])]
    return found


def _modelfile(name: str, template: str, parameters: str) -> str:
    """Return a model's description in ollama's format. Its template is Jinja, not Go's."""
    lines = [f"FROM {name}", *([f'TEMPLATE """{template}"""'] if template else [])]
    return "\n".join([*lines, *(f"PARAMETER {' '.join(line.split())}" for line in parameters.splitlines())])


def _parameters(sampling: pyggml.SamplingParams | None) -> str:
    """Return the sampling parameters that are not the defaults, one per line."""
    if sampling is None:
        return ""
    changed = ((name, value) for name, value in vars(sampling).items() if value != getattr(_DEFAULTS, name))
    return "\n".join(f"{name:<30} {value}" for name, value in changed)


_DEFAULTS = pyggml.SamplingParams()

_UNITS: Sequence[tuple[float, str]] = ((1e9, "B"), (1e6, "M"), (1e3, "K"))


def _format_n_params(n_params: int | None) -> str:
    """Format a number of weights as ollama does: "8B", "3.48M"."""
    for unit, letter in _UNITS:
        if n_params and n_params >= unit:
            number = n_params / unit
            digits = 0 if number.is_integer() or letter == "K" else 1 if letter == "B" else 2
            return f"{number:.{digits}f}{letter}"
    return str(n_params or "")

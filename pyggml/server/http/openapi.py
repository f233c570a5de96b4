"""The OpenAPI document, made of what the protocols declare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml.server.http.errors import Failure, Problem
from pyggml.server.http.request import Call
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


_TYPES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}

# Two that differ in all that failures may leave out, from which the schema of a protocol's errors is made.
_FAILURES = (
    Failure(400, "invalid", "message", "code", "param", (Problem("field", "message"),)),
    Failure(500, "internal", "message"),
)


def describing(protocols: Sequence[Protocol]) -> Protocol:
    """The protocol that tells clients of the others: ``/openapi.json``."""

    async def openapi(call: Call, body: None) -> Response:  # noqa: ARG001
        prefix = call.request.scope.get("root_path", "")
        needs_key = call.worker.keys.are_needed
        return await call.aside(lambda: JSONResponse(document([*protocols, itself], prefix, needs_key=needs_key)))

    itself = Protocol(
        "openapi",
        (Endpoint("GET", "/openapi.json", openapi, "This document", None, None, "application/json"),),
        EXECUTE.error_body,
    )
    return itself


def document(protocols: Sequence[Protocol], prefix: str = "", *, needs_key: bool = False) -> dict[str, Any]:
    """The OpenAPI document of some protocols, version 3.1.

    Args:
        protocols: the protocols; of endpoints with the same path and method, only the first is there.
        prefix: path under which the server is.
        needs_key: whether requests need a key.
    """
    paths: dict[str, Any] = {}
    components: dict[str, Any] = {}
    for protocol in protocols:
        described = _Described(protocol, needs_key=needs_key)
        components |= described.schemas
        for endpoint in protocol.endpoints:
            operations = paths.setdefault(_PARAMETER.sub(r"{\1}", endpoint.path), {})
            operations.setdefault(endpoint.method.lower(), described.operation(endpoint))
    return {
        "openapi": "3.1.0",
        "info": {"title": "pyggml", "version": pyggml.__version__, "summary": "Language models behind HTTP"},
        "servers": [{"url": prefix or "/"}],
        "tags": [{"name": protocol.name} for protocol in protocols],
        "paths": paths,
        "components": {"schemas": components, **({"securitySchemes": _KEYS} if needs_key else {})},
    }


class _Described:
    """One protocol in the terms of OpenAPI.

    Attributes:
        schemas: its schemas, by the names that others refer to them by.
    """

    def __init__(self, protocol: Protocol, *, needs_key: bool) -> None:
        self._protocol = protocol
        self._needs_key = needs_key
        self._error = f"{protocol.name}.Error"
        models: list[tuple[Any, JsonSchemaMode]] = [*_models(protocol)]
        self._refs, defined = models_json_schema(models, ref_template=f"#/components/schemas/{protocol.name}.{{model}}")
        self.schemas = {f"{protocol.name}.{name}": schema for name, schema in defined.get("$defs", {}).items()}
        self.schemas[self._error] = _schema_of(*map(protocol.error_body, _FAILURES))

    def operation(self, endpoint: Endpoint) -> dict[str, Any]:
        """An endpoint as an operation."""
        found: dict[str, Any] = {
            "tags": [self._protocol.name],
            "summary": endpoint.summary,
            "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_"),
            "responses": self._responses(endpoint),
        }
        if parameters := _PARAMETER.findall(endpoint.path):
            found["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parameters
            ]
        if endpoint.body is not None:
            content = _json(self._refs[endpoint.body, "validation"])
            found["requestBody"] = {"required": True, "content": content}
        if self._needs_key and not endpoint.is_open:
            found["security"] = [{name: []} for name in _KEYS]
        return found

    def _responses(self, endpoint: Endpoint) -> dict[str, Any]:
        content = {} if endpoint.answer is None else _json(self._refs[endpoint.answer, "validation"])
        if endpoint.events is not None:
            content.setdefault(endpoint.events, {})
        answer = {"description": "The answer", **({"content": content} if content else {})}
        error = {"description": "What went wrong", "content": _json({"$ref": f"#/components/schemas/{self._error}"})}
        statuses = {str(status): answer for status in (200, *endpoint.also)}
        return {**statuses, "4XX": error, "5XX": error}


def _models(protocol: Protocol) -> Iterator[tuple[Any, JsonSchemaMode]]:
    for endpoint in protocol.endpoints:
        for model in (endpoint.body, endpoint.answer):
            if model is not None:
                yield model, "validation"


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema_of(*examples: Any) -> dict[str, Any]:
    """The schema of what looks like the examples: what only some have is optional, and lists may be empty."""
    if isinstance(examples[0], dict):
        names = list(dict.fromkeys(name for each in examples for name in each))
        return {
            "type": "object",
            "properties": {name: _schema_of(*(each[name] for each in examples if name in each)) for name in names},
            "required": [name for name in names if all(name in each for each in examples)],
        }
    if isinstance(examples[0], list):
        return {"type": "array", "items": _schema_of(examples[0][0])}
    return {"type": sorted({_TYPES[type(each)] for each in examples})}

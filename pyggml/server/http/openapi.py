"""The OpenAPI document, generated from the protocols' endpoints, as JSON and as a page."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml.server.http.docs_page import docs_page
from pyggml.server.http.errors import Failure, Problem
from pyggml.server.http.request import ServerRequest
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.execute import EXECUTE

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

_TYPES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}

# Examples with and without the optional parts, from which the schema of a protocol's errors is derived.
_EXAMPLE_FAILURES = (
    Failure(400, "invalid", "message", "code", "param", (Problem("field", "message"),)),
    Failure(500, "internal", "message"),
)


def openapi_protocol(protocols: Sequence[Protocol]) -> Protocol:
    """Return the protocol with ``/openapi.json``, which describes ``protocols`` and itself."""

    async def openapi(request: ServerRequest) -> Response:
        """Return this document."""
        prefix = request.http.scope.get("root_path", "")
        needs_key = request.worker.api_keys.are_required
        described = [*protocols, itself]
        return await request.run_in_thread(lambda: JSONResponse(document(described, prefix, needs_key=needs_key)))

    page = functools.lru_cache(maxsize=4)(lambda prefix: docs_page(document([*protocols, itself], prefix)))

    async def docs(request: ServerRequest) -> Response:
        """Return this document as a page."""
        return await request.run_in_thread(page, request.http.scope.get("root_path", ""))

    itself = Protocol(
        "openapi",
        (
            Endpoint("GET", "/openapi.json", openapi, stream_type="application/json"),
            Endpoint("GET", "/docs", docs, stream_type="text/html", is_open=True),
        ),
        EXECUTE.error_body,
    )
    return itself


def document(protocols: Sequence[Protocol], prefix: str = "", *, needs_key: bool = False) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of some protocols, for a server mounted at the path ``prefix``.

    Of endpoints with the same path and method, only the first is included.
    """
    paths: dict[str, Any] = {}
    components: dict[str, Any] = {}
    for protocol in protocols:
        described = _ProtocolDocument(protocol, needs_key=needs_key)
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
        "components": {"schemas": components, **({"securitySchemes": _SECURITY_SCHEMES} if needs_key else {})},
    }


class _ProtocolDocument:
    """OpenAPI schemas and operations of one protocol.

    Attributes:
        schemas: the schemas by name.
    """

    def __init__(self, protocol: Protocol, *, needs_key: bool) -> None:
        self._protocol = protocol
        self._needs_key = needs_key
        self._error = f"{protocol.name}.Error"
        models: list[tuple[Any, JsonSchemaMode]] = [
            (model, "validation")
            for endpoint in protocol.endpoints
            for model in (endpoint.body, endpoint.response)
            if model is not None
        ]
        self._refs, defined = models_json_schema(models, ref_template=f"#/components/schemas/{protocol.name}.{{model}}")
        self.schemas = {f"{protocol.name}.{name}": schema for name, schema in defined.get("$defs", {}).items()}
        self.schemas[self._error] = _schema_of(*map(protocol.error_body, _EXAMPLE_FAILURES))

    def operation(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the operation of an endpoint."""
        operation: dict[str, Any] = {
            "tags": [self._protocol.name],
            "summary": endpoint.summary,
            "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_"),
            "responses": self._responses(endpoint),
        }
        if parameters := _PARAMETER.findall(endpoint.path):
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parameters
            ]
        if endpoint.body is not None:
            content = _json(self._refs[endpoint.body, "validation"])
            operation["requestBody"] = {"required": True, "content": content}
        if self._needs_key and not endpoint.is_open:
            operation["security"] = [{name: []} for name in _SECURITY_SCHEMES]
        return operation

    def _responses(self, endpoint: Endpoint) -> dict[str, Any]:
        content = {} if endpoint.response is None else _json(self._refs[endpoint.response, "validation"])
        if endpoint.stream_type is not None:
            content.setdefault(endpoint.stream_type, {})
        success = {"description": "The response", **({"content": content} if content else {})}
        error = {"description": "The error", "content": _json({"$ref": f"#/components/schemas/{self._error}"})}
        statuses = {str(status): success for status in (200, *endpoint.other_statuses)}
        return {**statuses, "4XX": error, "5XX": error}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema_of(*examples: Any) -> dict[str, Any]:
    """Return the schema of the examples. Fields that only some have are optional, and lists may be empty."""
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

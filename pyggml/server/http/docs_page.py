"""``/docs``: the OpenAPI document as a page, for people. It has no scripts and no external resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from starlette.responses import HTMLResponse, Response

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def docs_page(document: Mapping[str, Any]) -> Response:
    """Return a page with the endpoints of an OpenAPI document, their bodies and their fields."""
    title = f"{document['info']['title']} {document['info']['version']}: HTTP API"
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width"></head><body>',
        f"<h1>{escape(title)}</h1><p>For programs: <a href='openapi.json'>openapi.json</a></p>",
    ]
    for tag in document["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2>")
        parts += _operations(document, tag["name"])
    return HTMLResponse("".join((*parts, "</body></html>")), headers=_HEADERS)


def _operations(document: Mapping[str, Any], tag: str) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if tag not in operation["tags"]:
                continue
            line = f"<code>{method.upper()} {escape(path)}</code> {escape(operation['summary'])}"
            if "requestBody" not in operation:
                yield f"<p>{line}</p>"
                continue
            reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            yield f"<details><summary>{line}</summary>{_body(schemas[reference.rpartition('/')[2]])}</details>"


def _body(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    fields = (
        f"{name}{' (required)' if name in required else ''}: {_type(field)}"
        + (f", {field['description']}" if "description" in field else "")
        for name, field in schema.get("properties", {}).items()
    )
    items = "".join(f"<li>{escape(field)}</li>" for field in fields)
    return f"<pre>{escape(schema.get('description', ''))}</pre><ul>{items}</ul>"


def _type(field: Mapping[str, Any]) -> str:
    """Return a field's type in a few words."""
    if "anyOf" in field or "oneOf" in field:
        names = dict.fromkeys(_type(each) for each in field.get("anyOf", field.get("oneOf", ())))
        return " or ".join(name for name in names if name != "null") or "null"
    if "enum" in field or "const" in field:
        return " or ".join(map(repr, field.get("enum", [field.get("const")])))
    kind = field.get("type", field.get("$ref", "any").rpartition(".")[2])
    return " or ".join(kind) if isinstance(kind, list) else str(kind)

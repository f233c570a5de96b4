"""JSON schemas of pydantic's types, of which everything is valid that follows them. Imported only where they are used.

Pydantic's own schemas leave out checks that JSON schemas have no keyword for, such as a URL's schemes.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from pyggml.schema._formats import HOST, NAIVE_DATETIME, PATH
from pyggml.schema.python_types import INTEGER_KEYS, decimal_schema, set_schema

_NOT_STRIPPED = r"^\S(.*\S)?$"  # text that is the same after white space around it is removed


def json_schema(annotation: Any) -> dict[str, Any]:
    """Return the JSON schema of a type that pydantic knows."""
    return _adapter(annotation).json_schema(schema_generator=_SchemaGenerator)


def from_json(annotation: Any, text: str) -> Any:
    """Create an object from JSON text."""
    return _adapter(annotation).validate_json(text)


@functools.lru_cache(maxsize=64)
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


class _SchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator, with keywords for checks that its schemas leave out."""

    def decimal_schema(self, schema: Any) -> JsonSchemaValue:
        """A number; pydantic also allows a string."""
        return decimal_schema(schema)

    def set_schema(self, schema: Any) -> JsonSchemaValue:
        """An array."""
        return set_schema(super().set_schema(schema), self._resolved)

    def frozenset_schema(self, schema: Any) -> JsonSchemaValue:
        """An array."""
        return set_schema(super().frozenset_schema(schema), self._resolved)

    def str_schema(self, schema: Any) -> JsonSchemaValue:
        """A string whose length is checked after it is stripped."""
        result = super().str_schema(schema)
        if schema.get("strip_whitespace") and schema.get("min_length"):
            result.setdefault("pattern", _NOT_STRIPPED)
        return result

    def date_schema(self, schema: Any) -> JsonSchemaValue:
        """A date, perhaps in the past or the future."""
        return _at_a_time(super().date_schema(schema), schema)

    def datetime_schema(self, schema: Any) -> JsonSchemaValue:
        """A moment, perhaps in the past or the future, or without a time zone."""
        if schema.get("tz_constraint") == "naive":
            return {"type": "string", "pattern": f"^{NAIVE_DATETIME}$"}
        return _at_a_time(super().datetime_schema(schema), schema)

    def json_schema(self, schema: Any) -> JsonSchemaValue:
        """A text of JSON, which no grammar for strings expresses."""
        return {**super().json_schema(schema), "format": "json-string"}

    def url_schema(self, schema: Any) -> JsonSchemaValue:
        """A URL with one of the type's schemes."""
        return _with_scheme(super().url_schema(schema), schema)

    def multi_host_url_schema(self, schema: Any) -> JsonSchemaValue:
        """A URL with one of the type's schemes, and one host."""
        return _with_scheme(super().multi_host_url_schema(schema), schema)

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        """An object whose names are read as integers where keys are."""
        result = super().dict_schema(schema)
        if schema.get("keys_schema", {}).get("type") == "int":
            result["propertyNames"] = INTEGER_KEYS
        return result

    def _resolved(self, schema: JsonSchemaValue) -> JsonSchemaValue:
        return self.get_schema_from_definitions(schema["$ref"]) or schema if "$ref" in schema else schema


def _at_a_time(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    pattern = {"past": "^(1[0-9]|20[01])[0-9]", "future": "^2[1-9]"}.get(schema.get("now_op"))
    return result if pattern is None else {**result, "pattern": pattern}


def _with_scheme(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    schemes: list[str] = schema.get("allowed_schemes") or ["https", "http"]
    usual = [each for each in ("https", "http") if each in schemes] or schemes
    if usual == ["https", "http"] and result.get("format") == "uri":
        return result
    host = "" if usual == ["file"] else HOST
    pattern = f"^({'|'.join(map(re.escape, usual))})://{host}{PATH}$"
    return {"pattern": pattern, **{name: value for name, value in result.items() if name != "format"}}

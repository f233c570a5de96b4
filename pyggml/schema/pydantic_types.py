"""JSON schemas of pydantic's types, of which everything is valid that follows them. Imported only where they are used.

Pydantic's own schemas leave out checks that JSON schemas have no keyword for, such as a URL's schemes.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from pyggml.errors import InvalidParameterError
from pyggml.schema._moments import bounded, of_python
from pyggml.schema.python_types import INTEGER_KEYS, decimal_schema, set_schema

# Hosts and paths of URLs whose schemes are limited. A top-level domain of digits would be read as an IP address.
_HOST = r"([a-z0-9]{1,20}\.){1,3}[a-z]{2,6}"
_PATH = "(/[A-Za-z0-9._~-]{1,40}){0,5}/?"

_PATHS = ("path", "file-path", "directory-path")  # formats
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

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """As pydantic's; texts that only a function of pydantic checks are refused."""
        result = super().generate_inner(schema)
        check = _unstated_check(schema)
        is_stated = result.get("format", "path") not in _PATHS  # these do not say whether it exists
        if check is not None and not is_stated:
            return self.handle_invalid_for_json_schema(schema, f"what {check} checks")
        return result

    def complex_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused: pydantic's texts of complex numbers have no format."""
        return self.handle_invalid_for_json_schema(schema, "a complex number")

    def is_subclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused: JSON has no classes."""
        return self.handle_invalid_for_json_schema(schema, "a class")

    def str_schema(self, schema: Any) -> JsonSchemaValue:
        """A string whose length is checked after it is stripped."""
        result = super().str_schema(schema)
        if schema.get("strip_whitespace") and schema.get("min_length"):
            result.setdefault("pattern", _NOT_STRIPPED)
        return result

    def date_schema(self, schema: Any) -> JsonSchemaValue:
        """A date between bounds, or in the past or the future."""
        return _at_a_time(super().date_schema(schema), schema)

    def datetime_schema(self, schema: Any) -> JsonSchemaValue:
        """A moment between bounds, or in the past or the future, perhaps with or without a time zone."""
        zone, result = schema.get("tz_constraint"), super().datetime_schema(schema)
        if zone == "naive":
            bounds = {name: value.replace(tzinfo=None) for name, value in _bounds(schema).items()}
            return of_python(bounded({**result, "format": "local-date-time"}, bounds))
        return _at_a_time(result, schema, keeps_zone=zone is not None)

    def time_schema(self, schema: Any) -> JsonSchemaValue:
        """A time between bounds."""
        return of_python(bounded(super().time_schema(schema), schema))

    def timedelta_schema(self, schema: Any) -> JsonSchemaValue:
        """A duration between bounds."""
        return of_python(bounded(super().timedelta_schema(schema), schema))

    def json_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused: no format describes texts of JSON inside a string."""
        return self.handle_invalid_for_json_schema(schema, "a text of JSON")

    def url_schema(self, schema: Any) -> JsonSchemaValue:
        """A URL with one of the type's schemes."""
        return _with_scheme(super().url_schema(schema), schema)

    def multi_host_url_schema(self, schema: Any) -> JsonSchemaValue:
        """A URL with one of the type's schemes, and one host."""
        return _with_scheme(super().multi_host_url_schema(schema), schema)

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        """Alternatives with their tag, which pydantic requires even if it has a default."""
        result = super().tagged_union_schema(schema)
        tag = result.get("discriminator", {}).get("propertyName")
        if tag is not None:
            result["oneOf"] = [_requiring(tag, each) for each in result["oneOf"]]
        return result

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        """An object whose names are read as integers where keys are."""
        result = super().dict_schema(schema)
        if schema.get("keys_schema", {}).get("type") == "int":
            result["propertyNames"] = INTEGER_KEYS
        return result

    def _resolved(self, schema: JsonSchemaValue) -> JsonSchemaValue:
        return self.get_schema_from_definitions(schema["$ref"]) or schema if "$ref" in schema else schema


def _requiring(name: str, schema: JsonSchemaValue) -> JsonSchemaValue:
    required = schema.get("required", [])
    return schema if name in required else {**schema, "required": [*required, name]}


def _unstated_check(schema: Any) -> str | None:
    """Return the name of the function with which a type of pydantic checks its texts, or None."""
    if not schema["type"].startswith("function-"):
        return None
    function = schema["function"]["function"]
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if "<lambda>" in name or (module != "pydantic.types" and name != "import_string"):
        return None  # a function of another module, or a conversion, as of a Secret
    return name.removesuffix("._validate").removesuffix(".validate")


def _bounds(schema: Any) -> dict[str, Any]:
    return {name: schema[name] for name in ("ge", "gt", "le", "lt") if schema.get(name) is not None}


def _at_a_time(result: JsonSchemaValue, schema: Any, *, keeps_zone: bool = False) -> JsonSchemaValue:
    if _bounds(schema) and schema.get("now_op"):
        raise InvalidParameterError("a schema cannot express bounds together with the past or the future: use bounds")
    if _bounds(schema):
        return bounded(result, schema, keeps_zone=keeps_zone)
    pattern = {"past": "^(1[0-9]|20[01])[0-9]", "future": "^2[1-9]"}.get(schema.get("now_op"))
    return of_python(result) if pattern is None else {**result, "pattern": pattern}


def _with_scheme(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    schemes: list[str] = schema.get("allowed_schemes") or ["https", "http"]
    usual = [each for each in ("https", "http") if each in schemes] or schemes
    host = "" if usual == ["file"] else _HOST
    pattern = f"^({'|'.join(map(re.escape, usual))})://{host}{_PATH}$"
    return {"pattern": pattern, **{name: value for name, value in result.items() if name != "format"}}

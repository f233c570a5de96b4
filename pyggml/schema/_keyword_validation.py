"""What the values of a JSON schema's keywords must be, as the standard's own schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyggml.errors import GrammarError

_SCHEMA = frozenset((
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_SCHEMAS = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_NAMED_SCHEMAS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
_TEXT = frozenset(("$ref", "format", "pattern"))
_NUMBER = frozenset((
    "exclusiveMaximum", "exclusiveMinimum", "maximum", "maxItems", "maxLength", "maxProperties", "minimum", "minItems",
    "minLength", "minProperties", "multipleOf",
))  # fmt: skip


def require_shape(document: Any) -> None:
    """Makes sure that a schema is one, with all in it, whether or not it is used.

    Raises:
        GrammarError: a keyword has a value of a type that it cannot have; gives the first one's place.
    """
    left: list[tuple[Any, str]] = [(document, "#")]
    while left:
        schema, place = left.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            raise _wrong(place, "a schema must be an object or a boolean", schema)
        for key, value in schema.items():
            if (expected := _expected(key, value)) is not None:
                raise _wrong(f"{place}/{key}", f"must be {expected}", value)
            left.extend(_inside(key, value, f"{place}/{key}"))


def _expected(key: str, value: Any) -> str | None:
    """What the value of a keyword must be, if it is something else."""
    if key in _NAMED_SCHEMAS and not isinstance(value, dict):
        return "an object of schemas"
    if key in _SCHEMAS - _SCHEMA and not isinstance(value, list):
        return "a list of schemas"
    if key in _TEXT and not isinstance(value, str):
        return "a string"
    if key in _NUMBER and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return "a number"
    if key == "enum" and not isinstance(value, list):
        return "a list of values"
    if key == "required" and not _is_list_of_text(value):
        return "a list of names"
    if key == "type" and not isinstance(value, str) and not _is_list_of_text(value):
        return "the name of a type, or a list of them"
    return None


def _inside(key: str, value: Any, place: str) -> Iterator[tuple[Any, str]]:
    """The schemas that a keyword has, and where they are."""
    if key in _NAMED_SCHEMAS:
        for name, each in value.items():
            yield each, f"{place}/{name}"
    elif key in _SCHEMAS and isinstance(value, list):
        for number, each in enumerate(value):
            yield each, f"{place}/{number}"
    elif key in _SCHEMA:
        yield value, place


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _wrong(place: str, what: str, value: Any) -> GrammarError:
    return GrammarError(f"{place}: {what}, not {json.dumps(value)[:40]}")

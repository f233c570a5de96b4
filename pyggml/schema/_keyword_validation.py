"""Validation of the keywords of a JSON schema by type, as in the standard's own schema."""

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


def require_valid_keywords(document: Any) -> None:
    """Check the types of all keywords in a schema, used or not.

    Raises:
        GrammarError: the value of a keyword has a wrong type; the message has the place of the first one.
    """
    pending: list[tuple[Any, str]] = [(document, "#")]
    while pending:
        schema, place = pending.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            raise _wrong(place, "a schema must be an object or a boolean", schema)
        for key, value in schema.items():
            if (expected := _expected(key, value)) is not None:
                raise _wrong(f"{place}/{key}", f"must be {expected}", value)
            pending.extend(_inside(key, value, f"{place}/{key}"))


def _expected(key: str, value: Any) -> str | None:
    """Return the expected type of a keyword's value, if the value has another one."""
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
    """Yield the schemas in a keyword's value, and their places."""
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

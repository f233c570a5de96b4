"""Keywords of a schema without references and unions: the types, values, items and members that it allows.

The readers raise GrammarError for a malformed keyword, and if no value can match; the message has its JSON pointer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable
from typing import Any

from pyggml.errors import GrammarError
from pyggml.schema._unknown_keywords import require_known

Schema = dict[str, Any]

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_RESPONSE_FORMATS = ("json_object", "json_schema")  # types of OpenAI's response formats, for messages

# The keywords that apply to each type.
_KEYWORDS = {
    "object": (
        "properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties",
        "propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
    ),
    "array": (
        "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
        "maxContains", "unevaluatedItems",
    ),
    "string": ("minLength", "maxLength", "pattern", "format"),
    # "decimalPlaces", the maximum number of decimals, is pyggml's: other validators ignore it.
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "decimalPlaces"),
}  # fmt: skip
_GENERAL = (
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref", "$dynamicRef",
    "$recursiveRef",
)  # fmt: skip
_KNOWN = frozenset([*_GENERAL, *(key for keys in _KEYWORDS.values() for key in keys)])


def without_annotations(schema: Schema, place: str) -> Schema:
    """Return the schema without keywords that do not constrain values, such as descriptions.

    Raises:
        GrammarError: as :func:`pyggml.schema._unknown_keywords.require_known`.
    """
    if not schema.keys() <= _KNOWN:
        require_known(schema, place, _KNOWN)
    return {key: value for key, value in schema.items() if key in _KNOWN}


def is_number(value: object) -> bool:
    """Return True if it is a number that JSON can represent."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def types_of(schema: Schema, place: str) -> list[str]:
    """Return the types that values can have: those of ``type``, or those that other keywords imply, or all."""
    named = schema.get("type")
    if named is None:
        implied = [name for name, keys in _KEYWORDS.items() if any(key in schema for key in keys)]
        return implied or [name for name in TYPES if name != "integer"]
    types = named if isinstance(named, list) else [named]
    for name in types:
        if name not in TYPES:
            way_out = f"; known are {', '.join(TYPES)}"
            if name in _RESPONSE_FORMATS:
                way_out = ": pass a response format as response_format"
            raise GrammarError(f"{place}/type: unknown type {json.dumps(name)[:40]}{way_out}")
    if not types:
        raise GrammarError(f"{place}/type: no value can match")
    return [name for name in TYPES if name in types and not (name == "integer" and "number" in types)]


def values_of(schema: Schema, place: str) -> list[Any] | None:
    """Return the values of ``enum`` and ``const`` that match the other keywords; None if the schema has neither."""
    values = listed_values(schema)
    if values is None:
        return None
    possible = [value for value in values if _matches(value, schema, place)]
    if not possible:
        raise GrammarError(f"{place}: no value can match")
    return possible


def finite_values(alternatives: list[Schema], place: str) -> list[Any]:
    """Return all values that match one of some plain schemas, each once; [] if there are infinitely many."""
    found: dict[str, Any] = {}
    for schema in alternatives:
        values = values_of(schema, place)
        if values is None and schema.get("type") in (["boolean"], "boolean", ["null"], "null"):
            values = [None] if "null" in schema["type"] else [True, False]
        if values is None:
            return []
        found |= {_key(value): value for value in values}
    return list(found.values())


def items_of(schema: Schema) -> tuple[list[Any], Any, bool]:
    """Return the schemas of an array's first items, the schema of the rest, and True if the rest is explicit."""
    items = schema.get("items", True)
    if isinstance(items, list):  # up to draft 7
        return items, schema.get("additionalItems", True), "additionalItems" in schema
    return schema.get("prefixItems", []), items, "items" in schema


def members_of(schema: Schema, place: str) -> tuple[dict[str, tuple[Any, str]], set[str], Any]:
    """Return an object's named members (schema and place of each), the required names, and the schema of the others."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, dict):
        raise GrammarError(f"{place}/properties: must be an object")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise GrammarError(f"{place}/required: must be a list of names")
    others = schema.get("additionalProperties", True)
    members = {name: (each, f"{place}/properties/{_pointer(name)}") for name, each in properties.items()}
    for name in required:
        if name not in members:
            if others is False:
                raise GrammarError(
                    f"{place}/required: {json.dumps(name)} is required, but no member may have that name"
                )
            members[name] = (others, f"{place}/additionalProperties")
    return members, set(required), others if _takes_others(schema, members) else False


def _takes_others(schema: Schema, members: Collection[str]) -> bool:
    """Return True if an object may have members with free names: explicitly, or because it names none at all."""
    return "additionalProperties" in schema or not (members or "properties" in schema)


def listed_values(schema: Schema) -> list[Any] | None:
    listed = schema.get("enum")
    if listed is not None and not isinstance(listed, list):
        return []
    if "const" not in schema:
        return listed
    return [schema["const"]] if listed is None else common_values(listed, [schema["const"]])


def _key(value: Any) -> str:
    """Return the same key for values that are equal in JSON, such as 1 and 1.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def common_values(some: list[Any], others: list[Any]) -> list[Any]:
    keys = {_key(value) for value in others}
    return [value for value in some if _key(value) in keys]


def _matches(value: Any, schema: Schema, place: str) -> bool:
    """Return True if a listed value matches the other keywords; GrammarError if checking that needs a validator."""
    kind = _type_of(value)
    named = schema.get("type")
    if named is not None and kind not in with_integers(types_of(schema, place)):
        return False
    others = [key for key in _KEYWORDS.get("number" if kind == "integer" else kind, ()) if key in schema]
    if others and (isinstance(value, (dict, list)) or "format" in others):
        raise GrammarError(f"{place}: a grammar cannot express listed values together with {others[0]}")
    _require_sound(schema, others, place)
    if isinstance(value, str):
        within = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return within and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)
    if is_number(value):
        step = schema.get("multipleOf")
        return (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and value > schema.get("exclusiveMinimum", -math.inf)
            and value < schema.get("exclusiveMaximum", math.inf)
            and (step is None or value % step == 0)
        )
    return True


def _require_sound(schema: Schema, keys: Iterable[str], place: str) -> None:
    """Check that keywords for numbers and strings can be used in a comparison."""
    for key in keys:
        value = schema[key]
        if key == "pattern":
            try:
                re.compile(value)
            except (re.error, TypeError, OverflowError, RecursionError) as error:
                raise GrammarError(f"{place}/{key}: is not a regular expression: {error}") from None
        elif not is_number(value):
            raise GrammarError(f"{place}/{key}: must be a number, not {json.dumps(value)}")
        elif key == "multipleOf" and value <= 0:
            raise GrammarError(f"{place}/{key}: must be a positive number, not {json.dumps(value)}")


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def matching_types(schema: Schema) -> set[str]:
    """Return the types whose values may match: without ``type`` all, since keywords ignore values of other types."""
    return with_integers(types_of(schema, "") if "type" in schema else TYPES)


def with_integers(types: Iterable[str]) -> set[str]:
    """Return the types, with "integer" added if "number" is among them."""
    found = set(types)
    return found | {"integer"} if "number" in found else found


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")

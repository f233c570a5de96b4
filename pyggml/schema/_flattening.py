"""Flattening of JSON schemas: references are resolved, and conjunctions merged into plain schemas."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from pyggml._core.checks import shown
from pyggml.errors import GrammarError

Schema = dict[str, Any]

_MAX_ALTERNATIVES = 256

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

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
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
_GENERAL = (
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref", "$dynamicRef",
    "$recursiveRef",
)  # fmt: skip
_KNOWN = frozenset([*_GENERAL, *(key for keys in _KEYWORDS.values() for key in keys)])
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_MOST_FLATTENED = 100_000  # schemas: takes a second, and far more than large documents have
_JOINED = ("allOf", "anyOf", "oneOf", "$ref")


def without_annotations(schema: Schema) -> Schema:
    """Return the schema without keywords that do not constrain values, such as descriptions."""
    return {key: value for key, value in schema.items() if key in _KNOWN}


def is_number(value: object) -> bool:
    """Return True if it is a number that JSON can represent."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


class Document:
    """A whole schema, and the resolution of references in it.

    Attributes:
        root: the schema.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self._n_flattened = 0
        self._open_refs: set[str] = set()

    def resolve(self, ref: Any, place: str) -> tuple[str, Any]:
        """Resolve a reference to a JSON pointer and the schema there.

        Raises:
            GrammarError: the reference points to nothing, or out of this schema.
        """
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise GrammarError(f"{place}/$ref: {shown(ref)} does not point into this schema (#/...)")
        target = self.root
        for part in ref.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise GrammarError(f"{place}/$ref: there is nothing at {ref}")
        return ref, target

    def flattened(self, schema: Any, place: str) -> list[Schema]:
        """Return equivalent alternatives without references and unions; a value must match one of them.

        Raises:
            GrammarError: the schema is malformed or cannot be expressed; the message has its JSON pointer.
        """
        self._n_flattened += 1
        if self._n_flattened > _MOST_FLATTENED:
            raise GrammarError(
                f"{place}: merging schemas that refer to themselves never ends: write the merged schema out"
            )
        if isinstance(schema, bool):
            return [{}] if schema else []
        if not isinstance(schema, dict):
            raise GrammarError(f"{place}: a schema must be an object or a boolean, not {json.dumps(schema)[:40]}")
        schema = _modern(without_annotations(schema))
        result = [{key: value for key, value in schema.items() if key not in _JOINED}]
        if "$ref" in schema:
            result = _all_pairs(result, self._resolved(schema["$ref"], place), place)
        for i, each in enumerate(_list_at(schema, "allOf", place)):
            result = _all_pairs(result, self.flattened(each, f"{place}/allOf/{i}"), place)
        for key in ("anyOf", "oneOf"):
            alternatives = _list_at(schema, key, place)
            if alternatives:
                if key == "oneOf":
                    alternatives = self.exclusive(alternatives, place)
                found = [f for i, each in enumerate(alternatives) for f in self.flattened(each, f"{place}/{key}/{i}")]
                result = _all_pairs(result, found, place)
        if not result:
            raise GrammarError(f"{place}: no value can match")
        return result

    def _resolved(self, ref: Any, place: str) -> list[Schema]:
        target_place, target = self.resolve(ref, place)
        if target_place in self._open_refs:
            raise GrammarError(f"{place}/$ref: {ref} refers to itself")
        self._open_refs.add(target_place)
        try:
            return self.flattened(target, target_place)
        finally:
            self._open_refs.remove(target_place)

    def exclusive(self, alternatives: list[Any], place: str) -> list[Any]:
        """Return the alternatives of a ``oneOf``, made mutually exclusive.

        If two objects can only be told apart by a member, that member becomes required.

        Raises:
            GrammarError: a value could match two of the alternatives.
        """
        flat = [self.flattened(each, f"{place}/oneOf/{i}") for i, each in enumerate(alternatives)]
        needed: list[set[str]] = [set() for _ in alternatives]
        for i in range(len(flat)):
            for j in range(i + 1, len(flat)):
                for a in flat[i]:
                    for b in flat[j]:
                        names = self._distinguishing_members(a, b)
                        if names is None:
                            raise GrammarError(
                                f"{place}/oneOf: a value could match both {i} and {j}, which a grammar cannot exclude; "
                                "tell them apart by type or by a constant member, or use anyOf"
                            )
                        needed[i] |= names
                        needed[j] |= names
        return [
            {"allOf": [each, {"type": "object", "required": sorted(names)}]} if names else each
            for each, names in zip(alternatives, needed, strict=True)
        ]

    def _distinguishing_members(self, a: Schema, b: Schema) -> set[str] | None:
        """Return the members that distinguish values of two schemas; empty: types or values do; None: nothing does."""
        types_a, types_b = _with_integers(types_of(a, "")), _with_integers(types_of(b, ""))
        if not (types_a & _matching_types(b) or types_b & _matching_types(a)):
            return set()
        values_a, values_b = _values(a), _values(b)
        if values_a is not None and values_b is not None:
            return set() if not _common(values_a, values_b) else None
        if types_a != {"object"} or types_b != {"object"}:
            return None
        for name in a.get("properties", {}).keys() & b.get("properties", {}).keys():
            own, other = (self._constants(schema["properties"][name]) for schema in (a, b))
            if own is not None and other is not None and not _common(own, other):
                return {name}
        return None

    def _constants(self, schema: Any) -> list[Any] | None:
        """Return the values that a schema lists, or None."""
        try:
            values = [_values(flat) for flat in self.flattened(schema, "")]
        except GrammarError:
            return None
        return None if None in values else [value for each in values for value in each or ()]


def types_of(schema: Schema, place: str) -> list[str]:
    """Return the types that values can have: those of ``type``, or those that other keywords imply, or all.

    Raises:
        GrammarError: ``type`` is invalid.
    """
    named = schema.get("type")
    if named is None:
        implied = [name for name, keys in _KEYWORDS.items() if any(key in schema for key in keys)]
        return implied or [name for name in TYPES if name != "integer"]
    types = named if isinstance(named, list) else [named]
    for name in types:
        if name not in TYPES:
            raise GrammarError(f"{place}/type: unknown type {json.dumps(name)[:40]}; known are {', '.join(TYPES)}")
    if not types:
        raise GrammarError(f"{place}/type: no value can match")
    return [name for name in TYPES if name in types and not (name == "integer" and "number" in types)]


def values_of(schema: Schema, place: str) -> list[Any] | None:
    """Return the values of ``enum`` and ``const`` that match the other keywords; None if the schema has neither.

    Raises:
        GrammarError: none of the values match.
    """
    values = _values(schema)
    if values is None:
        return None
    possible = [value for value in values if _matches(value, schema, place)]
    if not possible:
        raise GrammarError(f"{place}: no value can match")
    return possible


def items_of(schema: Schema) -> tuple[list[Any], Any, bool]:
    """Return the schemas of an array's first items, the schema of the rest, and True if the rest is explicit."""
    items = schema.get("items", True)
    if isinstance(items, list):  # up to draft 7
        return items, schema.get("additionalItems", True), "additionalItems" in schema
    return schema.get("prefixItems", []), items, "items" in schema


def members_of(schema: Schema, place: str) -> tuple[dict[str, tuple[Any, str]], set[str], Any]:
    """Return an object's named members (schema and place of each), the required names, and the schema of other members.

    Raises:
        GrammarError: a keyword is malformed, or a required member is not allowed.
    """
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
    return members, set(required), others if "additionalProperties" in schema or not members else False


# --- joining --------------------------------------------------------------------------------------------------


def _all_pairs(some: list[Schema], others: list[Schema], place: str) -> list[Schema]:
    joined = [_conjunction(a, b, place) for a in some for b in others]
    result = [each for each in joined if each is not None]
    if len(result) > _MAX_ALTERNATIVES:
        raise GrammarError(f"{place}: the alternatives here have too many combinations")
    return result


def _conjunction(a: Schema, b: Schema, place: str) -> Schema | None:
    """Return a schema for the values that match both; None if there are none."""
    result = {**a, **b}
    for key in a.keys() & b.keys():
        if key in _LEAST:
            result[key] = max(a[key], b[key])
        elif key in _MOST:
            result[key] = min(a[key], b[key])
        elif key == "required":
            result[key] = list(dict.fromkeys([*a[key], *b[key]]))
        elif key == "uniqueItems":
            result[key] = a[key] or b[key]
        elif key == "multipleOf" and isinstance(a[key], int) and isinstance(b[key], int):
            result[key] = math.lcm(a[key], b[key])
        elif key in ("pattern", "format", "multipleOf") and a[key] != b[key]:
            raise GrammarError(f"{place}: a grammar cannot express two different values of {key}")
    if "type" in a and "type" in b:
        types = _with_integers(types_of(a, place)) & _with_integers(types_of(b, place))
        result["type"] = [name for name in TYPES if name in types]
        if not types:
            return None
    values_a, values_b = _values(a), _values(b)
    if values_a is not None and values_b is not None:
        result.pop("const", None)
        result["enum"] = _common(values_a, values_b)
        if not result["enum"]:
            return None
    return {**result, **_joined_members(a, b), **_joined_items(a, b)}


def _joined_members(a: Schema, b: Schema) -> Schema:
    names = list(dict.fromkeys([*a.get("properties", {}), *b.get("properties", {})]))
    result: Schema = {}
    if names:
        result["properties"] = {name: _joined(_member(schema, name) for schema in (a, b)) for name in names}
    if "additionalProperties" in a or "additionalProperties" in b:
        result["additionalProperties"] = _joined(schema.get("additionalProperties", True) for schema in (a, b))
    return result


def _member(schema: Schema, name: str) -> Any:
    return schema.get("properties", {}).get(name, schema.get("additionalProperties", True))


def _joined_items(a: Schema, b: Schema) -> Schema:
    if not any(key in schema for key in ("items", "prefixItems") for schema in (a, b)):
        return {}
    (first_a, rest_a, _), (first_b, rest_b, _) = items_of(a), items_of(b)
    n = max(len(first_a), len(first_b))
    result: Schema = {}
    if n:
        padded = ([*first, *[rest] * (n - len(first))] for first, rest in ((first_a, rest_a), (first_b, rest_b)))
        result["prefixItems"] = [_joined(pair) for pair in zip(*padded, strict=True)]
    if items_of(a)[2] or items_of(b)[2]:
        result["items"] = _joined((rest_a, rest_b))
    return result


def _joined(schemas: Iterable[Any]) -> Any:
    rest = [schema for schema in schemas if schema is not True and schema != {}]
    if False in rest:
        return False
    return {"allOf": rest} if len(rest) > 1 else rest[0] if rest else True


def _modern(schema: Schema) -> Schema:
    """Convert exclusive bounds to numbers; up to draft 4 they were flags."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        flag = schema.get(exclusive)
        if isinstance(flag, bool):
            schema = {key: value for key, value in schema.items() if key != exclusive}
            if flag and bound in schema:
                schema[exclusive] = schema.pop(bound)
    return schema


def _list_at(schema: Schema, key: str, place: str) -> list[Any]:
    value = schema.get(key, [])
    if not isinstance(value, list) or (key in schema and not value):
        raise GrammarError(f"{place}/{key}: must be a list of schemas")
    return value


# --- values ---------------------------------------------------------------------------------------------------


def _values(schema: Schema) -> list[Any] | None:
    listed = schema.get("enum")
    if listed is not None and not isinstance(listed, list):
        return []
    if "const" not in schema:
        return listed
    return [schema["const"]] if listed is None else _common(listed, [schema["const"]])


def _key(value: Any) -> str:
    """Return the same key for values that are equal in JSON, such as 1 and 1.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _common(some: list[Any], others: list[Any]) -> list[Any]:
    keys = {_key(value) for value in others}
    return [value for value in some if _key(value) in keys]


def _matches(value: Any, schema: Schema, place: str) -> bool:
    """Return True if a listed value matches the other keywords.

    Raises:
        GrammarError: checking that would need a validator.
    """
    kind = _type_of(value)
    named = schema.get("type")
    if named is not None and kind not in _with_integers(types_of(schema, place)):
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
    """Check the values of keywords for numbers and strings.

    Raises:
        GrammarError: a value cannot be used in a comparison.
    """
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


def _matching_types(schema: Schema) -> set[str]:
    """Return the types whose values may match: without ``type`` all, since keywords ignore values of other types."""
    return _with_integers(types_of(schema, "") if "type" in schema else TYPES)


def _with_integers(types: Iterable[str]) -> set[str]:
    """Return the types, with "integer" added if "number" is among them."""
    found = set(types)
    return found | {"integer"} if "number" in found else found


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")

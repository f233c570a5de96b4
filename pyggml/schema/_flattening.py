"""Flattening of JSON schemas: references are resolved, and conjunctions merged into plain schemas.

Every step raises GrammarError for a schema that is malformed or cannot be expressed; the message has its JSON pointer.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from pyggml._core.checks import shown
from pyggml.errors import GrammarError
from pyggml.schema._keywords import (
    TYPES,
    Schema,
    common_values,
    items_of,
    listed_values,
    matching_types,
    types_of,
    with_integers,
    without_annotations,
)

_MAX_ALTERNATIVES = 256
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_SINGLE = ("pattern", "format", "multipleOf", "decimalPlaces", "propertyNames", "patternProperties")
_MOST_FLATTENED = 100_000  # schemas: takes a second, and far more than large documents have
_JOINED = ("allOf", "anyOf", "oneOf", "$ref")


class Document:
    """A whole schema, ``root``, and the resolution of references in it."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._n_flattened = 0
        self._open_refs: set[str] = set()

    def resolve(self, ref: Any, place: str) -> tuple[str, Any]:
        """Return the place and the schema that a reference points to, a JSON pointer within this schema."""
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
        """Return equivalent alternatives without references and unions; a value must match one of them."""
        self._n_flattened += 1
        if self._n_flattened > _MOST_FLATTENED:
            raise GrammarError(
                f"{place}: merging schemas that refer to themselves never ends: write the merged schema out"
            )
        if isinstance(schema, bool):
            return [{}] if schema else []
        if not isinstance(schema, dict):
            raise GrammarError(f"{place}: a schema must be an object or a boolean, not {json.dumps(schema)[:40]}")
        schema = _modern(without_annotations(schema, place))
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
        """
        flat = [self.flattened(each, f"{place}/oneOf/{i}") for i, each in enumerate(alternatives)]
        needed: list[set[str]] = [set() for _ in alternatives]
        for i, j in itertools.combinations(range(len(flat)), 2):
            for a, b in itertools.product(flat[i], flat[j]):
                names = self._distinguishing_members(a, b)
                if names is None:
                    raise GrammarError(
                        f"{place}/oneOf: a value could match both {i} and {j}, which a grammar cannot exclude; tell "
                        "them apart by type or by a constant member, or use anyOf"
                    )
                needed[i] |= names
                needed[j] |= names
        return [
            {"allOf": [each, {"type": "object", "required": sorted(names)}]} if names else each
            for each, names in zip(alternatives, needed, strict=True)
        ]

    def _distinguishing_members(self, a: Schema, b: Schema) -> set[str] | None:
        """Return the members that distinguish values of two schemas; empty: types or values do; None: nothing does."""
        types_a, types_b = with_integers(types_of(a, "")), with_integers(types_of(b, ""))
        if not (types_a & matching_types(b) or types_b & matching_types(a)):
            return set()
        values_a, values_b = listed_values(a), listed_values(b)
        if values_a is not None and values_b is not None:
            return set() if not common_values(values_a, values_b) else None
        if types_a != {"object"} or types_b != {"object"}:
            return None
        for name in a.get("properties", {}).keys() & b.get("properties", {}).keys():
            own, other = (self._constants(schema["properties"][name]) for schema in (a, b))
            if own is not None and other is not None and not common_values(own, other):
                return {name}
        return None

    def _constants(self, schema: Any) -> list[Any] | None:
        """Return the values that a schema lists, or None."""
        try:
            values = [listed_values(flat) for flat in self.flattened(schema, "")]
        except GrammarError:
            return None
        return None if None in values else [value for each in values for value in each or ()]


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
        elif key in _SINGLE and a[key] != b[key]:
            raise GrammarError(f"{place}: a grammar cannot express two different values of {key}")
    if "type" in a and "type" in b:
        types = with_integers(types_of(a, place)) & with_integers(types_of(b, place))
        result["type"] = [name for name in TYPES if name in types]
        if not types:
            return None
    values_a, values_b = listed_values(a), listed_values(b)
    if values_a is not None and values_b is not None:
        result.pop("const", None)
        result["enum"] = common_values(values_a, values_b)
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
    (first_a, rest_a, has_rest_a), (first_b, rest_b, has_rest_b) = items_of(a), items_of(b)
    n = max(len(first_a), len(first_b))
    result: Schema = {}
    if n:
        padded = ([*first, *[rest] * (n - len(first))] for first, rest in ((first_a, rest_a), (first_b, rest_b)))
        result["prefixItems"] = [_joined(pair) for pair in zip(*padded, strict=True)]
    if has_rest_a or has_rest_b:
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

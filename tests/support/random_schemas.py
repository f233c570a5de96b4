"""Random JSON schemas, of what structured output supports."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
Maker = Callable[[random.Random, int, list[str]], Schema]

_NAMES = ("name", "age", "tags", "in", "is_on", "x", "größe", "a b", 'quo"te', "id", "n1", "n2")
_WORDS = ("red", "green", "", "a b", 'say "hi"', "né", "\\", "\n", "x" * 12, "0")
_PATTERNS = ("^[a-z]{1,5}$", r"^\d{3}-\d{2}$", '^(yes|no|may"be)$', r"^\S{1,9}\.[a-z]{2,3}$", "^[^0-9]{0,4}$")
_FORMATS = ("date", "time", "date-time", "uuid", "email", "ipv4", "uri", "ipv6", "hostname")


def random_schema(rng: random.Random) -> Schema:
    """One schema, with definitions that may refer to themselves."""
    n_definitions = rng.randrange(3)
    names = [f"d{i}" for i in range(n_definitions)]
    schema = _schema(rng, 3, names)
    if names:
        schema = {**schema, "$defs": {name: _definition(rng, name, names) for name in names}}
    return schema


def _definition(rng: random.Random, name: str, names: list[str]) -> Schema:
    """An object that may hold one of its own kind, and mostly does not."""
    schema = _object(rng, 1, [])
    schema.pop("minProperties", None)  # which could make the next one necessary, and so on
    properties = schema["properties"]
    again: Schema = {"$ref": f"#/$defs/{rng.choice(names)}"}
    forms: list[Schema] = [
        again,
        {"anyOf": [{"type": "null"}, {"type": "boolean"}, again]},
        {"type": "array", "items": again, "maxItems": 1},
    ]
    properties[f"more of {name}"] = rng.choice(forms)
    return schema


def _schema(rng: random.Random, depth: int, names: list[str]) -> Schema:
    makers: list[Maker] = [_integer, _number, _string, _enum, _plain]
    if depth > 0:
        makers += [_object, _array, _tuple, _union, _either, _conjunction, _map] * 2
    if names and rng.random() < 0.3:
        return {"$ref": f"#/$defs/{rng.choice(names)}"}
    return rng.choice(makers)(rng, depth - 1, names)


def _integer(rng: random.Random, _depth: int, _names: list[str]) -> Schema:
    low = rng.choice((rng.randint(-20, 20), rng.randint(-(10**6), 10**6)))
    high = low + rng.choice((0, 1, 7, 1000, 10**7))
    schema: Schema = {"type": "integer"}
    if rng.random() < 0.6:
        schema[rng.choice(("minimum", "exclusiveMinimum"))] = low - 1
    if rng.random() < 0.6:
        schema[rng.choice(("maximum", "exclusiveMaximum"))] = high + 2
    if len(schema) == 3 and rng.random() < 0.3:
        schema["multipleOf"] = rng.choice((1, 2, 3)) if high - low < 5000 else 1
    return schema


def _number(rng: random.Random, _depth: int, _names: list[str]) -> Schema:
    low = rng.choice((0.0, -1.0, round(rng.uniform(-5, 5), 2), float(rng.randint(-1000, 1000))))
    schema: Schema = {"type": "number"}
    if rng.random() < 0.7:
        schema[rng.choice(("minimum", "exclusiveMinimum"))] = low
    if rng.random() < 0.7:
        schema[rng.choice(("maximum", "exclusiveMaximum"))] = round(low + rng.choice((0.5, 1.0, 0.013, 100.0)), 3)
    return schema


def _string(rng: random.Random, _depth: int, _names: list[str]) -> Schema:
    kind = rng.randrange(4)
    if kind == 0:
        return {"type": "string", "pattern": rng.choice(_PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": rng.choice(_FORMATS)}
    low = rng.choice((0, 1, 3, 30))
    return {"type": "string", "minLength": low, "maxLength": low + rng.choice((0, 2, 20, 300))}


def _enum(rng: random.Random, _depth: int, _names: list[str]) -> Schema:
    values = [*rng.sample(_WORDS, 2), rng.randint(-5, 5), 0.25, None, True, [1, "a"], {"k": [None]}]
    if rng.random() < 0.3:
        return {"const": rng.choice(values)}
    return {"enum": rng.sample(values, rng.randint(1, 4))}


def _plain(rng: random.Random, _depth: int, _names: list[str]) -> Schema:
    return {"type": rng.choice(("boolean", "null", "integer", "number", ["boolean", "integer"]))}


def _object(rng: random.Random, depth: int, names: list[str]) -> Schema:
    chosen = rng.sample(_NAMES, rng.randint(0, 4))
    schema: Schema = {"type": "object", "properties": {name: _schema(rng, depth, names) for name in chosen}}
    schema["required"] = [name for name in chosen if rng.random() < 0.6]
    kind = rng.randrange(4)
    if kind == 0 or not chosen:
        schema["additionalProperties"] = False
    elif kind == 1:
        schema["additionalProperties"] = {"type": "integer"}
        schema["maxProperties"] = len(chosen) + rng.randint(0, 2)
    if kind == 2 and chosen:
        schema["minProperties"] = rng.randint(0, len(chosen))
    return schema


def _map(rng: random.Random, depth: int, names: list[str]) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": _schema(rng, depth - 1, names), "maxProperties": 2}
    if rng.random() < 0.5:
        schema["minProperties"] = 1
    return schema


def _array(rng: random.Random, depth: int, names: list[str]) -> Schema:
    low = rng.choice((0, 0, 1, 2))
    return {
        "type": "array",
        "items": _schema(rng, depth - 1, names),
        "minItems": low,
        "maxItems": low + rng.choice((0, 1, 2)),
    }


def _tuple(rng: random.Random, depth: int, names: list[str]) -> Schema:
    first = [_schema(rng, depth - 1, names) for _ in range(rng.randint(1, 3))]
    return {"type": "array", "prefixItems": first, "minItems": rng.randint(0, len(first)), "items": False}


def _union(rng: random.Random, depth: int, names: list[str]) -> Schema:
    return {"anyOf": [_schema(rng, depth - 1, names) for _ in range(rng.randint(1, 3))]}


def _either(rng: random.Random, depth: int, names: list[str]) -> Schema:
    """Objects that a constant member tells apart, or types that are apart anyway."""
    if rng.random() < 0.3:
        return {"oneOf": [{"type": "string", "maxLength": 5}, {"type": "boolean"}, _integer(rng, depth, names)]}
    alternatives = []
    for kind in ("cat", "dog"):
        schema = _object(rng, depth - 1, names)
        schema["properties"] = {"kind": {"const": kind}, **schema["properties"]}
        if rng.random() < 0.5:
            schema["required"].append("kind")
        schema.pop("maxProperties", None)
        alternatives.append(schema)
    return {"oneOf": alternatives}


def _conjunction(rng: random.Random, depth: int, names: list[str]) -> Schema:
    a, b = (_object(rng, depth - 1, names) for _ in range(2))
    for schema in (a, b):
        for key in ("additionalProperties", "maxProperties", "minProperties"):
            schema.pop(key, None)
    b["properties"] = {f"{name}_2": each for name, each in b["properties"].items()}
    b["required"] = [f"{name}_2" for name in b["required"]]
    return {"allOf": [a, b]}

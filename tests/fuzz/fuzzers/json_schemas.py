"""JSON schemas, made up and changed: refused as such, or what is sampled by them validates."""

from __future__ import annotations

import copy
import json
import random as standard
from pathlib import Path
from typing import Any

import numpy as np
from support import exact_json
from support.checkpoints import models
from support.random_schemas import random_schema

import pyggml
from fuzz import damage
from fuzz.refusal import refused
from fuzz.sampled import sampled
from pyggml.errors import GrammarError, InferError, InvalidParameterError
from pyggml.schema.grammar import grammar_of

MAX_SECONDS = 30.0
N_TEXTS = 3  # sampled by each schema

#: Keywords, each with values that it may have.
KEYWORDS: dict[str, tuple[Any, ...]] = {
    "type": ("string", "integer", "number", "object", "array", "null", "boolean", ["string", "null"], "strin", []),
    "enum": ([1, 2], ["a", None], [], [[1], {"a": 1}], ["é", "\ud800"], ["x" * 3000]),
    "const": (1, "a", None, {"a": [1]}, 1e300, 10**30, -0.0),
    "minimum": (0, -5, 1.5, 10**20, 2**53 + 1, -1e-7, "1", None),
    "maximum": (0, 7, 2.5, 10**20, 1e300, -(2**63) - 1, True),
    "exclusiveMinimum": (0, 3, True, -1e300, 2**63, 123456789012.5),
    "exclusiveMaximum": (9, 4.5, False, 2**63 + 1, -(2**53)),
    "multipleOf": (1, 3, 0.1, 0.01, 2.5, 1e-7, 10**20, 0, -2),
    "minLength": (0, 3, 500, -1, 10**9),
    "maxLength": (0, 3, 500, 10**12, 1.5),
    "pattern": ("^a+$", "(a*)*b", r"^\d{3}$", "[", "(?=x)y", r"\p{L}", "a|b|", "^$", "^(a{1,9}){1,9}$",
    "^.{0,4000}$", "\\u00e9"),
    "format": ("date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri",
    "uri-reference", "json-pointer", "regex", "nonsense", 5),
    "items": ({"type": "integer"}, False, True, [{"type": "null"}], {}, 5),
    "prefixItems": ([{"type": "integer"}], [], [True, False], {}),
    "minItems": (0, 2, 1000, -1),
    "maxItems": (0, 2, 10**6, None),
    "uniqueItems": (True, False),
    "contains": ({"type": "integer"}, {"const": "a"}, True, False, 3),
    "minContains": (0, 2, -1),
    "maxContains": (0, 3, "1"),
    "unevaluatedItems": (False, {"type": "null"}, True),
    "additionalItems": (False, {"type": "boolean"}),
    "properties": ({"a": {"type": "integer"}}, {}, {"": True, "b": False}, {"é\"\\": {"const": 1}}, []),
    "required": (["a"], ["a", "a"], ["zz"], [], "a", [5]),
    "additionalProperties": (False, True, {"type": "integer"}),
    "patternProperties": ({"^x": {"type": "integer"}}, {"^a": {"type": "integer"}, "b$": {"minimum": 3}}, {"[": {}}),
    "propertyNames": ({"pattern": "^[a-z]+$"}, {"maxLength": 3}, False),
    "unevaluatedProperties": (False, {"type": "string"}),
    "dependentRequired": ({"a": ["b"]}, {"a": []}, {"a": "b"}),
    "dependentSchemas": ({"a": {"required": ["c"]}}, {"a": False}),
    "dependencies": ({"a": ["b"], "b": {"maxProperties": 2}}, 5),
    "minProperties": (0, 1, 5),
    "maxProperties": (0, 1, 50),
    "anyOf": ([{"type": "integer"}, {"type": "string"}], [], [True], [{"required": ["a"]}]),
    "oneOf": ([{"type": "integer"}, {"type": "number"}], [{"const": 1}, {"const": 2}]),
    "allOf": ([{"minimum": 2}], [{"type": "string"}, {"type": "integer"}], [{"$ref": "#"}]),
    "not": ({"type": "null"}, {}, {"required": ["a"]}, {"enum": [1, "a"]}, {"pattern": "^a"}, {"not": {"type": "null"}},
    {"items": {"type": "null"}}),
    "if": ({"type": "integer"}, {"properties": {"a": {"const": 1}}}, False),
    "then": ({"minimum": 1}, {"required": ["b"]}, False),
    "else": ({"maxLength": 3}, {"type": "string"}),
    "decimalPlaces": (0, 2, -1),
    "$id": ("http://x/y", "#", 3),
    "$anchor": ("here", ""),
    "$schema": ("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema", "http://x/"),
    "$ref": ("#", "#/$defs/d0", "#/properties/a", "#/nothing", "http://x/y", 5, "#/%", "#/$defs/~2"),
    "$defs": ({"d0": {"type": "integer"}}, {"d0": {"$ref": "#/$defs/d0"}}, {"d0": {"anyOf": [{"type": "null"},
    {"$ref": "#"}]}}),
    "default": (1,),
    "title": ("t", 5),
    "nullable": (True,),
    "unheardOf": (1,),
}  # fmt: skip


def prepare(folder: Path) -> pyggml.Model:
    return pyggml.Model(models.write_llama(folder / "tiny.gguf", models.byte_vocabulary()))


def make(random: np.random.Generator) -> list[Any]:
    """The seed of a schema, and of each change of it."""
    n_changes = int(random.choice([0, 1, 2, 4], p=[0.2, 0.4, 0.25, 0.15]))
    parts: list[Any] = [["schema", int(random.integers(1 << 30))]] if random.random() < 0.9 else []
    parts += [["change", int(random.integers(1 << 30))] for _ in range(n_changes)]
    if random.random() < 0.05:
        parts.append(["text", int(random.integers(1 << 30))])
    return [*parts, ["sampled", int(random.integers(1 << 30))]]


def run(model: pyggml.Model, parts: list[Any], folder: Path) -> str:
    del folder
    schema: Any = {}
    text: str | None = None
    seed = 0
    for kind, number in parts:
        random = np.random.default_rng(number)
        if kind == "schema":
            schema = random_schema(standard.Random(number))
        elif kind == "change":
            schema = changed(schema, random)
        elif kind == "text":
            text = damage.with_changed_span(json.dumps(schema).encode(), random).decode("utf-8", "replace")
        else:
            seed = number
    try:
        grammar = grammar_of(schema if text is None else text)
    except (GrammarError, InvalidParameterError) as error:
        return refused(error)
    return _validated(model, grammar, schema if text is None else json.loads(text), seed)


def _validated(model: pyggml.Model, grammar: str, schema: Any, seed: int) -> str:
    whole = 0
    try:
        validator = exact_json.validator_of(schema)
        draft = type(validator)
        # Formats are checked because of patterns: one that is none may stand where the grammar has no use for it.
        is_schema = draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER).is_valid(schema)
        is_schema = is_schema and not _changes_dialect(schema)
        with pyggml.Sampler(model) as sampler:
            sampler.grammar(grammar)
            for number in range(N_TEXTS):
                found = sampled(sampler, np.random.default_rng([seed, number]))
                if found is not None:
                    text = found.decode("utf-8")
                    json.loads(text)
                    if is_schema:
                        is_schema = _judge(validator, exact_json.loads(text, draft))
                    whole += 1
    except exact_json.HugeNumberError:  # the schema may have one, too
        return "followed to a huge number"
    except InferError as error:  # it cannot be followed: too large, or too ambiguous
        return f"converted, and then {refused(error)}"
    return "validated" if whole and is_schema else "followed"


def _judge(validator: Any, instance: Any) -> bool:
    """Validate an instance. Return False if the validator does not understand the schema.

    A reference may lead to a value that no meta-schema checks, such as one in ``$defs`` in a draft-04 schema.
    """
    try:
        validator.validate(instance)
    except TypeError:
        return False
    return True


def _changes_dialect(schema: Any) -> bool:
    """Return True if a part that is no resource of its own has a ``$schema``, which JSON Schema forbids.

    jsonschema follows it.
    """
    return any(key == "$schema" and holder is not schema for holder, key in damage.places_of(schema))


def changed(schema: Any, random: np.random.Generator) -> Any:
    """The same with one more keyword somewhere, or a strange value, or without a key."""
    kind = random.random()
    if not isinstance(schema, dict) or kind < 0.2:
        return damage.with_changed_value(schema, random, is_key=kind < 0.1) if isinstance(schema, (dict, list)) else {}
    holders = [schema] + [holder[key] for holder, key in damage.places_of(schema) if isinstance(holder[key], dict)]
    keyword = list(KEYWORDS)[int(random.integers(len(KEYWORDS)))]
    values = KEYWORDS[keyword]
    holder = holders[int(random.integers(len(holders)))]
    holder[keyword] = copy.deepcopy(values[int(random.integers(len(values)))])
    return schema

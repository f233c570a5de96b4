"""Outputs of a real model at temperature 0.8, eight at once: whatever finishes is valid under its schema."""

from __future__ import annotations

from collections import Counter
from typing import Any

from support import schema_outputs

import pyggml

N_SEEDS = 2  # outputs by each schema

NAME = {"type": "string", "minLength": 1, "maxLength": 12}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

SCHEMAS: dict[str, Any] = {
    "bounded numbers": {
        "description": "a weather report",
        "type": "object",
        "properties": {
            "celsius": {"type": "number", "minimum": -40.5, "exclusiveMaximum": 50, "multipleOf": 0.5},
            "humidity": {"type": "integer", "minimum": 0, "maximum": 100},
        },
        "required": ["celsius", "humidity"],
    },
    "formats": {
        "description": "a calendar entry",
        "type": "object",
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "start": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "host": {"type": "string", "format": "email", "maxLength": 30},
        },
        "required": ["id", "start", "day", "host"],
    },
    "patterns": {
        "description": "a part of a car",
        "type": "object",
        "properties": {
            "number": {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}(?!0)\d$"},
            "name": {"type": "string", "pattern": r"\S", "minLength": 3, "maxLength": 20},
        },
        "required": ["number", "name"],
    },
    "discriminated": {
        "description": "a shape",
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "r": {"type": "integer"}},
                "required": ["kind", "r"],
            },
            {"type": "object", "properties": {"kind": {"const": "point"}}, "required": ["kind"]},
        ],
    },
    "overlapping oneOf": {"oneOf": [{"type": "integer", "maximum": 50}, {"type": "integer", "minimum": 20}]},
    "recursive": {
        "description": "a family tree",
        "$ref": "#/$defs/person",
        "$defs": {
            "person": {
                "type": "object",
                "properties": {
                    "name": NAME,
                    "children": {"type": "array", "items": {"$ref": "#/$defs/person"}, "maxItems": 2},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    },
    "unique items": {
        "description": "primes",
        "type": "array",
        "items": {"type": "integer"},
        "uniqueItems": True,
        "minItems": 3,
        "maxItems": 6,
    },
    "contains": {
        "type": "array",
        "items": {"enum": [1, 2, 3]},
        "contains": {"const": 3},
        "minContains": 2,
        "maxContains": 2,
        "maxItems": 6,
    },
    "tuple": {
        "type": "array",
        "prefixItems": [NAME, {"type": "integer"}, {"type": "boolean"}],
        "items": False,
        "minItems": 3,
    },
    "tuples of draft 7": {
        "$schema": DRAFT_7,
        "allOf": [{"items": [{"type": "integer"}, NAME]}, {"items": [{"minimum": 5}], "minItems": 2, "maxItems": 3}],
        "type": "array",
    },
    "siblings of $ref in draft 7": {
        "$schema": DRAFT_7,
        "type": "object",
        "properties": {"n": {"$ref": "#/definitions/n", "maximum": 3}},
        "required": ["n"],
        "additionalProperties": False,
        "definitions": {"n": {"type": "integer", "minimum": 10}},
    },
    "exclusive bounds of draft 4": {
        "$schema": DRAFT_4,
        "type": "object",
        "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}},
        "required": ["n"],
        "additionalProperties": False,
    },
    "if and else": {
        "description": "an address",
        "type": "object",
        "properties": {"country": {"enum": ["US", "NL"]}, "zip": {"type": "string", "maxLength": 8}},
        "required": ["country", "zip"],
        "if": {"properties": {"country": {"const": "US"}}},
        "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}},
        "else": {"properties": {"zip": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}},
    },
    "patternProperties": {
        "description": "settings",
        "type": "object",
        "patternProperties": {"^n_": {"type": "integer"}, "^is_": {"type": "boolean"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 4,
    },
    "dependentRequired": {
        "description": "a payment",
        "type": "object",
        "properties": {
            "amount": {"type": "integer"},
            "card": {"type": "string", "pattern": "^[0-9]{8}$"},
            "owner": NAME,
        },
        "required": ["amount"],
        "dependentRequired": {"card": ["owner"]},
    },
    "not": {
        "type": "object",
        "properties": {"word": {"type": "string", "maxLength": 10, "not": {"pattern": "[aeiou]"}}},
        "required": ["word"],
    },
    "unevaluatedProperties": {
        "description": "a pet",
        "allOf": [{"type": "object", "properties": {"name": NAME}, "required": ["name"]}],
        "properties": {"age": {"type": "integer", "minimum": 0}},
        "unevaluatedProperties": False,
    },
    "enumerated objects": {"enum": [{"a": [1, None]}, {"b": "x"}, [True], 1e30, 'é"\\']},
    "nested $id": {
        "$id": "https://example.com/root",
        "type": "object",
        "properties": {"inner": {"$id": "inner", "$ref": "#/$defs/v", "$defs": {"v": {"type": "null"}}}},
        "required": ["inner"],
        "$defs": {"v": {"type": "integer"}},
    },
    "anything": {"type": "object"},
}


def test_outputs_that_finish_are_valid(smollm2: pyggml.LLM) -> None:
    counts: Counter[str] = Counter()
    finished: set[str] = set()
    for seed in range(N_SEEDS):
        for name, output in schema_outputs.generate(smollm2, SCHEMAS, max_tokens=200, seed=seed * len(SCHEMAS)):
            assert output.kind in ("valid", "unfinished"), (name, output)
            counts[output.kind] += 1
            finished |= {name} if output.kind == "valid" else set()
    assert len(finished) >= 0.8 * len(SCHEMAS), (counts, sorted(SCHEMAS.keys() - finished))

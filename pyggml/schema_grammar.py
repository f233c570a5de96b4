"""JSON schemas to grammars, each text of which parses and validates.

A grammar may allow less than its schema: members come in the schema's order, an object whose members are named has no
others unless ``additionalProperties`` asks for them, free names have at most 40 characters, and dates stop at the 28th
of February. It never allows more: what a grammar cannot express is refused by name.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from pyggml._schema_rules import Converter
from pyggml.errors import GrammarError, InvalidParameterError
from pyggml.schema import schema_of


def grammar_of(schema: Mapping[str, Any] | str | object) -> str:
    """A JSON schema as a GBNF grammar with a rule ``root``. Schemas seen before cost next to nothing.

    Args:
        schema: a mapping, JSON text, or a type that :func:`~pyggml.schema.schema_of` understands.

    Raises:
        GrammarError: the text is no JSON, or the schema asks for what a grammar cannot express, or for what cannot be;
            with the place, as a JSON pointer.
        InvalidParameterError: the mapping is no JSON, or the type cannot be expressed as a schema.
    """
    return _converted(schema if isinstance(schema, str) else _canonical(schema))


def _canonical(schema: object) -> str:
    if not isinstance(schema, (Mapping, bool)):
        schema = schema_of(schema)
    try:
        return json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"the JSON schema must be made of JSON values: {error}") from None


@functools.lru_cache(maxsize=64)
def _converted(text: str) -> str:
    if "\0" in text:
        raise InvalidParameterError(f"the JSON schema holds a NUL character at index {text.index(chr(0))}: remove it")
    try:
        schema = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is no JSON: {error}") from None
    try:
        return Converter(schema).grammar()
    except RecursionError:
        raise GrammarError("the JSON schema is nested too deeply") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")

"""JSON schemas to grammars, each text of which parses and validates.

A grammar may allow less than its schema: members come in the schema's order, an object whose members are named has no
others unless ``additionalProperties`` asks for them, free names have at most 40 characters, and dates stop at the 28th
of February. It never allows more: what a grammar cannot express is refused by name.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from pyggml.errors import GrammarError, InvalidParameterError
from pyggml.schema import schema_of
from pyggml.schema._rules import Converter

# A rule's name in GBNF, unless it stands in a literal or a character class, which come first.
_RULE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^]\\]|\\.)*\]|([A-Za-z][A-Za-z0-9-]*)')


def grammar_of(schema: Mapping[str, Any] | str | object) -> str:
    """A JSON schema as a GBNF grammar with a rule ``root``. Schemas seen before cost next to nothing.

    Args:
        schema: a mapping, JSON text, or a type that :func:`~pyggml.schema.schema_of` understands.

    Raises:
        GrammarError: the text is no JSON, or the schema asks for what a grammar cannot express, or for what cannot be;
            with the place, as a JSON pointer.
        InvalidParameterError: as :func:`as_text`.
    """
    return _converted(schema if isinstance(schema, str) else as_text(schema))


def with_prefix(grammar: str, prefix: str) -> str:
    """The same grammar with something in front of the name of each rule, so that it can be part of another one."""
    return _RULE_NAME.sub(lambda found: f"{prefix}{found[1]}" if found[1] else found[0], grammar)


def parsed(schema: str) -> Any:
    """A JSON schema's text as JSON values.

    Raises:
        GrammarError: it is no JSON.
        InvalidParameterError: it holds a NUL character.
    """
    if "\0" in schema:
        raise InvalidParameterError(f"the JSON schema holds a NUL character at index {schema.index(chr(0))}: remove it")
    try:
        return json.loads(schema, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is not valid JSON: {error}") from None


def as_text(schema: object) -> str:
    """A JSON schema, or a type that stands for one, as JSON text.

    Raises:
        InvalidParameterError: the mapping is not made of JSON values, or the type cannot be expressed as a schema.
    """
    if not isinstance(schema, (Mapping, bool)):
        schema = schema_of(schema)
    try:
        return json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"the JSON schema must be made of JSON values: {error}") from None


@functools.lru_cache(maxsize=64)
def _converted(text: str) -> str:
    schema = parsed(text)
    try:
        return Converter(schema).grammar(schema, "#")
    except RecursionError:
        raise GrammarError("the JSON schema is nested too deeply") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")

"""Conversion of JSON schemas to grammars. Every text that such a grammar allows is valid JSON and matches the schema.

A grammar may allow less than its schema: members come in the schema's order, an object with ``properties``, even none,
has no others unless ``additionalProperties`` allows them, free names have at most 40 characters, values without
constraints are bounded, and there is no 29th of February. It never allows more: a keyword that a grammar cannot express
is an error that names it, and so is a misspelled one.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyggml._core.checks import require_content, shown
from pyggml.errors import GrammarError, InvalidParameterError
from pyggml.schema import schema_of
from pyggml.schema._gbnf_elements import literal
from pyggml.schema._regex import TEXT_CHARACTERS, pattern_rule, text_chars
from pyggml.schema._rules import Rules
from pyggml.schema._schema_converter import Converter
from pyggml.schema._text_automaton import patterns, text_rule

# A rule's name in GBNF. Literals and character classes come first, so that text inside them is not taken for a name.
_RULE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^]\\]|\\.)*\]|([A-Za-z][A-Za-z0-9-]*)')

_LONGEST_MESSAGE = 1000  # of an error, in characters


def grammar_of(schema: Mapping[str, Any] | str | object) -> str:
    """Convert a JSON schema to a GBNF grammar with a rule ``root``. Recent results are cached.

    Args:
        schema: a mapping, JSON text, or a type that :func:`~pyggml.schema_of` supports.

    Raises:
        GrammarError: the text is not valid JSON, a grammar cannot express the schema, or no value can match it; the
            message has a JSON pointer.
        InvalidParameterError: ``schema`` is none of these.
    """
    return _converted(as_text(schema))


def grammar_of_choices(texts: Sequence[str]) -> str:
    """Return a GBNF grammar that matches one of the texts."""
    return f"root ::= {' | '.join(map(literal, texts))}\n"


@functools.lru_cache(maxsize=64)
def grammar_of_regex(pattern: str) -> str:
    """Convert a regular expression, which must match as a whole, to a GBNF grammar with a rule ``root``.

    Raises:
        GrammarError: the pattern is not a regular expression, or a grammar cannot express it.
    """
    rules = Rules()
    try:
        try:
            expression = pattern_rule(pattern, rules.add, text_chars, whole=True)
        except ValueError:  # it has anchors inside, or it is invalid
            expression = text_rule(patterns(pattern, whole=True), 0, None, rules, text_chars, TEXT_CHARACTERS)
    except ValueError as error:
        raise GrammarError(f"regex {shown(pattern)}: {error}") from None
    rules.define("root", expression)
    return str(rules)


def with_prefix(grammar: str, prefix: str) -> str:
    """Add a prefix to the name of every rule, so that the grammar can become part of another one."""
    return _RULE_NAME.sub(lambda found: f"{prefix}{found[1]}" if found[1] else found[0], grammar)


def parsed(schema: str) -> Any:
    """Parse the text of a JSON schema.

    Raises:
        GrammarError: the text is not valid JSON.
        InvalidParameterError: the text contains a NUL character.
    """
    if "\0" in schema:
        raise InvalidParameterError(
            f"the JSON schema contains a NUL character at index {schema.index(chr(0))}: remove it"
        )
    try:
        return json.loads(schema, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is not valid JSON: {error}") from None


def as_text(schema: object) -> str:
    """Convert a JSON schema, or a type with a schema, to JSON text. Text is returned unchanged.

    Raises:
        InvalidParameterError: the text is the name of a file, the mapping does not consist of JSON values, or the type
            cannot be expressed as a schema.
    """
    if isinstance(schema, str):
        require_content("the JSON schema", schema)
        return schema
    if not isinstance(schema, (Mapping, bool)):
        schema = schema_of(schema)
    try:
        return json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"the JSON schema must consist of JSON values: {error}") from None


@functools.lru_cache(maxsize=64)
def _converted(text: str) -> str:
    schema = parsed(text)
    try:
        return Converter(schema).grammar(schema, "#")
    except GrammarError as error:
        message = str(error)
        if len(message) <= _LONGEST_MESSAGE:
            raise
        half = _LONGEST_MESSAGE // 2  # keeps the place, whose names have any length, and the error
        raise GrammarError(f"{message[:half]} ... {message[-half:]}") from None
    except RecursionError:
        raise GrammarError("the JSON schema is nested too deeply") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not valid JSON")

"""Grammars of JSON schemas, regular expressions and choices, in GBNF with the engine's terminals.

The engine compiles schemas and regular expressions itself: ``%json {...}`` stands for the values of a schema,
``%regex "..."`` for the texts that match an expression, which is written as a JSON string (csrc/sampling/grammar/
terminals.hpp). Every text that the grammar of a schema allows is valid JSON and matches the schema. A keyword that the
engine cannot follow is an error that names it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pyggml._core.checks import choice, flag, require_content, shown
from pyggml.errors import GrammarError, InvalidParameterError
from pyggml.schema import schema_of

#: What a schema without ``additionalProperties`` says about members that it does not name.
AdditionalProperties = Literal["allow", "deny"]
#: What happens to keywords that JSON Schema does not have.
UnknownKeywords = Literal["refuse", "ignore"]

#: Options of :func:`grammar_of` with which every valid text is allowed.
EVERYTHING_VALID: Final[Mapping[str, Any]] = {
    "any_order": True,
    "any_spelling": True,
    "additional_properties": "allow",
    "unknown_keywords": "ignore",
}

# Literals and character classes of GBNF come first, so that text inside them is not taken for a name; then terminals,
# whose options and JSON text follow.
_PARTS = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[(?:[^]\\]|\\.)*\]|(%[a-z]+(?:\[[a-z,-]*\])?\s*)|([A-Za-z][A-Za-z0-9-]*)', re.DOTALL
)
_JSON_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}[\]]|[^\s"{}[\],:]+', re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x1f]")


def grammar_of(
    schema: Mapping[str, Any] | str | object,
    *,
    any_order: bool = False,
    any_spelling: bool = False,
    additional_properties: AdditionalProperties = "deny",
    unknown_keywords: UnknownKeywords = "refuse",
) -> str:
    """Return the grammar of a JSON schema: GBNF with a rule ``root``. Recent results are cached.

    The defaults suit the output of models, which is better if members come in the order in which the schema explains
    them, without unnecessary ones, and tidily. With ``any_order=True``, ``any_spelling=True``,
    ``additional_properties="allow"`` and ``unknown_keywords="ignore"`` the grammar allows what the specification of
    JSON Schema allows.

    Args:
        schema: a mapping, JSON text, or a type that :func:`~pyggml.schema_of` supports.
        any_order: members of objects come in any order. False: in that of ``properties``.
        any_spelling: any usual layout, with white space before commas and colons and up to two line breaks in a row,
            and escapes in names. False: one space, or a line break with up to 40 characters of indentation, where
            ``json.dumps`` has them.
        additional_properties: "deny": an object with ``properties`` has no members that the schema does not mention,
            unless ``additionalProperties``, ``patternProperties`` or ``unevaluatedProperties`` allows them. "allow":
            it has, as JSON Schema says, unless these forbid them.
        unknown_keywords: "refuse": raise GrammarError for a misspelled keyword (``minimun``), and for a schema of
            nothing but unknown keywords. "ignore" them, as JSON Schema says.

    Raises:
        GrammarError: the text is not valid JSON, the engine cannot follow the schema, or no value can match it; the
            message has a JSON pointer.
        InvalidParameterError: ``schema`` or an option is none of these.
    """
    options = [
        *(["any-order"] if flag("any_order", any_order) else []),
        *(["any-spelling"] if flag("any_spelling", any_spelling) else []),
        *(["extra-members"] if _is("allow", "additional_properties", additional_properties, "deny") else []),
        *(["unknown-keywords"] if _is("ignore", "unknown_keywords", unknown_keywords, "refuse") else []),
    ]
    text, terminal = as_text(schema), f"%json[{','.join(options)}]" if options else "%json"
    parsed(text)  # text after a value would be read as part of the grammar
    return _checked(f"root ::= {terminal} {_on_one_line(text)}\n")


def grammar_of_choices(texts: Sequence[str]) -> str:
    """Return a GBNF grammar that matches one of the texts."""
    return f"root ::= {' | '.join(map(_literal, texts))}\n"


def grammar_of_regex(pattern: str) -> str:
    """Return the grammar of a regular expression, which must match as a whole: GBNF with a rule ``root``.

    Raises:
        GrammarError: the pattern is not a regular expression, or not a regular one, such as one with back references.
    """
    try:
        return _checked(f"root ::= %regex {json.dumps(pattern, ensure_ascii=False)}\n")
    except GrammarError as error:
        raise GrammarError(f"regex {shown(pattern)}: {error}") from None


def with_prefix(grammar: str, prefix: str) -> str:
    """Add a prefix to the name of every rule, so that the grammar can become part of another one."""
    out, at = [], 0
    while found := _PARTS.search(grammar, at):
        terminal, name = found.groups()
        end = _end_of_json(grammar, found.end()) if terminal else found.end()
        out += [grammar[at : found.start()], prefix if name else "", grammar[found.start() : end]]
        at = end
    return "".join([*out, grammar[at:]])


def as_text(schema: object) -> str:
    """Convert a JSON schema, or a type with a schema, to JSON text. Text is returned unchanged.

    Raises:
        InvalidParameterError: the text is the name of a file or contains a NUL character, the mapping does not consist
            of JSON values, or the type cannot be expressed as a schema.
    """
    if isinstance(schema, str):
        require_content("the JSON schema", schema)
        if "\0" in schema:
            at = schema.index("\0")
            raise InvalidParameterError(f"the JSON schema contains a NUL character at index {at}: remove it")
        return schema
    if not isinstance(schema, (Mapping, bool)):
        schema = schema_of(schema)
    try:
        return json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"the JSON schema must consist of JSON values: {error}") from None


def parsed(schema: str) -> Any:
    """Parse the text of a JSON schema.

    Raises:
        GrammarError: the text is not valid JSON.
    """
    try:
        return json.loads(schema, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is not valid JSON: {error}") from None


@functools.lru_cache(maxsize=64)
def _checked(grammar: str) -> str:
    from pyggml._core.grammar_check import check_grammar

    check_grammar(grammar)
    return grammar


def _is(one: str, name: str, value: str, other: str) -> bool:
    return choice(name, value, (other, one)) == one


def _on_one_line(text: str) -> str:
    """Replace line ends, which JSON has between values only."""
    return re.sub(r"[\r\n]+", " ", text.strip())


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02X}", escaped) + '"'


def _end_of_json(text: str, at: int) -> int:
    """Index after the JSON value that starts at ``at``."""
    depth = 0
    for found in _JSON_PARTS.finditer(text, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found[0], 0)
        if depth <= 0:
            return found.end()
    return len(text)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not valid JSON")

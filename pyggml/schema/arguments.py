"""A grammar for each argument of a call, for chat templates that write every argument in separate tags."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyggml.errors import GrammarError
from pyggml.schema.grammar import grammar_of, parsed

_WAY = "not supported where arguments are written one by one"
# Keywords that hold if a call contains only named members and all required ones.
_SUPPORTED = frozenset({"type", "properties", "required", "additionalProperties", "minProperties", "maxProperties"})
_FOLLOWED = frozenset({"$ref", "allOf"})
_ALTERNATIVES = ("anyOf", "oneOf")
_DEFINITIONS = ("$defs", "definitions")
# Keywords that do not restrict values.
_ANNOTATIONS = frozenset(
    [
        *("$anchor", "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description"),
        *("example", "examples", "id", "readOnly", "title", "writeOnly"),
    ]
)
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_MOST_REFERENCES = 100  # in a chain


@dataclass(frozen=True)
class Argument:
    """An argument of a tool call.

    Attributes:
        name: the argument's name.
        required: True if every call has it.
        text_types: its types, if strings are among them and each type is unrestricted; otherwise empty.
        grammar: GBNF for its values as JSON, with a rule ``root``.
    """

    name: str
    required: bool
    text_types: tuple[str, ...]
    grammar: str


@functools.lru_cache(maxsize=64)
def arguments_of(schema: str) -> tuple[Argument, ...]:
    """Return the arguments that the schema of an object, JSON text, describes.

    Raises:
        GrammarError: the schema has constraints that the engine cannot follow, or that cannot be checked for each
            argument alone; the message has a JSON pointer.
    """
    root = parsed(schema)
    parts = list(_parts(root, root, _MOST_REFERENCES))
    required = _required(parts)
    members = _members(parts, required)
    _require_supported(parts, len(members), len(required))
    return tuple(_argument(root, name, each, name in required) for name, each in members.items())


def _argument(root: Any, name: str, schemas: list[Any], required: bool) -> Argument:
    schema = schemas[0] if len(schemas) == 1 else {"allOf": schemas}
    try:
        grammar = grammar_of(_whole(root, schema))
    except GrammarError as error:
        raise GrammarError(f"#/properties/{name}{str(error).removeprefix('#')}") from None
    return Argument(name, required, _text_types(root, schema), grammar)


def _parts(root: Any, schema: Any, n_left: int) -> Iterator[dict[str, Any]]:
    """The schemas of objects that a value must match together: a schema, without its references and ``allOf``."""
    if not isinstance(schema, dict):
        raise GrammarError("#: the schema of arguments must be an object")
    if n_left == 0:
        raise GrammarError("#: the schema refers to itself without an end")
    for keyword in _ALTERNATIVES:
        if keyword in schema:
            raise GrammarError(f"#/{keyword}: alternatives are {_WAY}")
    if "$ref" in schema:
        yield from _parts(root, _referenced(root, schema["$ref"]), n_left - 1)
    for each in schema.get("allOf", ()):
        yield from _parts(root, each, n_left - 1)
    own = {key: value for key, value in schema.items() if not _is_annotation(key) and key not in _FOLLOWED}
    if own:
        yield own


def _required(parts: list[dict[str, Any]]) -> set[str]:
    return {name for part in parts for name in _list(part, "required")}


def _members(parts: list[dict[str, Any]], required: set[str]) -> dict[str, list[Any]]:
    """Name -> the schemas that its value must match; without those that must be absent."""
    names = dict.fromkeys(name for part in parts for name in _mapping(part, "properties"))
    members: dict[str, list[Any]] = {}
    for name in names:
        schemas = [_mapping(part, "properties").get(name, part.get("additionalProperties", True)) for part in parts]
        members[name] = [each for each in schemas if each is not True] or [True]
        if False in members[name] and name not in required:
            del members[name]
    missing = sorted(required - names.keys())
    if missing:
        raise GrammarError(f"#/required: {json.dumps(missing[0])} is not among the properties")
    return members


def _require_supported(parts: list[dict[str, Any]], n_members: int, n_required: int) -> None:
    for part in parts:
        lost = sorted(part.keys() - _SUPPORTED)
        lost += ["minProperties"] if part.get("minProperties", 0) > n_required else []
        lost += ["maxProperties"] if part.get("maxProperties", n_members) < n_members else []
        lost += [] if "object" in _list_or_one(part.get("type", "object")) else ["type"]
        if lost:
            raise GrammarError(f"#/{lost[0]}: {_WAY}")


def _text_types(root: Any, schema: Any, n_left: int = _MOST_REFERENCES) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(_plain_types(root, schema, n_left)))
    # Text such as 1.5 is read as a number, so an integer could not be enforced.
    is_text = "string" in types and "" not in types and ("integer" not in types or "number" in types)
    return tuple(name for name in types if not (name == "integer" and "number" in types)) if is_text else ()


def _plain_types(root: Any, schema: Any, n_left: int) -> Iterator[str]:
    """The types of a schema that restricts nothing else; with "" if it does."""
    own = {key: value for key, value in schema.items() if not _is_annotation(key)} if isinstance(schema, dict) else {}
    if own.keys() == {"type"}:
        yield from _list_or_one(own["type"])
    elif own.keys() == {"anyOf"} and isinstance(own["anyOf"], list) and n_left:
        for each in own["anyOf"]:
            yield from _plain_types(root, each, n_left - 1)
    elif own.keys() == {"$ref"} and n_left:
        yield from _plain_types(root, _referenced(root, own["$ref"]), n_left - 1)
    else:
        yield ""


def _whole(root: Any, schema: Any) -> Any:
    """A schema as a document of its own, in which the references of ``root`` are the same."""
    if not isinstance(schema, dict) or not _references(schema):
        return _with_draft(root, schema)
    definitions = {name: root[name] for name in _DEFINITIONS if name in root}
    inside = tuple(f"#/{name}/" for name in definitions)
    if all(reference.startswith(inside) for reference in _references([schema, definitions])):
        return _with_draft(root, {**definitions, **schema})
    identity = root.get("$id", "urn:pyggml:arguments")
    return _with_draft(root, {"allOf": [_absolute(schema, identity)], "$defs": {"root": {"$id": identity, **root}}})


def _with_draft(root: Any, schema: Any) -> Any:
    return {"$schema": root["$schema"], **schema} if isinstance(schema, dict) and "$schema" in root else schema


def _references(value: Any) -> list[str]:
    """All references in a schema."""
    if isinstance(value, list):
        return [found for each in value for found in _references(each)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return [*own, *(found for each in value.values() for found in _references(each))]


def _absolute(value: Any, identity: str) -> Any:
    """A schema whose references to its own document name the document."""
    if isinstance(value, list):
        return [_absolute(each, identity) for each in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    is_local = isinstance(reference, str) and reference.startswith("#")
    changed = {key: _absolute(each, identity) for key, each in value.items()}
    return {**changed, "$ref": f"{identity}{reference}"} if is_local else changed


def _referenced(root: Any, reference: Any) -> Any:
    """The schema that a reference to its own document, a JSON pointer (RFC 6901), names."""
    found = root
    try:
        if not reference.startswith("#"):
            raise KeyError(reference)
        for part in reference[1:].split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found[name]
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        raise GrammarError(f"#/$ref: there is no schema at {json.dumps(reference)[:100]}") from None
    return found


def _mapping(part: dict[str, Any], keyword: str) -> dict[str, Any]:
    found = part.get(keyword, {})
    if not isinstance(found, dict):
        raise GrammarError(f"#/{keyword}: must be an object")
    return found


def _list(part: dict[str, Any], keyword: str) -> list[str]:
    found = part.get(keyword, [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise GrammarError(f"#/{keyword}: must be a list of names")
    return found


def _list_or_one(types: Any) -> list[Any]:
    """The names of types, with "" for anything else."""
    return [name if name in _TYPES else "" for name in (types if isinstance(types, list) else [types])]


def _is_annotation(keyword: str) -> bool:
    return keyword in _ANNOTATIONS or keyword.startswith("x-")

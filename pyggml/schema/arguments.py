"""A grammar for each argument of a call, for chat templates that write every argument in separate tags."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from pyggml.errors import GrammarError
from pyggml.schema import _keywords
from pyggml.schema._flattening import Document
from pyggml.schema._schema_converter import Converter
from pyggml.schema.grammar import parsed

# Keywords that hold if a call contains only named members and all required ones.
_SUPPORTED = frozenset({"type", "properties", "required", "additionalProperties", "minProperties", "maxProperties"})


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
        GrammarError: the schema has constraints that a grammar cannot express, or that cannot be checked for each
            argument alone; the message has a JSON pointer.
    """
    root = parsed(schema)
    document = Document(root)
    flat = document.flattened(root, "#")
    if len(flat) != 1:
        raise GrammarError("#: alternatives are not supported where arguments are written one by one")
    members, required, _ = _keywords.members_of(flat[0], "#")
    _require_supported(flat[0], len(members), len(required))
    return tuple(
        Argument(name, name in required, _text_types(document, each, place), Converter(root).grammar(each, place))
        for name, (each, place) in members.items()
        if each is not False or name in required
    )


def _require_supported(schema: dict[str, Any], n_members: int, n_required: int) -> None:
    lost = sorted(schema.keys() - _SUPPORTED)
    lost += ["minProperties"] if schema.get("minProperties", 0) > n_required else []
    lost += ["maxProperties"] if schema.get("maxProperties", n_members) < n_members else []
    if lost:
        raise GrammarError(f"#/{lost[0]}: not supported where arguments are written one by one")


def _text_types(document: Document, schema: Any, place: str) -> tuple[str, ...]:
    alternatives = document.flattened(schema, place)
    if any(each.keys() != {"type"} for each in alternatives):
        return ()
    types = tuple(dict.fromkeys(name for each in alternatives for name in _keywords.types_of(each, place)))
    # Text such as 1.5 is read as a number, so an integer could not be enforced.
    return types if "string" in types and "integer" not in types else ()

"""The arguments of a call as grammars, one by one, for chat templates that write each between tags of its own."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from pyggml.errors import GrammarError
from pyggml.schema import _merge
from pyggml.schema._rules import Converter
from pyggml.schema.grammar import parsed

# What is kept by writing only members that are named, and all those required.
_KEPT = frozenset({"type", "properties", "required", "additionalProperties", "minProperties", "maxProperties"})


@dataclass(frozen=True)
class Argument:
    """One argument.

    Attributes:
        name: its key in the object of all.
        required: whether each call has it.
        text_types: the types of its values, where any string is one, and any value of each type; else empty.
        grammar: GBNF of its values as JSON, with a rule ``root``.
    """

    name: str
    required: bool
    text_types: tuple[str, ...]
    grammar: str


@functools.lru_cache(maxsize=64)
def arguments_of(schema: str) -> tuple[Argument, ...]:
    """The arguments that an object's schema asks for.

    Args:
        schema: JSON text.

    Raises:
        GrammarError: the schema asks for what a grammar cannot express, or for more than can be said argument by
            argument; with the place, as a JSON pointer.
    """
    root = parsed(schema)
    document = _merge.Document(root)
    flat = document.flattened(root, "#")
    if len(flat) != 1:
        raise GrammarError("#: alternatives cannot be kept where arguments are written one by one")
    members, required, _ = _merge.members_of(flat[0], "#")
    _require_kept(flat[0], len(members), len(required))
    return tuple(
        Argument(
            name,
            name in required,
            _text_types(document, each, place),
            Converter(root).grammar(each, place),
        )
        for name, (each, place) in members.items()
        if each is not False or name in required
    )


def _require_kept(schema: dict[str, Any], n_members: int, n_required: int) -> None:
    lost = sorted(schema.keys() - _KEPT)
    lost += ["minProperties"] if schema.get("minProperties", 0) > n_required else []
    lost += ["maxProperties"] if schema.get("maxProperties", n_members) < n_members else []
    if lost:
        raise GrammarError(f"#/{lost[0]}: cannot be kept where arguments are written one by one")


def _text_types(document: _merge.Document, schema: Any, place: str) -> tuple[str, ...]:
    alternatives = document.flattened(schema, place)
    if any(each.keys() != {"type"} for each in alternatives):
        return ()
    types = tuple(dict.fromkeys(name for each in alternatives for name in _merge.types_of(each, place)))
    # Text such as 1.5 is read as a number, so whole numbers would have to be told from others.
    return types if "string" in types and "integer" not in types else ()

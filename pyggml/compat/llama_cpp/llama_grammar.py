"""Grammars that an output must match, in GBNF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyggml

_LIST = r"""root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"""
# The names that programs use, and the schema of each.
_OF_SCHEMAS: Mapping[str, object] = {"JSON_GBNF": {"type": "object"}, "JSON_ARR_GBNF": {"type": "array"}}

LIST_GBNF = _LIST


class LlamaGrammar:
    """A grammar for ``grammar=``, with the start rule ``root``.

    Raises:
        GrammarError: it is not GBNF; raised by the request that uses it.
    """

    def __init__(self, *args: object, _grammar: str, **kwargs: object) -> None:  # noqa: ARG002
        """Keep the text.

        Args:
            *args: ignored, as in llama-cpp-python.
            _grammar: the grammar, in GBNF.
            **kwargs: ignored, as in llama-cpp-python.
        """
        self._grammar = _grammar
        self._root = "root"

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:  # noqa: ARG003
        """Return a grammar from its text.

        Args:
            grammar: the grammar, in GBNF.
            verbose: has no effect.
        """
        return cls(_grammar=grammar)

    @classmethod
    def from_file(cls, file: str | Path, verbose: bool = True) -> LlamaGrammar:
        """Return a grammar from a file.

        Args:
            file: the file.
            verbose: has no effect.

        Raises:
            OSError: the file cannot be read.
            InvalidParameterError: it is empty.
        """
        text = Path(file).read_text(encoding="utf-8")
        if not text:
            raise pyggml.InvalidParameterError(f"the grammar file {file} is empty")
        return cls.from_string(text, verbose)

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """Return the grammar of all JSON texts that match a schema.

        Args:
            json_schema: the schema, as JSON text.
            verbose: has no effect.

        Raises:
            GrammarError: a grammar cannot express the schema; the message names the keyword.
        """
        return cls.from_string(json_schema_to_gbnf(json_schema), verbose)

    def __repr__(self) -> str:
        return f"LlamaGrammar({self._grammar!r})"


def json_schema_to_gbnf(schema: str, prop_order: list[str] | None = None) -> str:
    """Convert a JSON schema to GBNF.

    Args:
        schema: the schema, as JSON text.
        prop_order: must be None: members come in the schema's order.

    Raises:
        GrammarError: a grammar cannot express the schema.
    """
    if prop_order is not None:
        raise pyggml.InvalidParameterError(
            "prop_order is not supported: list the properties in the order that you want"
        )
    return pyggml.grammar_of(schema)


def __getattr__(name: str) -> Any:
    """Make the grammars of JSON on first use, since few programs need them."""
    if name in _OF_SCHEMAS:
        return pyggml.grammar_of(_OF_SCHEMAS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

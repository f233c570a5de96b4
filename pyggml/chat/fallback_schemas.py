"""Fallback schemas: constants in place of JSON schemas, so that :mod:`pyggml.schema` compiles all of them.

The format of tool calls, and of answers that follow a schema, depends on the template, and the engine's chat code
builds the grammar for it. But its schema converter silently drops keywords that it does not know. So it gets constants
instead of schemas, and each constant in the resulting grammar is replaced by rules from :mod:`pyggml.schema`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyggml.errors import GrammarError
from pyggml.schema.arguments import Argument, arguments_of
from pyggml.schema.grammar import as_text, grammar_of, with_prefix

Schema = dict[str, Any]

_MARK = "pyggml-schema-"

# A sequence of calls in some formats of the engine's chat code. Since each call is optional, the sequence could repeat
# the empty string forever, which the engine's own grammar parser refuses as left recursion.
_CALLS_OR_NOTHING, _CALLS = "? space)+", " space)+"


class FallbackSchemas:
    """The fallback schemas of one prompt.

    Some have other keywords for templates that look for them; the engine's chat code uses only the constant.
    """

    def __init__(self) -> None:
        self._literals: dict[str, Callable[[], str]] = {}  # constant in the grammar -> the rules that replace it

    def for_response(self, schema: Mapping[str, Any] | str, options: Mapping[str, Any]) -> Schema:
        """Replace the schema of an answer; ``options`` are those of :func:`pyggml.grammar_of`."""
        return self._constant(lambda: grammar_of(schema, **options))

    def for_content(self, grammar: str) -> Schema:
        """Return a schema in place of an answer's grammar, which need not match JSON."""
        return self._constant(lambda: grammar)

    def for_tool(self, tool: Mapping[str, Any], *, separate_arguments: bool) -> dict[str, Any]:
        """Replace the schema of a tool's parameters; the tool is in OpenAI's format.

        With ``separate_arguments``, the template writes each argument separately, not all of them as one JSON object.

        Raises:
            GrammarError: the schema has constraints that cannot be kept argument by argument.
        """
        function = tool.get("function")
        if not isinstance(function, Mapping):
            return dict(tool)  # the engine refuses it
        what, schema = f"the parameters of the tool {function.get('name')}", as_text(_parameters(function))
        if separate_arguments:
            parameters = self._members(_naming_tool(what, lambda: arguments_of(schema)))
        else:
            constant = self._constant(lambda: _naming_tool(what, lambda: grammar_of(schema)))
            parameters = {"type": "object", "properties": {}, **constant}
        return {**tool, "function": {**function, "parameters": parameters}}

    def appear_in(self, prompt: str) -> bool:
        """Return True if a prompt shows a fallback schema where the model should see the real one."""
        return _MARK in prompt

    def expand(self, grammar: str) -> str:
        """Replace the constants in a grammar from the engine by the rules of their schemas.

        Raises:
            GrammarError: a schema has constraints that a grammar cannot express; gives the place as a JSON pointer.
        """
        rules = [grammar.replace(_CALLS_OR_NOTHING, _CALLS)]
        for i, (literal, compiled) in enumerate(self._literals.items()):
            if literal not in grammar:
                raise GrammarError("the chat template's format does not support a JSON schema: use another template")
            prefix = f"{_MARK}{i}-"
            rules[0] = rules[0].replace(literal, f"{prefix}root")
            rules.append(with_prefix(compiled(), prefix))
        return "".join(rules)

    def _members(self, arguments: tuple[Argument, ...]) -> Schema:
        return {
            "type": "object",
            "properties": {argument.name: self._member(argument) for argument in arguments},
            "required": [argument.name for argument in arguments if argument.required],
        }

    def _member(self, argument: Argument) -> Schema:
        """Text stays a string type, written without quotes as models were trained to; other values are JSON."""
        if argument.text_types:
            return {"type": argument.text_types[0] if len(argument.text_types) == 1 else list(argument.text_types)}
        return {"type": "integer", **self._constant(lambda: argument.grammar)}

    def _constant(self, compiled: Callable[[], str]) -> Schema:
        # A list, because a string would be treated as text without quotes.
        value = [f"{_MARK}{len(self._literals)}"]
        self._literals[_gbnf_literal(json.dumps(value))] = compiled
        return {"const": value}


def _parameters(function: Mapping[str, Any]) -> Any:
    """The schema of a tool's arguments; a tool without parameters takes no arguments."""
    return function.get("parameters") or {"type": "object", "properties": {}}


def _gbnf_literal(text: str) -> str:
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def _naming_tool(what: str, compile_schema: Callable[[], Any]) -> Any:
    try:
        return compile_schema()
    except GrammarError as error:
        raise GrammarError(
            f"{what}: {error}; remove it from the schema (you can state it in a description and check the arguments)"
        ) from None

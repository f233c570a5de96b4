"""One compiler for all JSON schemas: the engine's chat code gets a stand-in for each.

How an answer that follows a schema looks, and how tools are called, depends on the template, and the engine's chat code
makes a grammar of it. Its own converter of schemas silently drops what it does not know. So it is given constants in
place of schemas, and in the grammar that comes back the rules of :mod:`pyggml.schema` take the place of each constant.
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

# Calls that follow each other, as the engine's chat code has them in some formats. Each may be missing, so that nothing
# follows nothing for ever, and then the engine's own grammars refuse it as left recursion.
_CALLS_OR_NOTHING, _CALLS = "? space)+", " space)+"


class StandIns:
    """The stand-ins of one prompt.

    Some have keywords beside the constant: templates look for them, and the engine's chat code prefers the constant.
    """

    def __init__(self) -> None:
        self._literals: dict[str, Callable[[], str]] = {}  # as it is in a grammar -> what to put there

    def for_answer(self, schema: Mapping[str, Any] | str) -> Schema:
        """A stand-in for the schema of an answer."""
        return self._constant(lambda: grammar_of(schema))

    def for_tool(self, tool: Mapping[str, Any], *, one_by_one: bool) -> dict[str, Any]:
        """A tool whose parameters are stand-ins.

        Args:
            tool: in OpenAI's form.
            one_by_one: the template writes each argument by itself, not all of them as one JSON object.

        Raises:
            GrammarError: the schema asks for more than can be said argument by argument.
        """
        function = tool.get("function")
        if not isinstance(function, Mapping):
            return dict(tool)  # which the engine refuses
        what, schema = f"the parameters of the tool {function.get('name')}", as_text(_parameters(function))
        if one_by_one:
            parameters = self._members(_explained(what, lambda: arguments_of(schema)))
        else:
            constant = self._constant(lambda: _explained(what, lambda: grammar_of(schema)))
            parameters = {"type": "object", "properties": {}, **constant}
        return {**tool, "function": {**function, "parameters": parameters}}

    def shown_in(self, prompt: str) -> bool:
        """Whether a prompt has any in it, where the model should see a schema."""
        return _MARK in prompt

    def replaced_in(self, grammar: str) -> str:
        """A grammar of the engine's making with the schemas where their stand-ins are.

        Raises:
            GrammarError: a schema asks for what a grammar cannot express; with the place, as a JSON pointer.
        """
        rules = [grammar.replace(_CALLS_OR_NOTHING, _CALLS)]
        for i, (literal, compiled) in enumerate(self._literals.items()):
            if literal not in grammar:
                raise GrammarError("the chat template has no place for a JSON schema in its format: use another one")
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
        """What may be any text is written without quotes, as models were trained to; the rest is JSON."""
        if argument.text_types:
            return {"type": argument.text_types[0] if len(argument.text_types) == 1 else list(argument.text_types)}
        return {"type": "integer", **self._constant(lambda: argument.grammar)}

    def _constant(self, compiled: Callable[[], str]) -> Schema:
        # A list, for it not to be taken for text that goes without quotes.
        value = [f"{_MARK}{len(self._literals)}"]
        self._literals[_gbnf_literal(json.dumps(value))] = compiled
        return {"const": value}


def _parameters(function: Mapping[str, Any]) -> Any:
    """The schema of a tool's arguments; one that names none takes none."""
    schema = function.get("parameters") or {"properties": {}}
    if isinstance(schema, Mapping) and schema.get("properties") == {} and "additionalProperties" not in schema:
        return {**schema, "type": "object", "additionalProperties": False}
    return schema


def _gbnf_literal(text: str) -> str:
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def _explained(what: str, compile_schema: Callable[[], Any]) -> Any:
    try:
        return compile_schema()
    except GrammarError as error:
        raise GrammarError(
            f"{what}: {error}; take that out of the schema (you can say it in a description, and check what comes)"
        ) from None

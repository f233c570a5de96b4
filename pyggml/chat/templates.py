"""Chat templates, which render messages as prompts with the engine's chat code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyggml._core import c_calls
from pyggml._core.checks import c_string, flag, items, shown
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import ClosableOwner
from pyggml._native.model import Model
from pyggml.chat import generic_tools
from pyggml.chat.end_of_turn import turn_end_texts
from pyggml.chat.fallback_schemas import FallbackSchemas
from pyggml.chat.prompts import ChatPrompt, decoded, json_from
from pyggml.chat.template_selection import additional_names, missing_template_advice, template_text
from pyggml.chat.types import ChatAbilities, ChatMessage
from pyggml.errors import InvalidParameterError
from pyggml.schema.grammar import as_text, parsed

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

Message = Mapping[str, Any] | ChatMessage

_TOOL_CHOICES = ("auto", "none", "required")
# The variable that templates read to show the model the schema of its answer.
_SHOWN_SCHEMA = "response_format"
# White space and fences around JSON in grammars of the engine's chat code.
_FENCED_OR_SPACED = re.compile(
    r'(?:space )*\("```json" space response-format space "```" \| space response-format space\)'
    r"|(?:space )+response-format(?: space)?"
)
# The defaults of a request.
_PLAIN: dict[str, Any] = {
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "add_generation_prompt": False,
    "continue_final_message": False,
    "enable_thinking": True,
    "reasoning_format": "auto",
}


class ChatTemplates(ClosableOwner):
    """A model's chat template, parsed and analysed once.

    Any thread may use it. It keeps its model alive. Close it, or use it as a context manager.

    Attributes:
        names: names of the model's additional templates, such as "tool_use".
        source: the Jinja text of the template in use.
        supports: what the template supports.
    """

    _instead_of_a_copy = "share this one between threads; another process makes its own"

    def __init__(self, model: Model, template: str | os.PathLike[str] | None = None) -> None:
        """Parse a template.

        Args:
            model: the model to render for.
            template: Jinja text; a file with it; the name of one of the model's additional templates, or of a built-in
                one, such as "chatml" (:data:`~pyggml.chat.builtin_templates.BUILT_IN`). None: the model's own, and for
                prompts with tools its template "tool_use", if it has one.

        Raises:
            InvalidParameterError: there is no such template, or it cannot be parsed.
            ClosedError: the model was closed.
        """
        if not isinstance(model, Model):
            raise InvalidParameterError(f"a Model was expected, not {shown(model)}")
        self.names = additional_names(model)
        if template is None and model.chat_template() is None and model.chat_template("tool_use") is None:
            raise InvalidParameterError(f"{model.path} has no chat template: {missing_template_advice(model)}")
        text = ffi.NULL if template is None else c_string("the chat template", template_text(model, template))
        self._handle = c_calls.create(
            "pyg_chat_templates", lib.pyg_chat_templates_free, lib.pyg_chat_templates_new, model._handle, text
        )
        info = json_from(lib.pyg_chat_templates_info, self._handle)
        self.source: str = info["source"]
        self._arguments: str = info["arguments"]
        self.supports = _abilities(info["abilities"])
        is_own = template is None or template in self.names
        self._turn_ends = () if is_own else turn_end_texts(self._render_turns, model)

    def shared(self) -> ChatTemplates:
        """Share the parsed template with another owner: closing one leaves the other open.

        Raises:
            ClosedError: the templates were closed.
        """
        other = object.__new__(ChatTemplates)
        vars(other).update(vars(self))
        other._handle = c_calls.create(
            "pyg_chat_templates", lib.pyg_chat_templates_free, lib.pyg_chat_templates_share, self._handle
        )
        return other

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = False,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        thinking: bool | None = None,
        split_reasoning: bool = True,
        json_schema: Mapping[str, Any] | str | None = None,
        grammar: str | None = None,
        content_grammar: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """Render a conversation in the format that the model was trained on.

        Args:
            messages: ChatMessages, or mappings with "role" and "content" as in OpenAI's API.
            tools: each ``{"type": "function", "function": {"name", "description", "parameters": JSON schema}}``.
            tool_choice: "auto", "none", "required", or one tool, by name or as
                ``{"type": "function", "function": {"name": ...}}``.
            parallel_tool_calls: allow several calls in one answer.
            add_generation_prompt: end with the start of the assistant's turn.
            continue_final_message: let the answer continue the last message instead of starting a new turn.
            thinking: False: the template should keep the model from reasoning. None: the value of ``enable_thinking``
                in ``template_kwargs``, or True.
            split_reasoning: separate reasoning from content; False leaves it in the content, with its tags.
            json_schema: JSON schema that the content must match.
            grammar: GBNF grammar that the whole answer must match, including reasoning.
            content_grammar: GBNF grammar that the content must match.
            template_kwargs: additional variables for the template; JSON values.

        Raises:
            InvalidParameterError: messages or tools are malformed, an argument is invalid, or the template rejects
                them.
            GrammarError: a tool's schema has constraints that this template's format for calls cannot keep. Constraints
                that no grammar can express raise when the prompt's ``grammar`` is read.
            ClosedError: the templates were closed.
        """
        variables = {} if template_kwargs is None else _mapping("template_kwargs", template_kwargs)
        if thinking is None:
            thinking = variables.pop("enable_thinking", True)
        selection = _select_tools(tools, tool_choice)
        form = next((each for each in (json_schema, grammar, content_grammar) if each is not None), None)
        if selection.tools and selection.choice != "none" and form is not None:
            raise InvalidParameterError(
                "tools cannot be combined with a json_schema, grammar, choices or regex for the answer: give only one "
                "of them, or tool_choice='none'"
            )
        request: dict[str, Any] = {
            **_PLAIN,
            "messages": [
                message.to_dict() if isinstance(message, ChatMessage) else _mapping("a message", message)
                for message in items("messages", messages)
            ],
            "tools": selection.tools,
            "parallel_tool_calls": flag("parallel_tool_calls", parallel_tool_calls),
            "add_generation_prompt": flag("add_generation_prompt", add_generation_prompt),
            "continue_final_message": flag("continue_final_message", continue_final_message),
            "enable_thinking": flag("thinking", thinking),
            "reasoning_format": "auto" if flag("split_reasoning", split_reasoning) else "none",
            "grammar": grammar,
            "template_kwargs": variables,
        }
        if selection.tools and selection.choice != "none":
            return self._with_calls(request, selection)
        if json_schema is not None:
            return self._with_schema(request, json_schema)
        return self._render(request) if content_grammar is None else self._with_content(request, content_grammar)

    def _with_content(self, request: dict[str, Any], grammar: str) -> ChatPrompt:
        """Render a prompt whose answer must match a grammar, after any reasoning. Its parser expects any content."""
        fallbacks, prompt = FallbackSchemas(), self._render(request)
        fields = {**request, "json_schema": json.dumps(fallbacks.for_content(grammar))}
        formatted = self._render(fields, fallbacks)
        bare = _FENCED_OR_SPACED.sub("response-format", formatted._grammar or "")
        prefix = formatted.grammar_prefix
        start = f"root ::= {json.dumps(prefix, ensure_ascii=False)} " if prefix else "root ::= "
        bare = bare.replace(f"{start}space ", start)
        return replace(formatted, text=prompt.text, _format=prompt._format, _grammar=bare or None)

    def _with_schema(self, request: dict[str, Any], schema: Mapping[str, Any] | str) -> ChatPrompt:
        """Render a prompt whose answer must match a schema."""
        fallbacks = FallbackSchemas()
        prompt = self._render({**request, "json_schema": json.dumps(fallbacks.for_response(schema))}, fallbacks)
        if not fallbacks.appear_in(prompt.text):
            return prompt
        variables = {**request["template_kwargs"], _SHOWN_SCHEMA: parsed(as_text(schema))}
        return replace(prompt, text=self._render({**request, "template_kwargs": variables}).text)

    def _with_calls(self, request: dict[str, Any], selection: _ToolSelection) -> ChatPrompt:
        """Render a prompt whose answer may, or must, call tools."""
        fallbacks = FallbackSchemas()
        separate = self._arguments == "one by one"
        callable_tools = [selection.only] if selection.only else selection.tools
        given = [fallbacks.for_tool(tool, separate_arguments=separate) for tool in callable_tools]
        if self.supports.tools:
            prompt = self._render({**request, "tools": given, "tool_choice": selection.choice}, fallbacks)
            return replace(prompt, text=self._render(request).text)
        messages = generic_tools.with_tools(
            request["messages"],
            selection.tools,
            required=selection.choice == "required",
            parallel=request["parallel_tool_calls"],
        )
        return self._render(
            {**request, "messages": messages, "tools": [], "tool_choice": selection.choice, "generic_tools": given},
            fallbacks,
        )

    def _render(self, request: dict[str, Any], fallbacks: FallbackSchemas | None = None) -> ChatPrompt:
        prompt, parser = self._rendered(request)
        return ChatPrompt(
            text=prompt["text"],
            grammar_lazy=prompt["grammar_lazy"],
            grammar_prefix=prompt["grammar_prefix"],
            trigger_patterns=tuple(prompt["triggers"]["patterns"]),
            trigger_tokens=tuple(prompt["triggers"]["token_ids"]),
            preserved_tokens=(*prompt["preserved_tokens"], *self._turn_ends),
            stop=(*prompt["stop"], *self._turn_ends),
            thinking_start=prompt["thinking_start"],
            thinking_ends=tuple(prompt["thinking_ends"]),
            _grammar=prompt["grammar"] or None,
            _fallback_schemas=fallbacks or FallbackSchemas(),
            _format=parser,
        )

    def _rendered(self, request: dict[str, Any]) -> tuple[dict[str, Any], CData]:
        """Return the prompt in the native code's JSON format, and a parser for answers to it."""
        out = ffi.new("char **")
        try:
            parser = c_calls.create(
                "pyg_chat_parser",
                lib.pyg_chat_parser_free,
                lib.pyg_chat_templates_render,
                self._handle,
                _json("the conversation", request),
                out,
            )
            prompt = json.loads(decoded(ffi.string(out[0])))
        finally:
            lib.pyg_string_free(out[0])
        if "\0" in prompt["text"]:
            raise InvalidParameterError(
                "the rendered chat contains a NUL character: remove it from the messages or tools"
            )
        return prompt, parser

    def _render_turns(self, messages: list[dict[str, Any]]) -> str:
        """Render messages without the beginning of an answer."""
        return str(self._rendered({**_PLAIN, "messages": messages})[0]["text"])

    def close(self) -> None:
        """Free the template. Prompts already rendered stay usable. Safe to call again."""
        c_calls.call(lib.pyg_chat_templates_close, self._handle)


def templates_or_none(model: Model, wanted: str | os.PathLike[str] | None) -> ChatTemplates | None:
    """Return the wanted template, or the model's; None if that is missing or invalid, an error only in chats."""
    if wanted is not None:
        return ChatTemplates(model, wanted)
    try:
        return ChatTemplates(model)
    except InvalidParameterError:
        return None


def _abilities(native: Mapping[str, bool]) -> ChatAbilities:
    return ChatAbilities(
        system=native["supports_system_role"],
        # A template that resembles a family's may have its format for calls, but not render any.
        tools=native["supports_tool_format"] and (native["supports_tools"] or native["supports_tool_calls"]),
        parallel_tool_calls=native["supports_parallel_tool_calls"],
        thinking=native["supports_thinking"],
        keeps_reasoning=native["supports_preserve_reasoning"],
        reasoning_effort=native["supports_reasoning_effort"],
    )


def _mapping(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidParameterError(f"{name} must be a mapping, not {type(value).__name__}")
    return dict(value)


@dataclass(frozen=True)
class _ToolSelection:
    """The tools to show in the prompt, the choice ("auto", "none", "required"), and the only tool to call, if any."""

    tools: list[dict[str, Any]]
    choice: str
    only: dict[str, Any] | None = None


def _select_tools(tools: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any]) -> _ToolSelection:
    given = [_mapping("a tool", tool) for tool in (() if tools is None else items("tools", tools))]
    name = _function_name(choice) if isinstance(choice, Mapping) else choice
    if isinstance(choice, str) and choice in _TOOL_CHOICES:
        if name == "required" and not given:
            raise InvalidParameterError("tool_choice is 'required', but no tools were given")
        return _ToolSelection(given, choice)
    only = [tool for tool in given if isinstance(name, str) and _function_name(tool) == name]
    if not only:
        names = ", ".join(repr(_function_name(tool)) for tool in given) or "none"
        raise InvalidParameterError(
            f"tool_choice must be 'auto', 'none', 'required' or the name of a tool ({names}), not {shown(choice)}"
        )
    return _ToolSelection(given, "required", only[0])


def _function_name(tool: Mapping[str, Any]) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, Mapping) else None


def _json(name: str, value: object) -> bytes:
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"{name} must consist of JSON values: {error}") from None

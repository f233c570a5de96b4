"""Chat templates: prompts rendered as transformers does, and the engine's parsers and grammars for answers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyggml._core import c_calls
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import c_string, flag, shown
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import ClosableOwner
from pyggml._native.model import Model
from pyggml._native.sampler import Sampler
from pyggml.chat import generic_tools
from pyggml.chat.answer_format import AnswerFormats
from pyggml.chat.call_format import TOOL, call_format, needed_part, reads_call, rendered_calls
from pyggml.chat.calls_or_answer import with_format
from pyggml.chat.end_of_turn import turn_end_texts
from pyggml.chat.fallback_schemas import FallbackSchemas
from pyggml.chat.jinja.quoted_text import QuotedText, concatenated
from pyggml.chat.messages import JSONMessage, checked_messages, with_parsed_arguments
from pyggml.chat.prompts import ChatPrompt, json_from
from pyggml.chat.rendering import PromptRenderer
from pyggml.chat.template_selection import additional_names, missing_template_advice, template_text
from pyggml.chat.tool_selection import ToolSelection, mapping, selected_tools
from pyggml.chat.types import ChatAbilities, ChatMessage
from pyggml.errors import InvalidParameterError
from pyggml.schema.grammar import as_text, grammar_of, parsed

Message = Mapping[str, Any] | ChatMessage

# The variable that templates read to show the model the schema of its answer.
_SHOWN_SCHEMA = "response_format"
# White space and fences around JSON in grammars of the engine's chat code.
_FENCED_OR_SPACED = re.compile(
    r'(?:space )*\("```json" space response-format space "```" \| space response-format space\)'
    r'|(?:space )?"```json" (?:space )?(response-format(?:-schema)?) (?:space )?"```"'
    r"|(?:space )+response-format(?: space)?"
)


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
                one, such as "chatml" (``pyggml.chat.builtin_templates.BUILT_IN``). None: the model's own, and for
                prompts with tools its template "tool_use", if it has one.

        Raises:
            InvalidParameterError: there is no such template, or it cannot be parsed.
            ClosedError: the model was closed.
        """
        if not isinstance(model, Model):
            raise InvalidParameterError(f"a Model was expected, not {shown(model)}")
        self.names, self._model = additional_names(model), model
        if template is None and model.chat_template() is None and model.chat_template("tool_use") is None:
            raise InvalidParameterError(f"{model.path} has no chat template: {missing_template_advice(model)}")
        text = None if template is None else template_text(model, template)
        self._handle = c_calls.create(
            "pyg_chat_templates",
            lib.pyg_chat_templates_free,
            lib.pyg_chat_templates_new,
            model._handle,
            ffi.NULL if text is None else c_string("the chat template", text),
        )
        info = json_from(lib.pyg_chat_templates_info, self._handle)
        self.source: str = info["source"]
        self._arguments: str = info["arguments"]
        self.supports = _abilities(info["abilities"])
        self._answers = AnswerFormats(self._handle)
        self._plain = PromptRenderer(
            text or model.chat_template() or model.chat_template("tool_use") or "", model.vocab
        )
        for_tools = model.chat_template("tool_use") if text is None else None
        self._with_tools = PromptRenderer(for_tools, model.vocab) if for_tools else self._plain
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
        other._answers = AnswerFormats(other._handle)
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
            thinking: whether the template should let the model reason. None: the value of ``enable_thinking`` in
                ``template_kwargs``, or the template's default.
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
        return self._render_checked(
            with_parsed_arguments(checked_messages(messages)),
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=flag("parallel_tool_calls", parallel_tool_calls),
            add_generation_prompt=flag("add_generation_prompt", add_generation_prompt),
            continue_final_message=flag("continue_final_message", continue_final_message),
            thinking=thinking,
            split_reasoning=flag("split_reasoning", split_reasoning),
            json_schema=json_schema,
            grammar=grammar,
            content_grammar=content_grammar,
            template_kwargs=template_kwargs,
        )

    def _render_checked(
        self,
        messages: Sequence[JSONMessage],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = False,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        thinking: bool | None = None,
        split_reasoning: bool = True,
        json_schema: Mapping[str, Any] | str | None = None,
        json_schema_options: Mapping[str, Any] | None = None,
        grammar: str | None = None,
        content_grammar: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """Render checked messages with parsed arguments; texts in them may be quoted, as the prompt's is then."""
        variables = {} if template_kwargs is None else _json_values("template_kwargs", template_kwargs)
        if thinking is not None:
            variables["enable_thinking"] = flag("thinking", thinking)
        selection = selected_tools(tools, tool_choice)
        calls = bool(selection.tools) and selection.choice != "none"
        conversation = _Conversation(
            messages, selection.tools, variables, add_generation_prompt, continue_final_message, split_reasoning
        )
        renderer = self._with_tools if selection.tools else self._plain
        renderer.require_known(variables)
        for name, value in (("grammar", grammar), ("content_grammar", content_grammar)):
            if value is not None and not isinstance(value, str):
                raise InvalidParameterError(f"{name} must be text, not {type(value).__name__}")
        request: dict[str, Any] = {"parallel_tool_calls": parallel_tool_calls, "grammar": grammar}
        try:
            if calls:
                form = content_grammar if grammar is None else grammar
                if json_schema is not None:
                    form = grammar_of(json_schema, **(json_schema_options or {}))
                if form is None or selection.choice == "required":  # an answer that must be calls has no other format
                    return self._with_calls(renderer, conversation, {**request, "grammar": None}, selection)
                is_whole = form is grammar
                return self._with_calls_or_format(renderer, conversation, request, selection, form, is_whole=is_whole)
            if json_schema is not None:
                return self._with_schema(renderer, conversation, request, json_schema, json_schema_options or {})
            request["tools"] = selection.tools
            if content_grammar is not None:
                return self._with_content(renderer, conversation, request, content_grammar)
            return self._prompt(renderer, conversation, request)
        except RecursionError:
            raise InvalidParameterError(
                "the conversation is nested too deeply: check the arguments of tool calls, the schemas of tools, and "
                "template_kwargs"
            ) from None

    def _with_content(
        self, renderer: PromptRenderer, conversation: _Conversation, request: dict[str, Any], grammar: str
    ) -> ChatPrompt:
        """Render a prompt whose answer must match a grammar, after any reasoning. Its parser expects any content."""
        prompt = self._prompt(renderer, conversation, request)
        formatted = self._formatted(renderer, conversation, request, grammar, FallbackSchemas(), prompt.text)
        return replace(formatted, _format=prompt._format)

    def _formatted(
        self,
        renderer: PromptRenderer,
        conversation: _Conversation,
        request: dict[str, Any],
        grammar: str,
        fallbacks: FallbackSchemas,
        text: str,
    ) -> ChatPrompt:
        """Return a rendered prompt with the engine's grammar for answers whose content must match a grammar."""
        fields = {**request, "json_schema": json.dumps(fallbacks.for_content(grammar))}
        formatted = self._prompt(renderer, conversation, fields, fallbacks, text=text)
        bare = _FENCED_OR_SPACED.sub(lambda form: form[1] or "response-format", formatted._grammar or "")
        prefix = formatted.grammar_prefix
        start = f"root ::= {json.dumps(prefix, ensure_ascii=False)} " if prefix else "root ::= "
        return replace(formatted, _grammar=bare.replace(f"{start}space ", start) or None)

    def _with_schema(
        self,
        renderer: PromptRenderer,
        conversation: _Conversation,
        request: dict[str, Any],
        schema: Mapping[str, Any] | str,
        options: Mapping[str, Any],
    ) -> ChatPrompt:
        """Render a prompt whose answer must match a schema."""
        fallbacks = FallbackSchemas()
        request = {**request, "json_schema": json.dumps(fallbacks.for_response(schema, options))}
        variables = {**conversation.variables, _SHOWN_SCHEMA: parsed(as_text(schema))}
        return self._prompt(renderer, conversation, request, fallbacks, variables_if_shown=variables)

    def _with_calls_or_format(
        self,
        renderer: PromptRenderer,
        conversation: _Conversation,
        request: dict[str, Any],
        selection: ToolSelection,
        grammar: str,
        *,
        is_whole: bool,
    ) -> ChatPrompt:
        """Render a prompt whose answer may call tools, and otherwise must match a grammar; see :func:`with_format`."""
        request, fallbacks = {**request, "grammar": None}, FallbackSchemas()
        prompt = self._with_calls(renderer, conversation, request, selection)
        answer = None
        if not is_whole:
            answer = self._formatted(renderer, conversation, request, grammar, fallbacks, prompt.text)
        if answer is None or answer._grammar is None:  # the engine has no grammar for answers in this template's format
            answer, fallbacks = None, FallbackSchemas()
        must_call = replace(selection, choice="required")
        calls = self._with_calls(renderer, conversation, request, must_call, fallbacks, prompt.text)
        return with_format(prompt, calls, answer, grammar)

    def _with_calls(
        self,
        renderer: PromptRenderer,
        conversation: _Conversation,
        request: dict[str, Any],
        selection: ToolSelection,
        fallbacks: FallbackSchemas | None = None,
        text: str | None = None,
    ) -> ChatPrompt:
        """Render a prompt whose answer may, or must, call tools; as for :meth:`_prompt`."""
        fallbacks = fallbacks or FallbackSchemas()
        callable_tools = [selection.only] if selection.only else selection.tools
        own_format = self._call_format if self.supports.tools else None
        separate = self._arguments == "one by one" and own_format is None
        given = [fallbacks.for_tool(tool, separate_arguments=separate) for tool in callable_tools]
        request = {**request, "tool_choice": selection.choice}
        if own_format:
            request |= {"generic_tools": given, "call_format": own_format}
            return self._prompt(renderer, conversation, request, fallbacks, text=text)
        if self.supports.tools:
            return self._prompt(renderer, conversation, {**request, "tools": given}, fallbacks, text=text)
        described = generic_tools.with_tools(
            conversation.messages,
            selection.tools,
            required=selection.choice == "required",
            parallel=request["parallel_tool_calls"],
        )
        conversation = replace(conversation, messages=described, tools=[])
        return self._prompt(self._plain, conversation, {**request, "generic_tools": given}, fallbacks, text=text)

    def _prompt(
        self,
        renderer: PromptRenderer,
        conversation: _Conversation,
        request: dict[str, Any],
        fallbacks: FallbackSchemas | None = None,
        variables_if_shown: Mapping[str, Any] | None = None,
        text: str | None = None,
    ) -> ChatPrompt:
        """Render the prompt, and find the format of its answer; ``request`` asks the engine for a kind of answer.

        ``text`` is the rendered prompt, if it is known.
        """
        fallbacks = fallbacks or FallbackSchemas()
        continues, variables = conversation.continues, conversation.variables
        begins = conversation.add_generation_prompt and not continues
        messages = conversation.messages[:-1] if continues else conversation.messages
        is_rendered = text is not None
        if text is None:
            text = (
                renderer.text(messages, conversation.tools, variables, add_generation_prompt=begins) if messages else ""
            )
        form = self._answers.find(
            {
                "tool_choice": "none",
                **request,
                "add_generation_prompt": begins,
                "continue_final_message": continues,
                "enable_thinking": bool(variables.get("enable_thinking", renderer.thinks_by_default)),
                "reasoning_format": "auto" if conversation.splits_reasoning else "none",
                "template_kwargs": variables,
            },
            conversation.messages,
            text if begins else None,
        )
        if variables_if_shown and fallbacks.appear_in(form.prompt["text"]):
            text = renderer.text(messages, conversation.tools, variables_if_shown, add_generation_prompt=begins)
        if continues and not is_rendered:
            text = concatenated((text, _with_flags(form.begins, conversation.messages[-1])))
        if "\0" in text:
            raise InvalidParameterError(
                "the rendered chat contains a NUL character: remove it from the messages or tools"
            )
        return ChatPrompt(
            text=text,
            grammar_lazy=form.prompt["grammar_lazy"],
            grammar_prefix=form.prompt["grammar_prefix"],
            trigger_patterns=tuple(form.prompt["triggers"]["patterns"]),
            trigger_tokens=tuple(form.prompt["triggers"]["token_ids"]),
            preserved_tokens=(*form.prompt["preserved_tokens"], *self._turn_ends),
            stop=(*form.prompt["stop"], *self._turn_ends),
            thinking_start=form.prompt["thinking_start"],
            thinking_ends=tuple(form.prompt["thinking_ends"]),
            _grammar=form.prompt["grammar"] or None,
            _fallback_schemas=fallbacks,
            _format=form.parser,
        )

    @cached_property
    def _call_format(self) -> dict[str, Any] | None:
        """The template's own format of tool calls, if the engine cannot parse it or would not let it be generated."""

        def render(messages: list[JSONMessage], tools: list[dict[str, Any]], begins: bool) -> str:
            return self._with_tools.text(messages, tools, {}, add_generation_prompt=begins)

        written = rendered_calls(render, 1)
        if written is None:
            return None
        question = _Conversation([{"role": "user", "content": "Hi"}], [TOOL], {}, True, False, True)
        request = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": True, "grammar": None}
        prompt = self._prompt(self._with_tools, question, request)
        if reads_call(prompt.parser(), written) and self._allows(prompt, needed_part(written)):
            return None
        found = call_format(render)
        if found is None or any(end in found.section + found.begin for end in prompt.thinking_ends):
            return None
        return found.as_json()

    def _allows(self, prompt: ChatPrompt, text: str) -> bool:
        """Return True if the prompt's grammar allows a text as the beginning of the answer."""
        if prompt.grammar is None:
            return True
        with Sampler(self._model).grammar(prompt.grammar) as sampler:
            try:
                for token_id in self._model.vocab.tokenize(prompt.grammar_prefix + text, False, parse_special=False):
                    sampler.accept(token_id)
            except InvalidParameterError:
                return False
        return True

    def _render_turns(self, messages: list[JSONMessage]) -> str:
        """Render messages without the beginning of an answer."""
        return self._plain.text(messages, [], {}, add_generation_prompt=False)

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


def _json_values(name: str, value: object) -> dict[str, Any]:
    values = mapping(name, value)
    for key, each in values.items():
        try:
            json.dumps(each, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(f"{name}[{key!r}] must consist of JSON values: {error}") from None
    return values


@dataclass(frozen=True)
class _Conversation:
    """A conversation to render."""

    messages: Sequence[JSONMessage]
    tools: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any]
    add_generation_prompt: bool
    continues: bool
    splits_reasoning: bool


def _with_flags(text: str, message: JSONMessage) -> str:
    """Quote what a text from the engine contains of a message that may be quoted."""
    found: list[str] = []
    for part in (message.get("reasoning_content"), message.get("content")):
        if isinstance(part, QuotedText) and part in text:
            before, _, text = text.partition(str.__str__(part))
            found += [before, part]
    return concatenated((*found, text))

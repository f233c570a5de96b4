"""Renders messages as prompts and parses answers into messages, with the engine's chat code."""

from __future__ import annotations

import json
import os
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml._native import c_string, utf8
from pyggml._owner import Owner
from pyggml.chat import generic_tools
from pyggml.chat.stand_ins import StandIns
from pyggml.chat.types import ChatAbilities, ChatDelta, ChatMessage, ToolCall, ToolCallDelta
from pyggml.errors import InvalidParameterError
from pyggml.model import Model
from pyggml.schema.grammar import as_text, parsed

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyggml._ffi import CData

Message = Mapping[str, Any] | ChatMessage

_NAMED_TEMPLATE = "tokenizer.chat_template."
_TOOL_CHOICES = ("auto", "none", "required")
# The variable that templates read to show the model the schema of its answer.
_SHOWN_SCHEMA = "response_format"
# Mistral's format: some templates reject ids with another length or alphabet.
_ID_LENGTH = 9
_ID_ALPHABET = string.ascii_letters + string.digits


class ChatTemplates(Owner):
    """A model's chat template, parsed and analysed once.

    Any thread may use it. It keeps its model alive. Close it, or use it as a context manager.

    Attributes:
        names: names of the model's additional templates, such as "tool_use".
        source: the Jinja text of the template in use.
        supports: what the template supports.
    """

    _instead_of_a_copy = "share this one between threads; another process makes its own"

    def __init__(self, model: Model, template: str | None = None) -> None:
        """Parses a template.

        Args:
            model: the model to render for.
            template: Jinja text, or the name of one of the model's additional templates. None: the model's own, and its
                template "tool_use", if it has one, for prompts with tools.

        Raises:
            InvalidParameterError: the model has no such template, or it cannot be parsed.
            ClosedError: the model was closed.
        """
        self.names = tuple(key[len(_NAMED_TEMPLATE) :] for key in model.metadata if key.startswith(_NAMED_TEMPLATE))
        if template in self.names:
            template = model.chat_template(template)
        elif isinstance(template, str) and "{" not in template:
            raise InvalidParameterError(
                f"the chat template {template!r} is neither Jinja text, nor an existing file, nor one of the model's "
                f"additional templates ({', '.join(self.names) or 'it has none'})"
            )
        text = ffi.NULL if template is None else c_string("the chat template", template)
        self._handle = errors.create(
            "pyg_chat_templates", lib.pyg_chat_templates_free, lib.pyg_chat_templates_new, model._handle, text
        )
        about = _json_from(lib.pyg_chat_templates_about, self._handle)
        self.source: str = about["source"]
        self._arguments: str = about["arguments"]
        self.supports = _abilities(about["abilities"])

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
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """Renders a conversation in the format that the model was trained on.

        Args:
            messages: ChatMessages, or mappings with "role" and "content" as in OpenAI's API.
            tools: each ``{"type": "function", "function": {"name", "description", "parameters": JSON schema}}``.
            tool_choice: "auto", "none", "required", or one tool, by name or as
                ``{"type": "function", "function": {"name": ...}}``.
            parallel_tool_calls: allow several calls in one answer.
            add_generation_prompt: end with the start of the assistant's turn.
            continue_final_message: let the answer continue the last message instead of starting a new turn.
            thinking: False asks the template to keep the model from reasoning. None: the value of ``enable_thinking``
                in ``template_kwargs``, or True.
            split_reasoning: separate reasoning from content; False leaves it in the content, with its tags.
            json_schema: JSON schema that the content must match.
            grammar: GBNF grammar that the whole answer must match.
            template_kwargs: additional variables for the template; JSON values.

        Raises:
            InvalidParameterError: messages or tools are malformed, an argument is invalid, or the template rejects
                them.
            GrammarError: a tool's schema has constraints that this template's format for calls cannot keep. Constraints
                that no grammar can express raise when the prompt's ``grammar`` is read.
            ClosedError: the templates were closed.
        """
        variables = dict(template_kwargs or {})
        if thinking is None:
            thinking = variables.pop("enable_thinking", True)
        wanted = _chosen_tools(tools, tool_choice)
        if wanted.tools and wanted.choice != "none" and (json_schema is not None or grammar is not None):
            raise InvalidParameterError(
                "tools cannot be combined with a json_schema or grammar for the answer: give only one of them, or "
                "tool_choice='none'"
            )
        request: dict[str, Any] = {
            "messages": [_message(message) for message in messages],
            "tools": wanted.tools,
            "tool_choice": "none",
            "parallel_tool_calls": bool(parallel_tool_calls),
            "add_generation_prompt": bool(add_generation_prompt),
            "continue_final_message": bool(continue_final_message),
            "enable_thinking": bool(thinking),
            "reasoning_format": "auto" if split_reasoning else "none",
            "grammar": grammar,
            "template_kwargs": variables,
        }
        if wanted.tools and wanted.choice != "none":
            return self._with_calls(request, wanted)
        if json_schema is not None:
            return self._with_schema(request, json_schema)
        return self._render(request)

    def _with_schema(self, request: dict[str, Any], schema: Mapping[str, Any] | str) -> ChatPrompt:
        """Renders a prompt whose answer must match a schema."""
        stand_ins = StandIns()
        prompt = self._render({**request, "json_schema": json.dumps(stand_ins.for_answer(schema))}, stand_ins)
        if not stand_ins.shown_in(prompt.text):
            return prompt
        variables = {**request["template_kwargs"], _SHOWN_SCHEMA: parsed(as_text(schema))}
        return replace(prompt, text=self._render({**request, "template_kwargs": variables}).text)

    def _with_calls(self, request: dict[str, Any], wanted: _Wanted) -> ChatPrompt:
        """Renders a prompt whose answer may, or must, call tools."""
        stand_ins = StandIns()
        may_be_called = [wanted.only] if wanted.only else wanted.tools
        given = [stand_ins.for_tool(tool, one_by_one=self._arguments == "one by one") for tool in may_be_called]
        if self.supports.tools:
            text = self._render(request).text
            return replace(
                self._render({**request, "tools": given, "tool_choice": wanted.choice}, stand_ins), text=text
            )
        messages = generic_tools.with_tools(
            request["messages"],
            wanted.tools,
            required=wanted.choice == "required",
            parallel=request["parallel_tool_calls"],
        )
        return self._render(
            {**request, "messages": messages, "tools": [], "tool_choice": wanted.choice, "generic_tools": given},
            stand_ins,
        )

    def _render(self, request: dict[str, Any], stand_ins: StandIns | None = None) -> ChatPrompt:
        out = ffi.new("char **")
        try:
            parser = errors.create(
                "pyg_chat_parser",
                lib.pyg_chat_parser_free,
                lib.pyg_chat_templates_render,
                self._handle,
                _json("the conversation", request),
                out,
            )
            prompt = json.loads(_decode(out[0]))
        finally:
            lib.pyg_string_free(out[0])
        if "\0" in prompt["text"]:
            raise InvalidParameterError(
                "the rendered chat contains a NUL character: remove it from the messages or tools"
            )
        return ChatPrompt(
            text=prompt["text"],
            grammar_lazy=prompt["grammar_lazy"],
            grammar_prefix=prompt["grammar_prefix"],
            trigger_patterns=tuple(prompt["triggers"]["patterns"]),
            trigger_tokens=tuple(prompt["triggers"]["token_ids"]),
            preserved_tokens=tuple(prompt["preserved_tokens"]),
            stop=tuple(prompt["stop"]),
            thinking_start=prompt["thinking_start"],
            thinking_ends=tuple(prompt["thinking_ends"]),
            _grammar=prompt["grammar"] or None,
            _stand_ins=stand_ins or StandIns(),
            _format=parser,
        )

    def close(self) -> None:
        """Frees the template. Prompts already rendered stay usable. Safe to call again."""
        errors.call(lib.pyg_chat_templates_close, self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered conversation, and the format of answers to it.

    Attributes:
        text: the prompt. Encode it with ``tokenize(text)``; it omits the BOS and EOS that this adds.
        grammar_lazy: whether the grammar applies only from a trigger on.
        grammar_prefix: end of the prompt that the grammar consumes before the answer; usually "".
        trigger_patterns: regular expressions that start a lazy grammar.
        trigger_tokens: ids of tokens that start a lazy grammar.
        preserved_tokens: special tokens whose text must be kept in the text fed to the parser.
        stop: strings that end the answer, besides the model's stop tokens.
        thinking_start: text that starts reasoning, such as "<think>"; "" if the template has no reasoning.
        thinking_ends: texts that end reasoning.
    """

    text: str
    grammar_lazy: bool
    grammar_prefix: str
    trigger_patterns: tuple[str, ...]
    trigger_tokens: tuple[int, ...]
    preserved_tokens: tuple[str, ...]
    stop: tuple[str, ...]
    thinking_start: str
    thinking_ends: tuple[str, ...]
    _grammar: str | None = field(repr=False)
    _stand_ins: StandIns = field(repr=False, compare=False)
    _format: CData = field(repr=False, compare=False)

    @cached_property
    def grammar(self) -> str | None:
        """GBNF grammar that the answer must match, or None.

        Raises:
            GrammarError: the schema of the answer or of a tool's parameters has constraints that a grammar cannot
                express; names the tool, and gives the place as a JSON pointer.
        """
        return None if self._grammar is None else self._stand_ins.replaced_in(self._grammar)

    def parser(self) -> ChatParser:
        """Creates a parser for one answer to this prompt."""
        return ChatParser(self._format)


class ChatParser(Owner):
    """Parses one answer as it is generated; see :meth:`ChatPrompt.parser`. Use it from one thread at a time."""

    _instead_of_a_copy = "make one for each answer"

    def __init__(self, answer_format: CData) -> None:
        self._handle = errors.create(
            "pyg_chat_parser", lib.pyg_chat_parser_free, lib.pyg_chat_parser_clone, answer_format
        )
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []

    def feed(self, text: str, *, last: bool = False) -> ChatDelta:
        """Parses the next piece of generated text.

        Args:
            text: the text, including the prompt's ``preserved_tokens``.
            last: the answer ends here, or was cut off here: hold nothing back.

        Returns:
            What the piece adds to the message. Nothing is ever taken back: text that may become part of a tag or a tool
            call is held back until that is clear. Text that fits no format counts as content.

        Raises:
            InvalidParameterError: the text contains an unpaired surrogate, or the answer has already ended.
        """
        data = utf8("the text", text)
        news = _json_from(lib.pyg_chat_parser_feed, self._handle, data, len(data), bool(last))
        calls = tuple(map(self._grow_call, news["tool_calls"]))
        self._content.append(news["content"])
        self._reasoning.append(news["reasoning_content"])
        return ChatDelta(news["content"], news["reasoning_content"], calls)

    @property
    def message(self) -> ChatMessage:
        """The message so far: the sum of all deltas."""
        calls = tuple(ToolCall(call.id, call.name, "".join(call.arguments)) for call in self._calls)
        return ChatMessage("assistant", "".join(self._content), "".join(self._reasoning), calls)

    def _grow_call(self, news: Mapping[str, Any]) -> ToolCallDelta:
        index: int = news["index"]
        if index == len(self._calls):
            call = _Call(news["id"] or _new_id(), news["name"], [news["arguments"]])
            self._calls.append(call)
            return ToolCallDelta(index, call.id, call.name, news["arguments"])
        self._calls[index].arguments.append(news["arguments"])
        return ToolCallDelta(index, arguments_text=news["arguments"])


@dataclass
class _Call:
    id: str
    name: str
    arguments: list[str]


def template_text(template: str | os.PathLike[str]) -> str:
    """The Jinja text or name to pass to ChatTemplates; if given the path of a file, reads it.

    Raises:
        InvalidParameterError: the file cannot be read.
    """
    if isinstance(template, str) and ("{" in template or not _is_file(template)):
        return template
    try:
        return Path(template).read_text(encoding="utf-8")
    except TypeError:
        raise InvalidParameterError(f"chat_template must be text or a path, not {type(template).__name__}") from None
    except (OSError, ValueError) as error:
        raise InvalidParameterError(f"the chat template {os.fspath(template)!r} could not be read: {error}") from None


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long for a path, or contains a NUL
        return False


def _abilities(native: Mapping[str, bool]) -> ChatAbilities:
    return ChatAbilities(
        system=native["supports_system_role"],
        tools=native["supports_tool_format"],
        parallel_tool_calls=native["supports_parallel_tool_calls"],
        thinking=native["supports_thinking"],
        keeps_reasoning=native["supports_preserve_reasoning"],
        reasoning_effort=native["supports_reasoning_effort"],
    )


def _message(message: object) -> dict[str, Any]:
    if isinstance(message, ChatMessage):
        return message.to_dict()
    return _mapping("a message", message)


def _mapping(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidParameterError(f"{name} must be a mapping, not {type(value).__name__}")
    return dict(value)


@dataclass(frozen=True)
class _Wanted:
    """The tools to show in the prompt, whether the answer may call them, and the only one it may call, if any."""

    tools: list[dict[str, Any]]
    choice: str
    only: dict[str, Any] | None = None


def _chosen_tools(tools: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any]) -> _Wanted:
    shown = [_mapping("a tool", tool) for tool in tools or ()]
    name = _function_name(choice) if isinstance(choice, Mapping) else choice
    if name in _TOOL_CHOICES and isinstance(choice, str):
        if name == "required" and not shown:
            raise InvalidParameterError("tool_choice is 'required', but no tools were given")
        return _Wanted(shown, name)
    only = [tool for tool in shown if name is not None and _function_name(tool) == name]
    if not only:
        names = ", ".join(repr(_function_name(tool)) for tool in shown) or "none"
        raise InvalidParameterError(
            f"tool_choice must be 'auto', 'none', 'required' or the name of a tool ({names}), not {choice!r}"
        )
    return _Wanted(shown, "required", only[0])


def _function_name(tool: Mapping[str, Any]) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, Mapping) else None


def _new_id() -> str:
    return "".join(random.choices(_ID_ALPHABET, k=_ID_LENGTH))


def _json(name: str, value: object) -> bytes:
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"{name} must consist of JSON values: {error}") from None


def _json_from(function: Any, *args: object) -> Any:
    """Calls a native function that returns JSON text through its last parameter but one, and parses the text."""
    out = ffi.new("char **")
    errors.call(function, *args, out)
    return json.loads(_take_string(out[0]))


def _take_string(owned: CData) -> str:
    """Decodes and frees a string from native code. A template may have cut it within a character."""
    try:
        return _decode(owned)
    finally:
        lib.pyg_string_free(owned)


def _decode(text: CData) -> str:
    return str(ffi.string(text).decode("utf-8", "replace"))

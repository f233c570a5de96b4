"""Prompts rendered from messages, with the variables that transformers passes to a template."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import shown
from pyggml._native.vocab import Vocab
from pyggml.chat.jinja import JinjaTemplate, TemplateTooExpensiveError, flags_of
from pyggml.chat.jinja.limits import CPU_SECONDS
from pyggml.chat.jinja.quoted_text import holds_quoted, json_text
from pyggml.chat.messages import JSONMessage
from pyggml.chat.template_format import TemplateFormat
from pyggml.errors import InvalidParameterError

# Variables that the other arguments of a chat set.
# Variables with the conversation, which a gateway may have checked, under all names that templates have for them.
_RESERVED = frozenset(
    (
        *("messages", "tools", "custom_tools", "xml_tools", "python_tools", "builtin_tools", "add_generation_prompt"),
        *("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"),
    )
)
# Processor time for each of some thirty short conversations that show what a template takes: usually a millisecond.
_PROBE_SECONDS = 0.2
_THINKING = "enable_thinking"
# Variables that no template refuses: clients send them to whatever model they meet, as its users' wish.
_WISHES = frozenset({_THINKING, "reasoning_effort"})
_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "f",
        "parameters": {"type": "object", "properties": {"pyggmlkey": {"type": "string", "description": "f"}}},
    },
}
_QUESTION: list[JSONMessage] = [{"role": "user", "content": "Hi"}]


# A model that is loaded again has the same template, and compiling it takes tens of milliseconds.
_compiled = functools.lru_cache(maxsize=16)(JinjaTemplate)


class PromptRenderer:
    """Renders conversations with one chat template. Any thread may use it."""

    def __init__(self, source: str, vocab: Vocab) -> None:
        """Compile the template's text.

        Raises:
            InvalidParameterError: it is not valid.
        """
        self._template = _compiled(source)
        ids = {"bos_token": vocab.bos, "eos_token": vocab.eos, "pad_token": vocab.pad}
        self._tokens = {
            name: vocab.piece(token_id, special=True).decode("utf-8", "replace")
            for name, token_id in ids.items()
            if token_id is not None
        }
        self._begin = self._tokens.get("bos_token", "") if vocab.add_bos else ""
        self._end = self._tokens.get("eos_token", "") if vocab.add_eos else ""
        self._tokens = {"bos_token": "", "eos_token": ""} | self._tokens
        self._no_tools: list[Any] | None = None
        if not self._can_render(_QUESTION):  # raises if that exceeds a limit
            self._no_tools = []  # transformers would have another template for conversations without tools

    @cached_property
    def format(self) -> TemplateFormat:
        """The form of messages that the template takes."""
        return TemplateFormat(
            lambda messages, tools: self._render(messages, [_TOOL] if tools else [], cpu_seconds=_PROBE_SECONDS),
            self._template.source,
        )

    @cached_property
    def thinks_by_default(self) -> bool:
        """False if the template keeps the model from reasoning unless told otherwise."""
        default, on, off = (self._probe(variables) for variables in ({}, {_THINKING: True}, {_THINKING: False}))
        return default != off or default == on

    def require_known(self, variables: Mapping[str, Any]) -> None:
        """Refuse variables that the template does not read, since they would change nothing."""
        for name in variables:
            if name in _RESERVED:
                raise InvalidParameterError(f"template_kwargs cannot set {name!r}: other arguments of the chat do")
            if name not in self._template.variables and name not in _WISHES:
                known = ", ".join(sorted({_THINKING, *self._template.variables} - _RESERVED))
                raise InvalidParameterError(
                    f"the chat template does not read the variable {shown(name)} of template_kwargs; it reads {known}"
                )

    def text(
        self,
        messages: Sequence[JSONMessage],
        tools: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        *,
        add_generation_prompt: bool,
    ) -> str:
        """Render checked messages; the prompt omits the BOS and EOS that tokenizing adds.

        Raises:
            InvalidParameterError: the template refuses the messages, fails, or exceeds a limit.
        """
        rewritten = self.format.messages(messages)
        if "source_lang_code" in self._template.source:
            rewritten = [_for_translation(message, variables) for message in rewritten]
        text = self._render(rewritten, tools, variables, add_generation_prompt=add_generation_prompt)
        if self._begin and text.startswith(self._begin) and not any(flags_of(text)[: len(self._begin)]):
            text = text[len(self._begin) :]
        if self._end and text.endswith(self._end) and not any(flags_of(text)[-len(self._end) :]):
            text = text[: -len(self._end)]
        return text

    def _render(
        self,
        messages: Sequence[JSONMessage],
        tools: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = False,
        cpu_seconds: float = CPU_SECONDS,
    ) -> str:
        given = {
            "documents": None,
            **self._tokens,
            **self._firefunction_variables(tools),
            **(variables or {}),
            "messages": messages,
            "tools": tools or self._no_tools,
            "add_generation_prompt": add_generation_prompt,
        }
        own = {name: _copied(value) for name, value in given.items()}
        n_input = _n_characters(own)
        return self._template.render(own, n_input=n_input, cpu_seconds=cpu_seconds, quoted=holds_quoted(own))

    def _firefunction_variables(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The variables that FireFunction's model card tells its users to pass; other templates do not read them."""
        if "functions" not in self._template.variables:
            return {}
        functions = [tool["function"] for tool in tools]
        now = dt.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        return {"functions": json_text(functions, indent=4), "datetime": now}

    def _can_render(self, messages: list[JSONMessage]) -> bool:
        try:
            return bool(self._render(messages, [], cpu_seconds=_PROBE_SECONDS))
        except TemplateTooExpensiveError:
            raise
        except InvalidParameterError:
            return False

    def _probe(self, variables: Mapping[str, Any]) -> str | None:
        try:
            messages = self.format.messages(_QUESTION)
            return self._render(messages, [], variables, add_generation_prompt=True, cpu_seconds=_PROBE_SECONDS)
        except InvalidParameterError:
            return None


def _for_translation(message: JSONMessage, variables: Mapping[str, Any]) -> JSONMessage:
    """The form of TranslateGemma, which wants the languages in each part."""
    content = message.get("content")
    if message["role"] != "user":
        return message
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    languages = {name: variables.get(name, "en-GB") for name in ("source_lang_code", "target_lang_code")}
    return {**message, "content": [{**part, **languages} for part in parts]}


def _copied(value: Any) -> Any:
    """Copy lists and mappings, because templates may modify them."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, (list, tuple)) else value


def _n_characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_n_characters, value)) + sum(map(_n_characters, value.values()))
    return sum(map(_n_characters, value)) if isinstance(value, list) else 1

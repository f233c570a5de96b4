"""Conversations to answer: checked messages, tools and options of the template."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pyggml.chat import ChatPrompt, ChatTemplates
from pyggml.chat.messages import Change, JSONMessage, map_strings, map_texts
from pyggml.chat.tools import Tool
from pyggml.errors import InvalidParameterError


@dataclasses.dataclass(frozen=True)
class Conversation:
    """A conversation to answer; see :meth:`LLM.chat <pyggml.LLM.chat>`.

    Attributes:
        messages: the checked messages, with parsed arguments.
        tools: the checked tools, by name.
        tool_choice: "auto", "none", "required", or one tool.
        parallel_tool_calls: an answer may contain several calls.
        thinking: the model reasons first; None: the template's default.
        continues: the answer continues the last message.
        template_kwargs: additional variables for the template.
        parse_special: special tokens in messages are interpreted.
    """

    messages: list[JSONMessage]
    tools: dict[str, Tool]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    thinking: bool | None
    continues: bool
    template_kwargs: Mapping[str, Any]
    parse_special: bool

    def __post_init__(self) -> None:
        if self.continues and (role := self.messages[-1]["role"]) != "assistant":
            raise InvalidParameterError(
                f"continue_final_message continues a message of the assistant, and the last one has the role {role!r}"
            )

    @property
    def thinks(self) -> bool:
        """True if the model may reason before it answers, provided that its template supports reasoning."""
        return bool(self.template_kwargs.get("enable_thinking", True) if self.thinking is None else self.thinking)

    @property
    def may_call(self) -> bool:
        """True if the answer may call tools."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def may_call_once(self) -> bool:
        """True to end the answer after its first call, even if the template's format allows more."""
        return bool(self.tools) and not self.parallel_tool_calls

    @property
    def texts(self) -> list[str]:
        """All strings that may come from someone other than the program."""
        found: list[str] = []

        def note(text: str) -> str:
            found.append(text)
            return text

        self.with_texts_changed(note)
        return found

    def with_texts_changed(self, change: Change) -> Conversation:
        """Return a copy with all of :attr:`texts` changed."""
        try:
            return dataclasses.replace(
                self,
                messages=map_texts(self.messages, change),
                tools={name: tool.with_texts_changed(change) for name, tool in self.tools.items()},
                template_kwargs=map_strings(self.template_kwargs, change),
            )
        except RecursionError:
            raise InvalidParameterError(
                "the conversation is nested too deeply: check the arguments of tool calls, the schemas of tools, and "
                "template_kwargs"
            ) from None

    def render(self, templates: ChatTemplates, **form: Any) -> ChatPrompt:
        """Render the prompt; ``form`` is the ``json_schema``, ``grammar`` or ``content_grammar`` of the answer.

        Raises:
            InvalidParameterError: the template rejects the conversation, or the options contradict each other.
        """
        return templates._render_checked(
            self.messages,
            tools=[tool.as_json() for tool in self.tools.values()],
            tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls,
            thinking=self.thinking,
            add_generation_prompt=not self.continues,
            continue_final_message=self.continues,
            template_kwargs=self.template_kwargs,
            **form,
        )

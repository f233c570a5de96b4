"""Forms of messages that a chat template takes, found out with short conversations; others are rewritten to them.

Templates differ in which messages they take: Gemma's has no system message, gpt-oss's reads reasoning from "thinking",
Functionary's wants the arguments of calls as text. What a template would drop or refuse is moved to where it fits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyggml.chat import generic_tools
from pyggml.chat.jinja import TemplateTooExpensiveError
from pyggml.chat.jinja.quoted_text import concatenated, json_text
from pyggml.chat.messages import JSONMessage
from pyggml.errors import InvalidParameterError

#: Renders messages without the beginning of an answer; with a tool if True.
Render = Callable[[list[JSONMessage], bool], str]

_SYSTEMS = ("pyggmlfirst", "pyggmlsecond")
_QUESTION, _ANSWER, _REASONING, _VALUE, _RESULT = (
    f"pyggml{word}" for word in ("asks", "answers", "reasons", "value", "result")
)
_USER = {"role": "user", "content": _QUESTION}
_ASSISTANT = {"role": "assistant", "content": _ANSWER}
_TOOL = {"role": "tool", "tool_call_id": "abcdef123", "name": "f", "content": _RESULT}
_THINKING_FORMS = ("reasoning_content", "thinking", "parts")
_BETWEEN = "\n\n"


def _call(arguments: Any, content: str = "") -> JSONMessage:
    function = {"name": "f", "arguments": arguments}
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": "abcdef123", "type": "function", "function": function}],
    }


class TemplateFormat:
    """The form of messages that a template takes."""

    def __init__(self, render: Render, source: str) -> None:
        """Find it out; ``render`` renders messages of any form.

        Raises:
            TemplateTooExpensiveError: a short conversation exceeds a limit, so the others are not tried.
        """
        self._render = render
        self._has_developer = "developer" in source
        first, second = ({"role": "system", "content": text} for text in _SYSTEMS)
        self.has_system = self._shows([first, _USER], _SYSTEMS[0], _QUESTION)
        self._joins_first = not self._shows([first, second, _USER], *_SYSTEMS, _QUESTION)
        self._moves_later = not self._shows([first, _USER, _ASSISTANT, second, _USER], *_SYSTEMS, _QUESTION)
        self._wants_parts = not self._shows([_USER], _QUESTION) and self._shows([_with_parts(_USER)], _QUESTION)
        self._takes_parts: dict[tuple[str, bool], bool] = {}  # by role, and whether the message has calls
        self.wants_text_arguments = not self._shows_arguments({"pyggmlkey": _VALUE}) and self._shows_arguments(
            json.dumps({"pyggmlkey": _VALUE})
        )
        self.has_results = self._shows([_USER, self._own_call(), _TOOL], _RESULT, tools=True) or self._shows(
            [_USER, self._own_call(), _TOOL], _RESULT
        )
        self._thinking = next(filter(self._shows_reasoning, _THINKING_FORMS), _THINKING_FORMS[0])
        self._joins_reasoning = self._refuses_content_of_calls()
        self._needs_reasoning = not self._shows([_USER, _ASSISTANT, _USER], _ANSWER) and self._shows(
            [_USER, {**_ASSISTANT, "reasoning_content": ""}, _USER], _ANSWER
        )

    def messages(self, messages: Sequence[JSONMessage]) -> list[JSONMessage]:
        """Rewrite checked messages to what the template takes."""
        if not self.has_results and any(message["role"] == "tool" for message in messages):
            messages = generic_tools.without_tool_messages(messages)
        roles = [message if self._has_developer else _without_developer(message) for message in messages]
        return [self._message(message) for message in self._with_systems_placed(roles)]

    def _message(self, message: JSONMessage) -> JSONMessage:
        message = dict(message)
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [self._with_arguments(call) for call in calls]
        if message["role"] == "assistant" and self._needs_reasoning:
            message.setdefault("reasoning_content", "")
        if "reasoning_content" in message and self._thinking != "reasoning_content":
            message = self._with_reasoning(message)
        content = message.get("content")
        if isinstance(content, list) and not self._has_parts(message):
            message["content"] = _text(content)
        elif isinstance(content, str) and self._wants_parts:
            message = _with_parts(message)
        return message

    def _with_arguments(self, call: JSONMessage) -> JSONMessage:
        function = call["function"]
        if not self.wants_text_arguments:
            return call
        return {**call, "function": {**function, "arguments": json_text(function["arguments"])}}

    def _with_reasoning(self, message: JSONMessage) -> JSONMessage:
        reasoning, content = message.pop("reasoning_content"), message.get("content")
        if self._thinking == "parts":
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
            return {**message, "content": [{"type": "thinking", "thinking": reasoning}, *parts]}
        if self._joins_reasoning and message.get("tool_calls"):
            text = _text(message.pop("content", ""))
            reasoning = _joined(reasoning, text) if text else reasoning
        return {**message, "thinking": reasoning}

    def _with_systems_placed(self, messages: list[JSONMessage]) -> list[JSONMessage]:
        """Join or move the system messages that the template would drop or refuse."""
        n_first = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
        first, others = messages[:n_first], messages[n_first:]
        if len(first) > 1 and (self._joins_first or not self.has_system):
            first = [{**first[0], "content": _joined(*(message["content"] for message in first))}]
        if self._moves_later:
            others = _moved_to_users(others)
        return [*first, *others] if self.has_system else _moved_to_users([*first, *others])

    def _shows(self, messages: list[JSONMessage], *texts: str, tools: bool = False) -> bool:
        """Return True if the template renders these messages, with these texts in this order."""
        try:
            rendered = self._render(messages, tools)
        except TemplateTooExpensiveError:
            raise
        except InvalidParameterError:
            return False
        end = 0
        for text in texts:
            start = rendered.find(text, end)
            if start < 0:
                return False
            end = start + len(text)
        return True

    def _has_parts(self, message: JSONMessage) -> bool:
        """Return True if the template takes the content of such a message in parts, or reasoning as one of them."""
        if self._wants_parts or any(part["type"] == "thinking" for part in message["content"]):
            return True
        role, calls = message["role"], "tool_calls" in message
        if (role, calls) not in self._takes_parts:
            self._takes_parts[role, calls] = self._shows_parts(role, calls=calls)
        return self._takes_parts[role, calls]

    def _shows_parts(self, role: str, *, calls: bool) -> bool:
        asked = {"role": role, "content": _ANSWER}
        messages = {
            "assistant": [_USER, self._own_call(_ANSWER) if calls else asked, *([_TOOL] if calls else [_USER])],
            "tool": [_USER, self._own_call(), {**_TOOL, "content": _ANSWER}],
            "user": [asked],
        }.get(role, [asked, _USER])
        in_parts = [_with_parts(message) if message.get("content") == _ANSWER else message for message in messages]
        for tools in (False, True):
            try:
                text = self._render(in_parts, tools)
            except InvalidParameterError:
                continue
            return _ANSWER in text and "'text'" not in text and '"text"' not in text
        return False

    def _shows_arguments(self, arguments: Any) -> bool:
        """Return True if the template writes these arguments as JSON, or one by one."""
        for tools in (True, False):
            try:
                text = self._render([_USER, _call(arguments)], tools)
            except InvalidParameterError:
                continue
            return _VALUE in text and "'pyggmlkey'" not in text and r"\"pyggmlkey" not in text
        return False

    def _own_call(self, content: str = "") -> JSONMessage:
        call = _call({}, content)
        return {**call, "tool_calls": [self._with_arguments(each) for each in call["tool_calls"]]}

    def _shows_reasoning(self, form: str) -> bool:
        """Return True if the template shows reasoning in this form before a result, or in an earlier answer."""
        self._thinking, self._joins_reasoning = form, False
        for message, more in (({**_ASSISTANT}, _USER), (self._own_call(), _TOOL), ({**_ASSISTANT}, None)):
            messages = [_USER, self._reasoned(message), *([more] if more else [])]
            if self._shows(messages, _REASONING, tools=more is _TOOL) and not self._shows(messages, "'thinking'"):
                return True
        return False

    def _reasoned(self, message: JSONMessage) -> JSONMessage:
        reasoned = {**message, "reasoning_content": _REASONING}
        return reasoned if self._thinking == "reasoning_content" else self._with_reasoning(reasoned)

    def _refuses_content_of_calls(self) -> bool:
        """Return True if a message may not have all three: reasoning, content and calls."""
        self._joins_reasoning = False
        both = [_USER, self._reasoned(self._own_call(_ANSWER)), _TOOL]
        return self._thinking == "thinking" and not self._shows(both, _RESULT, tools=True)


def _without_developer(message: JSONMessage) -> JSONMessage:
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _moved_to_users(messages: Sequence[JSONMessage]) -> list[JSONMessage]:
    """Put each system message before the text of the user's next message; or behind the last one; or in its place."""
    moved: list[JSONMessage] = []
    waiting: list[Any] = []
    for message in messages:
        if message["role"] == "system":
            waiting.append(message["content"])
            continue
        if waiting and message["role"] == "user":
            message = {**message, "content": _joined(*waiting, message["content"])}
            waiting = []
        elif waiting:
            _add_to_user(moved, waiting)
            waiting = []
        moved.append(message)
    if waiting:
        _add_to_user(moved, waiting)
    return moved


def _add_to_user(messages: list[JSONMessage], contents: list[Any]) -> None:
    if messages and messages[-1]["role"] == "user":
        messages[-1] = {**messages[-1], "content": _joined(messages[-1]["content"], *contents)}
    else:
        messages.append({"role": "user", "content": _joined(*contents)})


def _joined(*contents: Any) -> Any:
    """Join contents, which are texts or lists of parts."""
    if any(isinstance(content, list) for content in contents):
        return [part for content in contents for part in _parts(content)]
    return concatenated(
        text for i, content in enumerate(contents) for text in ((_BETWEEN, content) if i else (content,))
    )


def _parts(content: Any) -> list[Mapping[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _with_parts(message: Mapping[str, Any]) -> JSONMessage:
    return {**message, "content": _parts(message["content"])}


def _text(content: Any) -> str:
    """The text of a content, a line for each part."""
    if not isinstance(content, list):
        return content or ""
    texts = [part["text"] for part in content if part.get("type") == "text"]
    return concatenated(part for i, text in enumerate(texts) for part in (("\n", text) if i else (text,)))

"""Tools for chat templates without tool support: described in the system message, with calls and results as text.

`csrc/chat/generic_tools.cpp` parses the answers and uses the same tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyggml.chat.jinja.quoted_text import concatenated, json_text

Message = dict[str, Any]

_INSTRUCTION = """\
# Tools

You can call functions. Each of these lines describes one of them as JSON, with a schema of its arguments:
{tools}

To call a function, write its name and its arguments as one JSON object between tags, and end your turn:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument": "its value"}}}}
</tool_call>
{rules} What a function returns comes in the next message, between <tool_response> and </tool_response>."""

_ONE_CALL = "Call one function at a time."
_SEVERAL_CALLS = "Several calls may follow each other, each between tags of its own."
_FREE = "Answer in plain text when you need no function."
_REQUIRED = "You have to call a function now."


def with_tools(
    messages: Sequence[Message], tools: Sequence[Message], *, required: bool, parallel: bool
) -> list[Message]:
    """Convert a conversation to one without tool messages, with the tools described in its system message."""
    before, behind = _INSTRUCTION.split("{tools}")
    rules = f"{_SEVERAL_CALLS if parallel else _ONE_CALL} {_REQUIRED if required else _FREE}"
    lines = _joined(*(json_text(tool.get("function")) for tool in tools), between="\n")
    instruction = concatenated((before, lines, behind.format(rules=rules)))
    first, *others = without_tool_messages(messages)
    if first.get("role") in ("system", "developer"):
        return [{**first, "content": _joined(_text(first.get("content")), instruction)}, *others]
    return [{"role": "system", "content": instruction}, first, *others]


def without_tool_messages(messages: Sequence[Message]) -> list[Message]:
    """Convert calls to text of the assistant, and consecutive results, with what the user adds, to one of the user."""
    rewritten: list[Message] = []
    after_result = False
    for message in messages:
        is_result = message.get("role") == "tool"
        if is_result:
            message = {"role": "user", "content": _result(message)}
        elif message.get("tool_calls"):
            message = _calls_as_text(message)
        if after_result and message.get("role") == "user":
            content = _joined(
                rewritten[-1]["content"], _text(message["content"]), between="\n" if is_result else "\n\n"
            )
            rewritten[-1] = {**rewritten[-1], "content": content}
        else:
            rewritten.append(message)
        after_result = is_result or (after_result and message.get("role") == "user")
    return rewritten


def _calls_as_text(message: Message) -> Message:
    calls = (_call(call["function"]) for call in message["tool_calls"])
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": _joined(_text(message.get("content")), *calls, between="\n")}


def _call(function: Message) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return concatenated(("<tool_call>\n", json_text(call), "\n</tool_call>"))


def _result(message: Message) -> str:
    return concatenated(("<tool_response>\n", _text(message.get("content")), "\n</tool_response>"))


def _joined(*texts: str, between: str = "\n\n") -> str:
    given = [text for text in texts if text]
    return concatenated(part for i, text in enumerate(given) for part in ((between, text) if i else (text,)))


def _text(content: Any) -> str:
    """The text of a message's content, which is a string or a list of text parts."""
    if isinstance(content, (list, tuple)):
        return _joined(*(part.get("text", "") for part in content), between="\n")
    return content or ""

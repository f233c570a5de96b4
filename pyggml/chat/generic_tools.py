"""Tools for chat templates without tool support: described in the system message, with calls and results as text.

`csrc/chat/generic_tools.cpp` parses the answers and uses the same tags.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyggml.chat.messages import checked_messages

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
    lines = "\n".join(json.dumps(tool.get("function"), ensure_ascii=False) for tool in tools)
    rules = f"{_SEVERAL_CALLS if parallel else _ONE_CALL} {_REQUIRED if required else _FREE}"
    instruction = _INSTRUCTION.format(tools=lines, rules=rules)
    first, *others = _without_tool_messages(checked_messages(messages))
    if first.get("role") in ("system", "developer"):
        return [{**first, "content": _joined(_text(first.get("content")), instruction)}, *others]
    return [{"role": "system", "content": instruction}, first, *others]


def _without_tool_messages(messages: Sequence[Message]) -> list[Message]:
    """Convert calls to text of the assistant, and consecutive results to one message of the user."""
    rewritten: list[Message] = []
    after_result = False
    for message in messages:
        is_result = message.get("role") == "tool"
        if not is_result:
            rewritten.append(_calls_as_text(message) if message.get("tool_calls") else message)
        elif after_result:
            rewritten[-1] = {"role": "user", "content": _joined(rewritten[-1]["content"], _result(message), "\n")}
        else:
            rewritten.append({"role": "user", "content": _result(message)})
        after_result = is_result
    return rewritten


def _calls_as_text(message: Message) -> Message:
    calls = "\n".join(f"<tool_call>\n{_call(call)}\n</tool_call>" for call in message["tool_calls"])
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": _joined(_text(message.get("content")), calls, "\n")}


def _call(call: Message) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'{{"name": {json.dumps(function.get("name"), ensure_ascii=False)}, "arguments": {text}}}'


def _result(message: Message) -> str:
    return f"<tool_response>\n{_text(message.get('content'))}\n</tool_response>"


def _joined(text: str, more: str, between: str = "\n\n") -> str:
    return f"{text}{between}{more}" if text else more


def _text(content: Any) -> str:
    """The text of a message's content, which is a string or a list of text parts."""
    if isinstance(content, (list, tuple)):
        return "\n".join(str(part.get("text", "")) for part in content)
    return "" if content is None else str(content)

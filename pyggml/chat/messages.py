"""Validation of callers' messages, and conversion to the format that templates read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyggml._core.checks import shown
from pyggml.chat.types import ChatMessage, ToolCall, json_object
from pyggml.errors import InvalidParameterError

#: A message that a chat accepts: a ChatMessage, or a mapping in OpenAI's format.
Message = ChatMessage | Mapping[str, Any]

#: A message in OpenAI's format: "content" is text or a list of text parts, the "arguments" of a call are JSON text.
JSONMessage = dict[str, Any]

#: A function that changes a text.
Change = Callable[[str], str]

_ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXTS = ("reasoning_content", "tool_call_id", "name")


def checked_messages(messages: Sequence[Message]) -> list[JSONMessage]:
    """Check messages and return copies in OpenAI's format, without keys that templates do not know.

    Raises:
        InvalidParameterError: a message is malformed; names the message and the field.
    """
    if isinstance(messages, str):
        raise InvalidParameterError(
            "messages is a text: chat([{'role': 'user', 'content': text}]) asks it, generate(text) continues it"
        )
    if isinstance(messages, (bytes, Mapping, ChatMessage)) or not isinstance(messages, Sequence):
        raise InvalidParameterError(
            f"messages must be a sequence of messages, not {type(messages).__name__}: put a single one in a list, "
            "as in chat([message])"
        )
    if not messages:
        raise InvalidParameterError("messages is empty: a chat needs at least one message")
    return [_message(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _message(place: str, message: Message) -> JSONMessage:
    if isinstance(message, ChatMessage):
        message = vars(message)
    if not isinstance(message, Mapping):
        raise InvalidParameterError(
            f"{place} must be a ChatMessage or {{'role': ..., 'content': ...}}, not {type(message).__name__}"
        )
    found: JSONMessage = {"role": _role(place, message.get("role"))}
    calls = _tool_calls(f"{place}.tool_calls", message.get("tool_calls"))
    if message.get("content") is not None:
        found["content"] = _content(f"{place}.content", message["content"])
    elif calls:
        found["content"] = ""
    else:
        raise InvalidParameterError(f"{place} has neither content nor tool_calls")
    if calls:
        found["tool_calls"] = calls
    return found | {
        name: _text(f"{place}.{name}", message[name]) for name in _TEXTS if message.get(name) not in (None, "")
    }


def _role(place: str, role: object) -> str:
    if role in _ROLES:
        return str(role)
    what = "no role" if role is None else f"the role {shown(role)}"
    raise InvalidParameterError(f"{place} has {what}; roles are {', '.join(_ROLES)}")


def _content(place: str, content: object) -> str | list[JSONMessage]:
    if isinstance(content, (list, tuple)):
        return [_part(f"{place}[{i}]", part) for i, part in enumerate(content)]
    return _text(place, content)


def _part(place: str, part: object) -> JSONMessage:
    if isinstance(part, str):
        return {"type": "text", "text": _text(place, part)}
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind != "text" or not isinstance(part, Mapping):
        raise InvalidParameterError(
            f"{place} must be a text part, {{'type': 'text', 'text': ...}}, not {shown(kind)}: models only read text "
            "here"
        )
    return {"type": "text", "text": _text(f"{place}.text", part.get("text"))}


def _text(place: str, text: object) -> str:
    if not isinstance(text, str):
        raise InvalidParameterError(f"{place} must be a string, not {type(text).__name__}")
    if "\0" in text:
        raise InvalidParameterError(f"{place} contains a NUL character at index {text.index(chr(0))}: remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameterError(
            f"{place} contains an unpaired surrogate at index {error.start}, which UTF-8 cannot encode"
        ) from None
    return text


def _tool_calls(place: str, calls: object) -> list[JSONMessage]:
    if calls is None:
        return []
    if not isinstance(calls, (list, tuple)):
        raise InvalidParameterError(f"{place} must be a list of calls, not {type(calls).__name__}")
    return [_tool_call(f"{place}[{i}]", call) for i, call in enumerate(calls)]


def _tool_call(place: str, call: object) -> JSONMessage:
    if isinstance(call, ToolCall):
        call = call.to_dict()
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping) or call.get("type", "function") != "function":
        raise InvalidParameterError(
            f"{place} must be a ToolCall or {{'type': 'function', 'function': {{'name': ..., 'arguments': ...}}}}"
        )
    found: JSONMessage = {
        "type": "function",
        "function": {
            "name": _text(f"{place}.function.name", function.get("name")),
            "arguments": _arguments(f"{place}.function.arguments", function.get("arguments", "{}")),
        },
    }
    return found | ({"id": _text(f"{place}.id", call["id"])} if call.get("id") else {})


def _arguments(place: str, arguments: object) -> str:
    if isinstance(arguments, Mapping):
        try:
            return json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidParameterError(f"{place} must consist of JSON values: {error}") from None
    json_object(place, _text(place, arguments))
    return str(arguments)


def map_texts(messages: Sequence[JSONMessage], change: Change) -> list[JSONMessage]:
    """Copy checked messages with every text changed, including the names of calls and of their arguments."""
    return [_map_message(message, change) for message in messages]


def map_strings(value: Any, change: Change, change_key: Change | None = None) -> Any:
    """Copy a JSON value with every string changed, and the keys too if ``change_key`` is given."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        key_of = change_key or (lambda key: key)
        return {key_of(key): map_strings(item, change, change_key) for key, item in value.items()}
    return [map_strings(item, change, change_key) for item in value] if isinstance(value, (list, tuple)) else value


def _map_message(message: JSONMessage, change: Change) -> JSONMessage:
    texts = {key: map_strings(value, change) for key, value in message.items() if key not in ("role", "tool_calls")}
    calls = [_map_call(call, change) for call in message.get("tool_calls", ())]
    return {**message, **texts, **({"tool_calls": calls} if calls else {})}


def _map_call(call: JSONMessage, change: Change) -> JSONMessage:
    function = call["function"]
    arguments = json.loads(function["arguments"])
    new = map_strings(arguments, change, change)
    text = function["arguments"] if new == arguments else json.dumps(new, ensure_ascii=False)
    ids = {"id": change(call["id"])} if "id" in call else {}
    return {**call, **ids, "function": {"name": change(function["name"]), "arguments": text}}

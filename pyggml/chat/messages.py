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
_KEYS = ("role", "content", "tool_calls", *_TEXTS)
_ALIASES = {"reasoning": "reasoning_content"}  # OpenRouter's and vLLM's name
# Values that say no more than an absent key: clients send back what a server sent them, with its null fields.
_ABSENT: tuple[Any, ...] = (None, "", [], {}, ())


def checked_messages(messages: Sequence[Message]) -> list[JSONMessage]:
    """Check messages and return copies in OpenAI's format, without keys that are null or empty.

    Args:
        messages: the conversation, each message a ChatMessage or a mapping in OpenAI's format.

    Raises:
        InvalidParameterError: a message is malformed or has an unknown key; names the message and the field.
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
        way_out = f": write {place}.message" if hasattr(message, "message") else ""
        raise InvalidParameterError(
            f"{place} must be a ChatMessage or {{'role': ..., 'content': ...}}, not {type(message).__name__}{way_out}"
        )
    role = _role(place, message.get("role"))
    given: dict[str, Any] = {}
    for key, value in message.items():
        if value not in _ABSENT and given.setdefault(_ALIASES.get(key, key), value) != value:
            raise InvalidParameterError(f"{place} has 'reasoning' and 'reasoning_content', which differ: give one")
    _require_known_keys(place, given)
    calls = _tool_calls(f"{place}.tool_calls", given.get("tool_calls"))
    if given.get("content", message.get("content")) is None and not calls:
        raise InvalidParameterError(f"{place} has neither content nor tool_calls")
    found: JSONMessage = {"role": role, "content": _content(f"{place}.content", message.get("content") or "")}
    for key, value in given.items():
        if key == "tool_calls":
            found[key] = calls
        elif key in _TEXTS:
            found[key] = _text(f"{place}.{key}", value)
    return found


def _require_known_keys(place: str, given: Mapping[str, Any]) -> None:
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        images = unknown[0] in ("images", "audio", "videos")
        raise InvalidParameterError(
            f"{place} has the unknown key {shown(unknown[0])}; "
            + ("models only read text here" if images else f"known are {', '.join((*_KEYS, *_ALIASES))}")
        )


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
    if kind in ("tool_use", "tool_result"):
        raise InvalidParameterError(
            f"{place} has Anthropic's type {shown(kind)}: write 'tool_calls' in the assistant's message, and the "
            "result as a message with the role 'tool'"
        )
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
    if not isinstance(call, Mapping) or not isinstance(function, Mapping) or call.get("type") not in (None, "function"):
        raise InvalidParameterError(
            f"{place} must be a ToolCall or {{'type': 'function', 'function': {{'name': ..., 'arguments': ...}}}}"
        )
    found: JSONMessage = {
        "type": "function",
        "function": {
            "name": _text(f"{place}.function.name", function.get("name")),
            "arguments": _arguments(f"{place}.function.arguments", function.get("arguments")),
        },
    }
    return ({"id": _text(f"{place}.id", call["id"])} if call.get("id") else {}) | found


def _arguments(place: str, arguments: object) -> str:
    """Check arguments and return their JSON text; a call without any may have null, "" or "null"."""
    if isinstance(arguments, Mapping):
        try:
            return json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidParameterError(f"{place} must consist of JSON values: {error}") from None
    if arguments is None or (isinstance(arguments, str) and arguments.strip() in ("", "null")):
        return "{}"
    json_object(place, _text(place, arguments))
    return str(arguments)


def with_parsed_arguments(messages: Sequence[JSONMessage]) -> list[JSONMessage]:
    """Copy checked messages with the arguments of calls as objects, as most templates read them."""
    return [
        {**message, "tool_calls": [_parsed_call(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _parsed_call(call: JSONMessage) -> JSONMessage:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}


def map_texts(messages: Sequence[JSONMessage], change: Change) -> list[JSONMessage]:
    """Copy messages with parsed arguments, with every text changed, including the names of calls and of arguments."""
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
    ids = {"id": change(call["id"])} if "id" in call else {}
    arguments = map_strings(function["arguments"], change, change)
    return {**call, **ids, "function": {"name": change(function["name"]), "arguments": arguments}}

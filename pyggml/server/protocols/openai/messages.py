"""Messages in forms that only OpenAI's API knows, in the one that chats here know."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def in_our_form(messages: list[Json]) -> list[Json]:
    """Messages without refusals, and with calls of tools where the older API had calls of functions."""
    return [_message(each) for each in messages]


def _message(message: Json) -> Json:
    found = {**message, "content": _content(message)}
    if message.get("role") == "function":
        found |= {"role": "tool", "tool_call_id": message.get("name")}
    if isinstance(message.get("function_call"), dict) and not message.get("tool_calls"):
        function = message["function_call"]
        found["tool_calls"] = [{"id": function.get("name"), "type": "function", "function": function}]
    if found.get("reasoning_content") is None and isinstance(message.get("reasoning"), str):
        found["reasoning_content"] = message["reasoning"]
    if found["content"] is None and found.get("reasoning_content"):
        found["content"] = ""
    return found


def _content(message: Json) -> Any:
    """The content; what the model refused, if it refused."""
    content = message.get("content")
    if content is None:
        return message.get("refusal")
    if not isinstance(content, list):
        return content
    return [_part(each) for each in content]


def _part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    return part

"""Functions, as chats had them before they had tools: one call in an answer, and no id."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def choice(function_call: str | Json | None) -> str | Json:
    """The ``tool_choice`` that a ``function_call`` means."""
    if isinstance(function_call, dict):
        return {"type": "function", "function": function_call}
    return function_call or "auto"


def adapt(choice: Json, kind: str) -> None:
    """Writes a choice's call of a tool as a call of a function, in a "message" or in a "delta"."""
    calls = choice[kind].pop("tool_calls", None)
    if calls:
        choice[kind]["function_call"] = calls[0]["function"]
    if choice["finish_reason"] == "tool_calls":
        choice["finish_reason"] = "function_call"

"""Choice of the tools that an answer may call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyggml._core.checks import items, shown
from pyggml.errors import InvalidParameterError

_TOOL_CHOICES = ("auto", "none", "required")


@dataclass(frozen=True)
class ToolSelection:
    """The tools to show in the prompt, the choice ("auto", "none", "required"), and the only tool to call, if any."""

    tools: list[dict[str, Any]]
    choice: str
    only: dict[str, Any] | None = None


def selected_tools(tools: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any]) -> ToolSelection:
    """Check tools and the choice among them.

    Raises:
        InvalidParameterError: one of them is invalid.
    """
    given = [mapping("a tool", tool) for tool in (() if tools is None else items("tools", tools))]
    name = _function_name(choice) if isinstance(choice, Mapping) else choice
    if isinstance(choice, str) and choice in _TOOL_CHOICES:
        if name == "required" and not given:
            raise InvalidParameterError("tool_choice is 'required', but no tools were given")
        return ToolSelection(given, choice)
    only = [tool for tool in given if isinstance(name, str) and _function_name(tool) == name]
    if not only:
        names = ", ".join(repr(_function_name(tool)) for tool in given) or "none"
        raise InvalidParameterError(
            f"tool_choice must be 'auto', 'none', 'required' or the name of a tool ({names}), not {shown(choice)}"
        )
    return ToolSelection(given, "required", only[0])


def _function_name(tool: Mapping[str, Any]) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, Mapping) else None


def mapping(name: str, value: object) -> dict[str, Any]:
    """Require a mapping, and copy it; ``name`` is for the message."""
    if not isinstance(value, Mapping):
        raise InvalidParameterError(f"{name} must be a mapping, not {type(value).__name__}")
    return dict(value)

"""Bodies of ``/v1/responses``, and the conversion of their items to the messages of a chat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field as BodyField

from pyggml.server.http import errors
from pyggml.server.http.errors import RequestError
from pyggml.server.http.generation import ChatInput
from pyggml.server.http.request_body import Body, require_known_fields
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.chat_options import ReasoningEffort
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides

Item = dict[str, Any]


class Reasoning(Body):
    """Effort of reasoning.

    Attributes:
        effort: "none" disables reasoning; others are for templates with the variable ``reasoning_effort``.
    """

    effort: ReasoningEffort | None = None


class Text(Body):
    """Format of the output.

    Attributes:
        format: ``{"type": "text"}``, ``{"type": "json_object"}`` or ``{"type": "json_schema", "schema": ...}``.
    """

    format: dict[str, Any] | None = None


class CreateResponse(Sampling):
    """A conversation to respond to.

    The server stores no conversations: to continue one, a client sends all of it.

    Attributes:
        model: name of the model.
        input: the user's message, or the items of the conversation so far.
        instructions: a system message before them.
        max_output_tokens: maximum number of tokens to generate; -1: up to the end of the context; None: the default.
        tools: functions that the model may call. Tools of other types, which run at OpenAI or in its own clients, are
            left out; the response names them in ``skipped_tools``.
        tool_choice: "auto", "none", "required", or ``{"type": "function", "name": ...}``.
        parallel_tool_calls: allow several calls in one response.
        text: format of the output.
        reasoning: effort of reasoning.
        stream: stream the response as events.
        previous_response_id: refused: the server stores no responses.
        conversation: refused for the same reason.
        background: refused: clients must wait for their responses.
        include: additional output: "message.output_text.logprobs".
        top_logprobs: number of most likely tokens at each position to return, with their log probabilities.
        metadata: returned unchanged.
        truncation: "auto": leave out the oldest turns of a conversation that is too long; "disabled": refuse it.
    """

    unsupported: ClassVar[Mapping[str, tuple[str, str]]] = {
        name: (
            f"{name} is not supported, as the server stores no responses: send the whole conversation",
            "unsupported_value",
        )
        for name in ("previous_response_id", "conversation", "background")
    }

    terms: ClassVar[Mapping[str, str]] = {"max_tokens": "max_output_tokens"}

    model: str = DEFAULT
    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: Annotated[int, BodyField(ge=-1)] | None = None
    tools: list[Item] | None = None
    tool_choice: str | Item | None = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, BodyField(ge=0, le=20)] | None = None
    metadata: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None

    @property
    def format(self) -> Item:
        """Format of the output."""
        return (self.text and self.text.format) or {"type": "text"}

    @property
    def wants_logprobs(self) -> bool:
        """True if log probabilities are requested."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())

    def to_chat(self) -> ChatInput:
        """Return the request in the library's terms.

        Raises:
            RequestError: 400, an item or a tool is of an unsupported type.
        """
        sampling = sampling_overrides(
            self,
            max_tokens=self.max_output_tokens,
            response_format=None if self.format.get("type") == "text" else self.format,
            logprobs=(self.top_logprobs or 1) if self.wants_logprobs else None,
            overflow="shift" if self.truncation == "auto" else None,
        )
        instructions = [{"role": "system", "content": self.instructions}] if self.instructions else []
        said = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else _messages(self.input)
        return ChatInput([*instructions, *said], sampling, self._options())

    @property
    def skipped_tools(self) -> list[str]:
        """Types of the tools that the model cannot call."""
        return [str(tool["type"]) for tool in self.tools or () if not _is_function(tool)]

    def _options(self) -> dict[str, Any]:
        tools = [_tool(tool) for tool in self.tools or () if _is_function(tool)]
        if self.tool_choice == "required" and self.skipped_tools and not tools:
            skipped = ", ".join(self.skipped_tools)
            raise _invalid(f"tool_choice is 'required', but the model can call no tool of the type {skipped}", "tools")
        options: dict[str, Any] = {"tools": tools, "parallel_tool_calls": bool(self.parallel_tool_calls)}
        if tools and self.tool_choice is not None:
            options["tool_choice"] = _tool_choice(self.tool_choice)
        effort = self.reasoning.effort if self.reasoning else None
        if effort == "none":
            options["thinking"] = False
        elif effort is not None:
            options["template_kwargs"] = {"reasoning_effort": effort}
        return options


def _messages(items: Sequence[Item]) -> Iterator[Item]:
    """Convert items to messages. The model's reasoning, text and calls of one turn become one message."""
    turn: Item = {}
    for index, item in enumerate(items):
        kind = item.get("type") or "message"
        if not isinstance(kind, str):
            raise _invalid(f"input[{index}] has a type that is not text: {kind!r:.80}", "input")
        if kind == "reasoning":
            turn |= {"reasoning_content": _reasoning(item)}
        elif kind == "function_call":
            turn.setdefault("tool_calls", []).append(_call(item, item.get("arguments")))
        elif kind == "custom_tool_call":
            turn.setdefault("tool_calls", []).append(_call(item, json.dumps({"input": item.get("input")})))
        elif kind in _SKIPPED_ITEMS:
            continue
        elif kind == "message" and item.get("role") == "assistant":
            if "content" in turn or "tool_calls" in turn:
                yield _assistant(turn)
                turn = {}
            turn["content"] = _content(index, item) or ""
        else:
            if turn:
                yield _assistant(turn)
                turn = {}
            yield _other(index, kind, item)
    if turn:
        yield _assistant(turn)


# Calls, and their results, of tools that run at OpenAI or in its clients. The model here has no such tools.
_SKIPPED_ITEMS = frozenset(
    (
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "computer_call",
        "computer_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
    )
)
_RESULTS = ("function_call_output", "custom_tool_call_output")
_MESSAGE_FIELDS = ("type", "id", "role", "content", "status", "phase")


def _assistant(turn: Item) -> Item:
    return {"role": "assistant", "content": "", **turn}


def _other(index: int, kind: object, item: Item) -> Item:
    if kind == "message":
        return {"role": item.get("role"), "content": _content(index, item)}
    if kind in _RESULTS:
        content = item.get("output")
        return {
            "role": "tool",
            "tool_call_id": str(item.get("call_id") or ""),
            "content": _parts(index, content) if isinstance(content, list) else content,
        }
    raise _invalid(f"input[{index}] has the type {kind!r}, which is not supported", "input")


def _content(index: int, item: Item) -> Any:
    try:
        require_known_fields(item, _MESSAGE_FIELDS)
    except ValueError as error:
        raise _invalid(f"input[{index}] has an {error}", "input") from None
    content = item.get("content")
    return _parts(index, content) if isinstance(content, list) else content


def _parts(index: int, parts: list[Any]) -> list[Item]:
    found = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind not in ("input_text", "output_text", "text", "refusal"):
            raise _invalid(f"input[{index}] has a part of the type {kind!r}: models only read text here", "input")
        found.append({"type": "text", "text": part.get("refusal" if kind == "refusal" else "text")})
    return found


def _reasoning(item: Item) -> str:
    parts = item.get("content") or item.get("summary") or []
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _call(item: Item, arguments: Any) -> Item:
    function = {"name": item.get("name"), "arguments": arguments}
    return {"type": "function", "id": str(item.get("call_id") or ""), "function": function}


def _is_function(tool: Item) -> bool:
    return (tool.get("type") or "function") == "function"


def _tool(tool: Item) -> Item:
    function = {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: str | Item) -> str | Item:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type")
    if kind == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise _invalid(f"tool_choice has the type {kind!r}: name a function, or say auto, none or required", "tool_choice")


def _invalid(message: str, param: str) -> RequestError:
    return errors.invalid(message, param, "unsupported_value")

"""What ``/v1/responses`` takes, and how its items become the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field as BodyField

from pyggml.server.http import errors
from pyggml.server.http.errors import RequestError
from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.sampling_fields import Sampling, given

Item = dict[str, Any]


class Reasoning(Body):
    """How much a model reasons.

    Attributes:
        effort: "none" turns it off; others are for models that know the variable ``reasoning_effort``.
    """

    effort: str | None = None


class Text(Body):
    """The form of an answer.

    Attributes:
        format: ``{"type": "text"}``, ``{"type": "json_object"}`` or ``{"type": "json_schema", "schema": ...}``.
    """

    format: dict[str, Any] | None = None


class CreateResponse(Sampling):
    """A request to answer.

    Nothing is kept: a client that goes on with a conversation sends all of it.

    Attributes:
        model: name of the model.
        input: the question, or the items of the conversation so far.
        instructions: a system message that stands before them.
        max_output_tokens: maximum number of tokens to generate; None: what the context has room for.
        tools: functions that the model may call.
        tool_choice: "auto", "none", "required", or ``{"type": "function", "name": ...}``.
        parallel_tool_calls: allow several calls in one answer.
        text: the form of the answer.
        reasoning: how much the model reasons.
        stream: send the answer in events.
        previous_response_id: refused, since no response is kept.
        conversation: refused for the same reason.
        background: refused: an answer is computed while its client waits.
        include: what to add: "message.output_text.logprobs".
        top_logprobs: number of likeliest tokens in each place, with their log probabilities.
        metadata: returned as it is.
    """

    model: str = DEFAULT
    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: Annotated[int, BodyField(ge=0)] | None = None
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

    @property
    def format(self) -> Item:
        """The form of the answer."""
        return (self.text and self.text.format) or {"type": "text"}

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer's tokens come with their log probabilities."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())

    @property
    def sampling(self) -> Mapping[str, Any]:
        """The sampling parameters that the request sets."""
        return given(
            self,
            max_tokens=self.max_output_tokens,
            response_format=None if self.format.get("type") == "text" else self.format,
            logprobs=(self.top_logprobs or 1) if self.wants_logprobs else None,
        )

    @property
    def chat_options(self) -> dict[str, Any]:
        """The other parameters of a chat.

        Raises:
            RequestError: 400, a tool is not a function.
        """
        tools = [_tool(place, tool) for place, tool in enumerate(self.tools or ())]
        options: dict[str, Any] = {"tools": tools, "parallel_tool_calls": bool(self.parallel_tool_calls)}
        if tools and self.tool_choice is not None:
            options["tool_choice"] = _tool_choice(self.tool_choice)
        effort = self.reasoning.effort if self.reasoning else None
        if effort == "none":
            options["thinking"] = False
        elif effort is not None:
            options["template_kwargs"] = {"reasoning_effort": effort}
        return options

    def require_nothing_kept(self) -> None:
        """Refuses what would need earlier responses.

        Raises:
            RequestError: 400, it is asked for.
        """
        for name in ("previous_response_id", "conversation", "background"):
            if getattr(self, name):
                raise _invalid(f"{name} is not supported, since nothing is kept: send the whole conversation", name)

    def messages(self) -> list[Item]:
        """The conversation in the form of a chat.

        Raises:
            RequestError: 400, an item is none that a chat knows.
        """
        instructions = [{"role": "system", "content": self.instructions}] if self.instructions else []
        if isinstance(self.input, str):
            return [*instructions, {"role": "user", "content": self.input}]
        return [*instructions, *_messages(self.input)]


def _messages(items: Sequence[Item]) -> Iterator[Item]:
    """Messages of items. What a model said in one turn, its reasoning, text and calls, is one message."""
    turn: Item = {}
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "reasoning":
            turn |= {"reasoning_content": _reasoning(item)}
        elif kind == "function_call":
            turn.setdefault("tool_calls", []).append(_call(item))
        elif kind == "message" and item.get("role") == "assistant":
            if "content" in turn or "tool_calls" in turn:
                yield _assistant(turn)
                turn = {}
            turn["content"] = _content(place, item)
        else:
            if turn:
                yield _assistant(turn)
                turn = {}
            yield _other(place, kind, item)
    if turn:
        yield _assistant(turn)


def _assistant(turn: Item) -> Item:
    return {"role": "assistant", "content": "", **turn}


def _other(place: int, kind: object, item: Item) -> Item:
    if kind == "message":
        return {"role": item.get("role"), "content": _content(place, item)}
    if kind == "function_call_output":
        content = item.get("output")
        return {
            "role": "tool",
            "tool_call_id": str(item.get("call_id", "")),
            "content": _parts(place, content) if isinstance(content, list) else content,
        }
    raise _invalid(f"input[{place}] has the type {kind!r}, which is not supported", "input")


def _content(place: int, item: Item) -> Any:
    content = item.get("content")
    return _parts(place, content) if isinstance(content, list) else content


def _parts(place: int, parts: list[Any]) -> list[Item]:
    found = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind not in ("input_text", "output_text", "text", "refusal"):
            raise _invalid(f"input[{place}] has a part of the type {kind!r}: models only read text here", "input")
        found.append({"type": "text", "text": part.get("refusal" if kind == "refusal" else "text")})
    return found


def _reasoning(item: Item) -> str:
    parts = item.get("content") or item.get("summary") or []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _call(item: Item) -> Item:
    function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
    return {"type": "function", "id": str(item.get("call_id", "")), "function": function}


def _tool(place: int, tool: Item) -> Item:
    if tool.get("type", "function") != "function":
        raise _invalid(f"tools[{place}] has the type {tool['type']!r}: only functions are supported", "tools")
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

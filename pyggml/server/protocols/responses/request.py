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


class Conversation(Sampling):
    """A conversation, whose tokens can be counted.

    Attributes:
        model: name of the model.
        input: the user's message, or the items of the conversation so far.
        instructions: a system message before them.
        tools: functions that the model may call. Tools of other types, which run at OpenAI or in its own clients, are
            left out; the response names them in ``skipped_tools``.
        tool_choice: "auto", "none", "required", or ``{"type": "function", "name": ...}``.
        parallel_tool_calls: allow several calls in one response.
        text: format of the output.
        reasoning: effort of reasoning.
        previous_response_id: stored response that the conversation continues.
        conversation: refused: the server stores responses only.
        prompt: refused: the server stores no prompts.
        truncation: "auto": leave out the oldest turns of a conversation that is too long; "disabled": refuse it.
    """

    unsupported: ClassVar[Mapping[str, tuple[str, str]]] = {
        "conversation": (
            "conversation is not supported: continue a stored response by previous_response_id",
            "unsupported_value",
        ),
        "prompt": ("prompt is not supported: send its text in 'instructions' or 'input'", "unsupported_value"),
    }

    terms: ClassVar[Mapping[str, str]] = {"max_tokens": "max_output_tokens", "response_format": "text.format"}

    model: str = DEFAULT
    input: str | list[Item] = ""
    instructions: str | None = None
    tools: list[Item] | None = None
    tool_choice: str | Item | None = None
    parallel_tool_calls: bool | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    truncation: Literal["auto", "disabled"] | None = None

    @property
    def format(self) -> Item:
        """Format of the output."""
        return (self.text and self.text.format) or {"type": "text"}

    @property
    def response_format(self) -> Item | None:
        """Format of the output; None: any text."""
        return None if self.format.get("type") == "text" else self.format

    @property
    def input_items(self) -> list[Item]:
        """The input as items."""
        return (
            [{"type": "message", "role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        )

    def messages(self, items: Sequence[Item]) -> list[Item]:
        """Return the messages of a conversation with these items.

        Raises:
            RequestError: 400, an item is invalid.
        """
        instructions = [{"role": "system", "content": self.instructions}] if self.instructions else []
        return [*instructions, *messages_of(items)]

    @property
    def skipped_tools(self) -> list[str]:
        """Types of the tools that the model cannot call."""
        return [str(tool["type"]) for tool in self.tools or () if not _is_function(tool)]

    def options(self) -> dict[str, Any]:
        """Return the options of :meth:`pyggml.LLM.chat` other than sampling parameters.

        Raises:
            RequestError: 400, the choice of tools is invalid.
        """
        tools = [_tool(tool) for tool in self.tools or () if _is_function(tool)]
        choice, names = _tool_choice(self.tool_choice)
        if names is not None:
            tools = [tool for tool in tools if tool["function"].get("name") in names]
        if choice == "required" and self.skipped_tools and not tools:
            skipped = ", ".join(self.skipped_tools)
            raise _invalid(f"tool_choice is 'required', but the model can call no tool of the type {skipped}", "tools")
        is_single = isinstance(choice, dict)
        parallel = not is_single and self.parallel_tool_calls is not False
        options: dict[str, Any] = {"tools": tools, "parallel_tool_calls": parallel}
        if tools:
            options["tool_choice"] = choice
        effort = self.reasoning.effort if self.reasoning else None
        if effort == "none":
            options["thinking"] = False
        elif effort is not None:
            options["template_kwargs"] = {"reasoning_effort": effort}
        return options


class CreateResponse(Conversation):
    """A conversation to respond to.

    Attributes:
        max_output_tokens: maximum number of tokens to generate; -1: up to the end of the context; None: the default.
        stream: stream the response as events.
        store: keep the response, for requests that read or continue it; None: yes.
        background: refused: clients must wait for their responses.
        include: additional output: "message.output_text.logprobs".
        top_logprobs: number of most likely tokens at each position to return, with their log probabilities.
        metadata: returned unchanged.
    """

    unsupported: ClassVar[Mapping[str, tuple[str, str]]] = {
        **Conversation.unsupported,
        "background": ("background is not supported: wait for the response, or stream it", "unsupported_value"),
    }

    input: str | list[Item]
    max_output_tokens: Annotated[int, BodyField(ge=-1)] | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, BodyField(ge=0, le=20)] | None = None
    metadata: dict[str, Any] | None = None

    @property
    def is_stored(self) -> bool:
        """True if the server keeps the response."""
        return self.store is not False

    @property
    def wants_logprobs(self) -> bool:
        """True if log probabilities are requested."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())

    def to_chat(self, items: Sequence[Item] | None = None) -> ChatInput:
        """Return the request in the library's terms; ``items`` are those of the whole conversation. None: the input's.

        Raises:
            RequestError: 400, an item or the choice of tools is invalid.
        """
        sampling = sampling_overrides(
            self,
            max_tokens=self.max_output_tokens,
            response_format=self.response_format,
            logprobs=(self.top_logprobs or 1) if self.wants_logprobs else None,
            overflow="shift" if self.truncation == "auto" else None,
        )
        return ChatInput(self.messages(self.input_items if items is None else items), sampling, self.options())


def skipped_items(items: Sequence[Item]) -> list[str]:
    """Return the types of items that the model does not see, such as calls of tools that run at OpenAI."""
    kinds = (item.get("type") or "message" for item in items)
    return list(dict.fromkeys(kind for kind in kinds if kind not in _KNOWN_ITEMS))


def messages_of(items: Sequence[Item]) -> Iterator[Item]:
    """Convert items to messages. The model's reasoning, text and calls of one turn become one message.

    Items of other types are left out; see :func:`skipped_items`.
    """
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
        elif kind not in _KNOWN_ITEMS:
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


_RESULTS = ("function_call_output", "custom_tool_call_output")
_KNOWN_ITEMS = frozenset({"message", "reasoning", "function_call", "custom_tool_call", *_RESULTS})
_MESSAGE_FIELDS = ("type", "id", "role", "content", "status", "phase")


def _assistant(turn: Item) -> Item:
    return {"role": "assistant", "content": "", **turn}


def _other(index: int, kind: object, item: Item) -> Item:
    if kind == "message":
        return {"role": item.get("role"), "content": _content(index, item)}
    content = item.get("output")
    return {
        "role": "tool",
        "tool_call_id": str(item.get("call_id") or ""),
        "content": _parts(index, content) if isinstance(content, list) else content,
    }


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


def _tool_choice(choice: str | Item | None) -> tuple[str | Item, list[Any] | None]:
    """Return the choice for :meth:`pyggml.LLM.chat`, and the names of the allowed tools; None: all."""
    if choice is None or isinstance(choice, str):
        return choice or "auto", None
    kind = choice.get("type")
    if kind == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}, None
    if kind == "allowed_tools":
        allowed, mode = choice.get("tools"), choice.get("mode") or "auto"
        if not isinstance(allowed, list) or mode not in ("auto", "required"):
            raise _invalid("allowed_tools needs a list of tools, and the mode 'auto' or 'required'", "tool_choice")
        return mode, [tool.get("name") for tool in allowed if isinstance(tool, dict)]
    raise _invalid(f"tool_choice has the type {kind!r}: name a function, or say auto, none or required", "tool_choice")


def _invalid(message: str, param: str) -> RequestError:
    return errors.invalid(message, param, "unsupported_value")

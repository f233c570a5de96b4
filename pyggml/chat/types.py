"""Messages, tool calls, and the results of a chat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar

from pyggml._core import json_forms
from pyggml._core.hints import Hints, Record, hints
from pyggml._core.html_forms import Section
from pyggml._core.json_forms import NamesTokens
from pyggml.errors import InvalidParameterError
from pyggml.schema.typed_values import as_type
from pyggml.types import Chunk, Completion


@dataclass(frozen=True)
class ToolCall(Record):
    """A call to a tool that the model requested.

    Attributes:
        id: identifies the call, for the tool message that answers it.
        name: name of the tool.
        arguments_text: the arguments as JSON text; incomplete if the generation was cut off within the call.
    """

    id: str
    name: str
    arguments_text: str
    _types: InitVar[Mapping[str, Any] | None] = None

    _hints = hints("tool_call")

    def __post_init__(self, _types: Mapping[str, Any] | None) -> None:
        """Keep the types, which are no field, so that tools which convert dataclasses to JSON do not see them."""
        object.__setattr__(self, "_types", _types)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, ready for the tool: ``function(**call.arguments)``.

        If the tool is a Python function, they have the types of its annotations (enumerations, dataclasses, pydantic
        models ...), otherwise they are JSON values.

        Raises:
            InvalidParameterError: the text is not a JSON object, perhaps because the generation was cut off, or an
                argument has the wrong type.
        """
        arguments = json_object(f"the arguments of the call to {self.name}", self.arguments_text)
        types: Mapping[str, Any] | None = vars(self)["_types"]
        if types is None:
            return arguments
        return {name: self._as_its_type(name, value, types) for name, value in arguments.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the call in the format of chat templates and OpenAI's API."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments_text}}

    def _as_its_type(self, name: str, value: object, types: Mapping[str, Any]) -> Any:
        if name not in types:
            raise InvalidParameterError(f"the call to {self.name} has an unknown argument {name}")
        try:
            return as_type(types[name], value)
        except InvalidParameterError as error:
            raise InvalidParameterError(f"the argument {name} of the call to {self.name}: {error}") from error


@dataclass(frozen=True)
class ToolCallDelta:
    """An addition to a tool call that is being generated.

    Attributes:
        index: index of the call within the message.
        id: id of the call; only in its first delta.
        name: name of the tool; only in the first delta.
        arguments_text: text to append to the JSON text of the arguments.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments_text: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the delta in the format that OpenAI's API streams."""
        first = {"id": self.id, "type": "function"} if self.id else {}
        name = {"name": self.name} if self.name else {}
        return {"index": self.index, **first, "function": {**name, "arguments": self.arguments_text}}


@dataclass(frozen=True)
class ChatMessage(Record):
    """One message of a conversation. You can pass back the message that a chat returned.

    Attributes:
        role: "system", "developer", "user", "assistant" or "tool".
        content: text of the message.
        reasoning_content: reasoning that precedes the content; "" if there is none.
        tool_calls: calls that the model requests, in order.
        tool_call_id: for a tool message, the id of the call that it answers.
        name: for a tool message, the tool's name, which some templates need.
    """

    role: str = "assistant"
    content: str = ""
    reasoning_content: str = ""
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    name: str = ""

    _hints = hints("message")

    def to_dict(self) -> dict[str, Any]:
        """Return the message in the format of chat templates and OpenAI's API."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        texts = {name: getattr(self, name) for name in ("reasoning_content", "tool_call_id", "name")}
        message |= {name: text for name, text in texts.items() if text}
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return message


@dataclass(frozen=True)
class ChatDelta:
    """An addition to a message that is being generated. All deltas add up to exactly the whole message.

    Attributes:
        content: text to append.
        reasoning_content: text to append.
        tool_calls: deltas of calls, in order.
    """

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def __bool__(self) -> bool:
        """Return True if it adds anything."""
        return bool(self.content or self.reasoning_content or self.tool_calls)


@dataclass(frozen=True)
class ChatAbilities:
    """The features that a chat template supports.

    Attributes:
        system: system messages. If not, their text is put before the first user message.
        tools: tools, with a format for calls whose arguments can follow a schema. If not, pyggml describes the tools
            in the system message and uses its own format for calls.
        parallel_tool_calls: several calls in one message.
        thinking: reasoning before the answer, separate from it.
        keeps_reasoning: showing the model its reasoning from earlier turns.
        reasoning_effort: the variable ``reasoning_effort``.
    """

    system: bool
    tools: bool
    parallel_tool_calls: bool
    thinking: bool
    keeps_reasoning: bool
    reasoning_effort: bool


@dataclass(frozen=True)
class ChatCompletion(Completion):
    """A finished answer: a Completion, whose ``text`` is the model's raw output, and the message parsed from it.

    ``finish_reason`` is "tool_calls" if the model ended its turn with tool calls. A notebook shows the message, with
    tool calls and folded reasoning, and the facts of a Completion.

    Attributes:
        message: the answer.
        dropped_messages: number of the oldest messages that ``overflow="shift"`` left out of the prompt.
    """

    message: ChatMessage = field(kw_only=True)
    dropped_messages: int = field(default=0, kw_only=True)

    _hints: ClassVar[Hints] = {**hints("completion"), **hints("chat_completion")}
    _openai = ("chat.completion", "chatcmpl")

    @property
    def _content(self) -> str:
        return self.message.content

    def _html_sections(self) -> Iterator[Section]:
        if self.message.reasoning_content:
            yield Section("Reasoning", text=self.message.reasoning_content, is_folded=True)
        yield from super()._html_sections()

    def _facts(self) -> Iterator[tuple[str, str]]:
        for call in self.message.tool_calls:
            yield "tool call", call_text(call)
        yield from super()._facts()

    def _choice(self, tokenizer: NamesTokens | None) -> dict[str, Any]:
        message = self.message.to_dict()
        if self.message.tool_calls:
            message["content"] = message["content"] or None
        return _choice("message", message, self, tokenizer)


@dataclass(frozen=True)
class ChatChunk(Chunk):
    """A chunk of a running answer, and its addition to the message.

    All the chunks add up to exactly the completion's message.

    Attributes:
        content: text to append to ``content``.
        reasoning_content: text to append to ``reasoning_content``.
        tool_calls: deltas of tool calls, in order.
    """

    content: str = ""
    reasoning_content: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()

    _is_first: InitVar[bool] = field(default=False, kw_only=True)

    _hints: ClassVar[Hints] = {**hints("chunk"), **hints("chat_chunk")}
    _openai = ("chat.completion.chunk", "chatcmpl")

    def __post_init__(self, _origin: Any, _is_first: bool) -> None:
        """Keep what is no field."""
        self._keep(_origin=_origin, _is_first=_is_first)

    def _choice(self, tokenizer: NamesTokens | None) -> dict[str, Any]:
        texts = {"content": self.content, "reasoning_content": self.reasoning_content}
        delta: dict[str, Any] = {"role": "assistant", "content": ""} if vars(self)["_is_first"] else {}
        delta |= {name: text for name, text in texts.items() if text}
        if self.tool_calls:
            delta["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return _choice("delta", delta, self, tokenizer)


def _choice(
    name: str, message: dict[str, Any], result: Completion | Chunk, tokenizer: NamesTokens | None
) -> dict[str, Any]:
    return {
        name: message,
        "logprobs": json_forms.chat_logprobs(result.logprobs, tokenizer),
        **json_forms.end(result.finish_reason, result.stop_reason),
    }


def call_text(call: ToolCall) -> str:
    """Return a call as users read it: ``get_weather({"city": "Oslo"})``."""
    return f"{call.name}({call.arguments_text})"


def json_object(what: str, text: str) -> dict[str, Any]:
    """Parse the text of a JSON object; ``what``, a plural, names it in messages.

    Raises:
        InvalidParameterError: the text is not a JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameterError(
            f"{what} are not valid JSON (cut off by max_tokens or a stop string, perhaps?): {error}: {text!r}"
        ) from None
    if not isinstance(value, dict):
        raise InvalidParameterError(f"{what} must be a JSON object, not {text!r}")
    return value

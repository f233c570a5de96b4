"""The values of a conversation: messages, tool calls, and what a chat returns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyggml.chat.typed import as_type
from pyggml.errors import InvalidParameterError
from pyggml.types import Chunk, Completion


@dataclass(frozen=True)
class ToolCall:
    """A call of one tool, as the model asked for it.

    Attributes:
        id: names the call, for the tool message that answers it.
        name: of the tool.
        arguments_text: the arguments as JSON text; incomplete when the generation was cut inside the call.
    """

    id: str
    name: str
    arguments_text: str
    _types: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, to be handed to the tool: ``function(**call.arguments)``.

        Of a Python function they have the types it asks for (enumerations, dataclasses, pydantic models ...), else
        they are JSON values.

        Raises:
            InvalidParameterError: the text is no JSON object, which is so when the generation was cut inside it, or
                an argument is not of its type.
        """
        arguments = json_object(f"the arguments of the call of {self.name}", self.arguments_text)
        if self._types is None:
            return arguments
        return {name: self._as_its_type(name, value, self._types) for name, value in arguments.items()}

    def to_dict(self) -> dict[str, Any]:
        """The call as chat templates and OpenAI's API have it."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments_text},
        }

    def _as_its_type(self, name: str, value: object, types: Mapping[str, Any]) -> Any:
        if name not in types:
            raise InvalidParameterError(f"the call of {self.name} has an argument {name}, which it does not take")
        try:
            return as_type(types[name], value)
        except InvalidParameterError as error:
            raise InvalidParameterError(f"the argument {name} of the call of {self.name}: {error}") from error


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of a tool call that is being generated.

    Attributes:
        index: which of the message's calls, from 0.
        id: of the call; in its first piece.
        name: of the tool; in its first piece.
        arguments_text: what the arguments' JSON text grows by.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments_text: str = ""


@dataclass(frozen=True)
class ChatMessage:
    """One message of a conversation. What a chat returns can be passed back as it is.

    Attributes:
        role: "system", "developer", "user", "assistant" or "tool".
        content: what it says.
        reasoning_content: what the model thought before it said it; "" where it does not think.
        tool_calls: what it asks to be called, in order.
        tool_call_id: of a tool message, the call that it answers.
        name: of a tool message, the tool; some templates write it.
    """

    role: str = "assistant"
    content: str = ""
    reasoning_content: str = ""
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    name: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The message as chat templates and OpenAI's API have it."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        texts = {name: getattr(self, name) for name in ("reasoning_content", "tool_call_id", "name")}
        message |= {name: text for name, text in texts.items() if text}
        if self.tool_calls:
            message["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        return message


@dataclass(frozen=True)
class ChatDelta:
    """What a piece of generated text adds to a message; all of them join to exactly the whole message.

    Attributes:
        content: text to append.
        reasoning_content: text to append.
        tool_calls: pieces of calls, in order.
    """

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.content or self.reasoning_content or self.tool_calls)


@dataclass(frozen=True)
class ChatAbilities:
    """What a chat template can express.

    Attributes:
        system: system messages; without, their text goes to the front of the first user message.
        tools: it describes tools to the model, in a format for calls whose arguments can be held to a schema; without,
            pyggml describes them in the system message, with a format of its own.
        parallel_tool_calls: several calls in one message.
        thinking: the model may reason before it answers, apart from the answer.
        keeps_reasoning: it can show the model the reasoning of earlier turns.
        reasoning_effort: it reads the variable ``reasoning_effort``.
    """

    system: bool
    tools: bool
    parallel_tool_calls: bool
    thinking: bool
    keeps_reasoning: bool
    reasoning_effort: bool


@dataclass(frozen=True)
class ChatCompletion(Completion):
    """A finished answer: all of a Completion, whose ``text`` is what the model wrote, and the message that it means.

    ``finish_reason`` is "tool_calls" when the model ended its turn to have tools called.

    Attributes:
        message: the answer.
    """

    message: ChatMessage = field(kw_only=True)


@dataclass(frozen=True)
class ChatChunk(Chunk):
    """A piece of a running answer: all of a Chunk, and what it adds to the message.

    The pieces of all chunks join to exactly the completion's message.

    Attributes:
        content: what ``content`` grows by.
        reasoning_content: what ``reasoning_content`` grows by.
        tool_calls: what the tool calls grow by.
    """

    content: str = ""
    reasoning_content: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()


def json_object(what: str, text: str) -> dict[str, Any]:
    """A JSON object's text as a dictionary.

    Raises:
        InvalidParameterError: it is none; ``what`` names it.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameterError(
            f"{what} are no JSON (cut off, perhaps by max_tokens?): {error}: {text!r}"
        ) from None
    if not isinstance(value, dict):
        raise InvalidParameterError(f"{what} must be a JSON object, not {text!r}")
    return value

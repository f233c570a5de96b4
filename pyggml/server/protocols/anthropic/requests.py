"""What Anthropic's API is asked, and the same in the library's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from pyggml.server.http import errors
from pyggml.server.http.request_body import Body
from pyggml.server.protocols.sampling_fields import Sampling, given


class Text(Body):
    """A text."""

    type: Literal["text"]
    text: str


def _kind(content: object) -> str:
    return "blocks" if isinstance(content, list) else "text"


Texts = Annotated[Annotated[str, Tag("text")] | Annotated[list[Text], Tag("blocks")], Discriminator(_kind)]


class Thinking(Body):
    """What the assistant thought, sent back. The signature is not checked."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinking(Body):
    """What another server's assistant thought, which only that server can read; it is left out."""

    type: Literal["redacted_thinking"]
    data: str = ""


class ToolUse(Body):
    """A call that the assistant made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResult(Body):
    """What a call returned; its text says whether that is an error."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Texts = ""


Block = Annotated[Text | Thinking | RedactedThinking | ToolUse | ToolResult, Field(discriminator="type")]
Content = Annotated[Annotated[str, Tag("text")] | Annotated[list[Block], Tag("blocks")], Discriminator(_kind)]


class Message(Body):
    """A turn, or a part of one: turns of the same role that follow each other are one."""

    role: Literal["user", "assistant", "system"]
    content: Content


class Tool(Body):
    """A tool that the caller runs. Those that Anthropic runs are not here."""

    type: Literal["custom"] | None = None
    name: str
    description: str = ""
    input_schema: dict[str, Any]


class ToolChoice(Body):
    """Whether tools are called: if the model wants to, any, the named one, or none."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _require_name(self) -> ToolChoice:
        if self.type == "tool" and self.name is None:
            raise ValueError("the type 'tool' needs the name of the tool")
        return self


class ThinkingConfig(Body):
    """Whether the model thinks first. There is no budget of its own for that: ``max_tokens`` counts both."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class JSONFormat(Body):
    """A JSON schema that the answer matches."""

    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Body):
    """What the answer looks like, and how hard to think."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JSONFormat | None = None


class Conversation(Sampling):
    """A conversation to answer.

    Attributes:
        model: name of the model.
        messages: the turns.
        system: the instructions.
        tools: the tools that the model may call.
        tool_choice: whether it does.
        thinking: whether it thinks first; None: as its template has it.
        output_config: what the answer looks like.
        output_format: the older place for ``output_config.format``.
        thread: refused, since nothing is kept between requests.
        mcp_servers: refused: the server calls no others.
    """

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    system: Texts | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: JSONFormat | None = None
    thread: Any = None
    mcp_servers: list[Any] | None = None

    def require_nothing_else(self) -> None:
        """Refuses what would need more than this conversation.

        Raises:
            RequestError: 400, it is asked for.
        """
        if self.thread is not None:  # by this code the client's tool runner knows that it has to send everything
            message = "threads are not supported, since nothing is kept: send the whole conversation"
            raise errors.invalid(message, "thread", "thread_unsupported_request")
        if self.mcp_servers:
            message = "mcp_servers are not supported: call their tools yourself, as tools of your own"
            raise errors.invalid(message, "mcp_servers", "unsupported_value")

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema that the answer has to match."""
        form = (self.output_config and self.output_config.format) or self.output_format
        return None if form is None else form.json_schema

    def library_messages(self) -> list[dict[str, Any]]:
        """The messages in the library's form, which is OpenAI's."""
        turns = _Turns()
        if self.system:
            turns.add("system", [_without_stamp(text) for text in _texts(self.system)])
        for message in self.messages:
            if isinstance(message.content, str):
                turns.add(message.role, [message.content])
            else:
                for block in message.content:
                    turns.add_block(message.role, block)
        return turns.messages

    def options(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The options of :meth:`pyggml.LLM.chat`, for these messages, that are not sampling parameters."""
        choice = self.tool_choice or ToolChoice(type="auto")
        effort = self.output_config and self.output_config.effort
        return {
            "tools": [_tool(each) for each in self.tools or ()],
            "tool_choice": choice.name or _TOOL_CHOICES[choice.type],
            "parallel_tool_calls": not choice.disable_parallel_tool_use,
            "thinking": None if self.thinking is None else self.thinking.type != "disabled",
            "continue_final_message": _end_with_the_answers_beginning(messages),
            "template_kwargs": {"reasoning_effort": _EFFORTS.get(effort, effort)} if effort else {},
        }


class CreateMessage(Conversation):
    """A conversation to answer.

    Attributes:
        max_tokens: maximum number of tokens to generate, with those of thinking and calls.
        stop_sequences: strings that end the answer.
        stream: answer in events.
        grammar: GBNF grammar that the whole answer must match, which is no field of Anthropic's.
    """

    max_tokens: Annotated[int, Field(ge=0)]
    stop_sequences: list[Annotated[str, Field(min_length=1)]] | None = None
    stream: bool = False
    grammar: str | None = None

    def sampling(self) -> Mapping[str, Any]:
        """The fields of SamplingParams that it sets."""
        return given(
            self,
            max_tokens=self.max_tokens,
            stop=self.stop_sequences or None,
            json_schema=self.json_schema,
            grammar=self.grammar,
        )


_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

# Templates know three levels.
_EFFORTS = {"xhigh": "high", "max": "high"}

# What Claude Code writes before its system prompt differs in every request, so no prefix of it would be found again.
_STAMP = re.compile(r"^x-anthropic-billing-header:[^\n]*?\bcch=\w*;?")


class _Turns:
    """Messages in the library's form, of which those of the same role that follow each other are one."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._tool_names: dict[str, str] = {}

    def add_block(self, role: str, block: Text | Thinking | RedactedThinking | ToolUse | ToolResult) -> None:
        if isinstance(block, Text):
            self.add(role, [block.text])
        elif isinstance(block, Thinking):
            message = self._message(role)
            message["reasoning_content"] = message.get("reasoning_content", "") + block.thinking
        elif isinstance(block, ToolUse):
            self._tool_names[block.id] = block.name
            function = {"name": block.name, "arguments": block.input}
            call = {"id": block.id, "type": "function", "function": function}
            self._message(role).setdefault("tool_calls", []).append(call)
        elif isinstance(block, ToolResult):
            name = self._tool_names.get(block.tool_use_id, "")
            content = _parts(_texts(block.content))
            self.messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "name": name, "content": content})

    def add(self, role: str, texts: list[str]) -> None:
        self._message(role)["content"] += _parts(texts)

    def _message(self, role: str) -> dict[str, Any]:
        """The message to which something of a role belongs."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        return self.messages[-1]


def _end_with_the_answers_beginning(messages: Sequence[Mapping[str, Any]]) -> bool:
    return bool(messages) and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]


def _parts(texts: list[str]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _texts(content: str | list[Text]) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content]


def _without_stamp(text: str) -> str:
    return _STAMP.sub("", text)


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}

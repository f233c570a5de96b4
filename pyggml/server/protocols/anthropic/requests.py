"""Bodies of Anthropic's API, and their conversion to the library's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from pyggml.server.http import errors
from pyggml.server.http.generation import ChatInput
from pyggml.server.http.request_body import Body, StrictBody
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides


class Text(Body):
    """A text."""

    type: Literal["text"]
    text: str


def _kind(content: object) -> str:
    return _BLOCKS if isinstance(content, list) else _TEXT


def _block_type(block: dict[str, Any] | Body) -> Any:
    return block.get("type") if isinstance(block, dict) else getattr(block, "type", None)


def _require_type(known: Sequence[str], *, skips: bool = False) -> BeforeValidator:
    """Return a validator that refuses content blocks of other types, but not those of tools that are left out."""

    def check(block: Any) -> Any:
        if not isinstance(block, (dict, Body)):
            raise PydanticCustomError("content", "a block of content must be an object")
        kind = _block_type(block)
        if kind in known or (skips and _is_of_server(block)):
            return block
        reason = "models only read text here" if kind in ("image", "document") else f"known are {', '.join(known)}"
        context = {"kind": f"{kind!r:.100}", "reason": reason}
        raise PydanticCustomError("content", "content of the type {kind} is not supported: {reason}", context)

    return BeforeValidator(check)


# Tags in the form of types, which paths in errors leave out.
_TEXT, _BLOCKS = "str", "list[block]"

_TextBlock = Annotated[Text, _require_type(["text"])]
Texts = Annotated[Annotated[str, Tag(_TEXT)] | Annotated[list[_TextBlock], Tag(_BLOCKS)], Discriminator(_kind)]


class Thinking(Body):
    """The assistant's earlier thinking, sent back. The signature is not checked."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinking(Body):
    """Encrypted thinking of another server's assistant; it is ignored."""

    type: Literal["redacted_thinking"]
    data: str = ""


class ToolUse(Body):
    """The assistant's call of a tool. Its input is an object; JSON text is accepted, too, and "" for no input."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] | str = Field(default_factory=dict)


class ToolResult(Body):
    """The result of a call; errors are only marked in its text."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Texts = ""


# Calls of tools that ran on Anthropic's servers, such as "server_tool_use", "mcp_tool_use", and their results, such as
# "web_search_tool_result", "bash_code_execution_tool_result".
_SERVER_BLOCK = r"[a-z_]+_tool_(use|result)|server_tool_use"


def _is_of_server(block: Any) -> bool:
    kind = _block_type(block)
    return isinstance(kind, str) and re.fullmatch(_SERVER_BLOCK, kind) is not None


class ServerToolBlock(Body):
    """A call of a tool that ran on Anthropic's servers, or its result; it is left out."""

    type: Annotated[str, Field(pattern=f"^({_SERVER_BLOCK})$")]


Block = Annotated[
    Annotated[Text, Tag("block[text]")]
    | Annotated[Thinking, Tag("block[thinking]")]
    | Annotated[RedactedThinking, Tag("block[redacted_thinking]")]
    | Annotated[ToolUse, Tag("block[tool_use]")]
    | Annotated[ToolResult, Tag("block[tool_result]")]
    | Annotated[ServerToolBlock, Tag("block[server_tool]")],
    Discriminator(lambda block: "block[server_tool]" if _is_of_server(block) else f"block[{_block_type(block)}]"),
    _require_type(["text", "thinking", "redacted_thinking", "tool_use", "tool_result"], skips=True),
]
Content = Annotated[Annotated[str, Tag(_TEXT)] | Annotated[list[Block], Tag(_BLOCKS)], Discriminator(_kind)]


class Message(StrictBody):
    """A message. Consecutive messages of the same role are merged."""

    role: Literal["user", "assistant", "system"]
    content: Content


class Tool(Body):
    """A tool that the client runs.

    One of Anthropic's own has another type and no schema. It is left out, and the response names it.
    """

    type: str | None = None
    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _require_schema(self) -> Tool:
        if self.input_schema is None and not self.is_skipped:
            raise ValueError("the field 'input_schema' is missing")
        return self

    @property
    def is_skipped(self) -> bool:
        """True if the model cannot call it."""
        return self.type not in (None, "custom")


class ToolChoice(Body):
    """Choice of tools: the model decides, any tool, the named one, or none."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _require_name(self) -> ToolChoice:
        if self.type == "tool" and self.name is None:
            raise ValueError("the type 'tool' needs the name of the tool")
        return self


class ThinkingConfig(Body):
    """Thinking before the response. There is no separate budget for it: ``max_tokens`` counts both."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class JSONFormat(Body):
    """A JSON schema that the output must match."""

    type: Literal["json_schema"]
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Body):
    """Format of the output, and effort of thinking."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JSONFormat | None = None


class Conversation(Sampling):
    """A conversation to respond to.

    Attributes:
        model: name of the model.
        messages: the messages.
        system: the instructions.
        tools: the tools that the model may call. Anthropic's own are left out; the response names them in
            ``skipped_tools``.
        tool_choice: choice of tools.
        thinking: whether it thinks first; None: the template's default.
        output_config: format of the output, and effort of thinking.
        output_format: older name of ``output_config.format``.
        thread: refused: the server stores no conversations.
        mcp_servers: refused: the server calls no other servers.
    """

    unsupported: ClassVar[Mapping[str, tuple[str, str]]] = {
        "thread": (
            "threads are not supported, since the server stores no conversations: send the whole conversation",
            "thread_unsupported_request",  # the client's tool runner then sends the whole conversation
        ),
        "mcp_servers": (
            "mcp_servers are not supported: call their tools yourself, and list them in 'tools'",
            "unsupported_value",
        ),
    }

    terms: ClassVar[Mapping[str, str]] = {
        "json_schema": "output_config.format",
        "reasoning_budget": "thinking.budget_tokens",
    }

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    system: Texts | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: JSONFormat | None = None
    thread: Annotated[Any, AfterValidator(lambda thread: thread is not None)] = False  # even an empty one is refused
    mcp_servers: list[Any] | None = None

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema that the output must match, given in Anthropic's form or in pyggml's."""
        output_format = (self.output_config and self.output_config.format) or self.output_format
        schema: dict[str, Any] | None = self.json_schema if output_format is None else output_format.json_schema
        return schema

    def library_messages(self) -> list[dict[str, Any]]:
        """Return the messages in the library's format, which is OpenAI's."""
        messages = _Messages()
        if self.system:
            messages.add("system", [_BILLING_HEADER.sub("", text) for text in _texts(self.system)])
        for message in self.messages:
            if isinstance(message.content, str):
                messages.add(message.role, [message.content])
            else:
                for block in message.content:
                    messages.add_block(message.role, block)
        return messages.messages

    @property
    def skipped_tools(self) -> list[str]:
        """Types of the tools that the model cannot call."""
        return [str(each.type) for each in self.tools or () if each.is_skipped]

    @property
    def skipped(self) -> dict[str, list[str]]:
        """Fields of the response for what the model does not see: tools, and blocks of their calls and results."""
        blocks = (block for message in self.messages if isinstance(message.content, list) for block in message.content)
        kinds = dict.fromkeys(block.type for block in blocks if isinstance(block, ServerToolBlock))
        found = {"skipped_tools": self.skipped_tools, "skipped_blocks": list(kinds)}
        return {name: types for name, types in found.items() if types}

    def _tool_choice(self) -> ToolChoice:
        """Return the choice, unless it is left without a tool."""
        choice = self.tool_choice or ToolChoice(type="auto")
        named = [each for each in self.tools or () if choice.type == "any" or each.name == choice.name]
        if choice.type in ("any", "tool") and named and all(each.is_skipped for each in named):
            skipped = ", ".join(str(each.type) for each in named)
            raise errors.invalid(f"tool_choice asks for a tool that the model cannot call: {skipped}", "tool_choice")
        return choice

    def options(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the options of :meth:`pyggml.LLM.chat` for these messages, other than sampling parameters."""
        choice = self._tool_choice()
        effort = self.output_config and self.output_config.effort
        last = messages[-1] if messages else {}
        return {
            "tools": [_tool(each) for each in self.tools or () if not each.is_skipped],
            "tool_choice": choice.name or _TOOL_CHOICES[choice.type],
            "parallel_tool_calls": not choice.disable_parallel_tool_use,
            "thinking": None if self.thinking is None else self.thinking.type != "disabled",
            "continue_final_message": bool(last) and last["role"] == "assistant" and "tool_calls" not in last,
            "template_kwargs": {"reasoning_effort": _EFFORTS.get(effort, effort)} if effort else {},
        }


class CreateMessage(Conversation):
    """A conversation to respond to.

    Attributes:
        max_tokens: maximum number of tokens to generate, including those of thinking and calls; -1: up to the end of
            the context.
        stop_sequences: strings that end the generation.
        stream: stream the response as events.
    """

    max_tokens: Annotated[int, Field(ge=-1)]
    stop_sequences: list[Annotated[str, Field(min_length=1)]] | None = None
    stream: bool = False

    @property
    def stop_strings(self) -> list[str]:
        """The strings that end the generation, given in Anthropic's form or in pyggml's."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        return self.stop_sequences or stop or []

    def to_chat(self) -> ChatInput:
        """Return the request in the library's terms."""
        messages = self.library_messages()
        thinking = self.thinking
        budget = thinking.budget_tokens if thinking is not None and thinking.type == "enabled" else None
        sampling = sampling_overrides(
            self, stop=self.stop_sequences or None, json_schema=self.output_schema, reasoning_budget=budget
        )
        return ChatInput(messages, sampling, self.options(messages))


_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

# Chat templates know three levels.
_EFFORTS = {"xhigh": "high", "max": "high"}

# Claude Code's first line of the system prompt differs in every request and would prevent prefix cache hits.
_BILLING_HEADER = re.compile(r"^x-anthropic-billing-header:[^\n]*?\bcch=\w*;?")


class _Messages:
    """Messages in the library's format. Consecutive messages of the same role are merged."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._tool_names: dict[str, str] = {}

    def add_block(self, role: str, block: Body) -> None:
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
        """Return the message for content of a role: the last one, or a new one."""
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        return self.messages[-1]


def _parts(texts: list[str]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _texts(content: str | list[Text]) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content]


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}

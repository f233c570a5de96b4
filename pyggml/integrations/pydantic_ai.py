"""Pydantic AI: a model for agents. Needs ``pydantic-ai-slim``.

>>> from pydantic_ai import Agent
>>> from pyggml.integrations.pydantic_ai import PyggmlModel
>>> Agent(PyggmlModel("model.gguf")).run_sync("What colour is the sky?").output
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pyggml import LLM, AsyncChatStream, ChatChunk, ChatCompletion, InvalidParameterError
from pyggml.integrations._frameworks import needs
from pyggml.integrations._models import ModelLike, SharedOnCopy, model_name, open_llm

with needs("pydantic-ai-slim"):
    from pydantic_ai import RunContext
    from pydantic_ai.messages import (
        FinishReason,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ModelResponseStreamEvent,
        RetryPromptPart,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, check_allow_model_requests
    from pydantic_ai.profiles import ModelProfile
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.usage import RequestUsage

__all__ = ["PyggmlModel"]

_SYSTEM = "pyggml"
#: Settings of Pydantic AI -> arguments of :meth:`pyggml.LLM.chat`.
_SETTINGS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "stop_sequences": "stop",
    "timeout": "timeout_s",
    "parallel_tool_calls": "parallel_tool_calls",
}
_FINISH_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "tool_calls": "tool_call"}


@dataclass(init=False)
class PyggmlModel(SharedOnCopy, Model[Any]):
    """A model for agents: tools, structured output, streaming and token counts.

    Settings are Pydantic AI's; parameters of :meth:`pyggml.LLM.chat` that it does not know go into ``extra_body``:
    ``ModelSettings(extra_body={"min_p": 0.05})``. ``NativeOutput`` and ``ToolOutput`` are enforced by a grammar.

    Args:
        model: an open LLM; or a file, a directory or a reference, as for :func:`pyggml.load`; None: the demonstration
            model. Models with the same name and options share one :class:`pyggml.LLM`.
        settings: Pydantic AI's settings for all requests.
        profile: Pydantic AI's profile, instead of one that says what this model supports.
        **load_options: parameters of :func:`pyggml.load`.
    """

    _model_name: str = field(repr=False)

    unsupported_settings = frozenset({"extra_headers", "max_retries", "service_tier"})
    _unsupported_file_inputs = frozenset({"image", "document", "audio", "video"})

    def __init__(
        self,
        model: ModelLike = None,
        *,
        settings: ModelSettings | None = None,
        profile: Any = None,
        **load_options: Any,
    ) -> None:
        self.llm: LLM = open_llm(model, load_options)
        self._model_name = model_name(model)
        super().__init__(settings=settings, profile=_PROFILE if profile is None else profile)

    @property
    def model_name(self) -> str:
        """Name of the model's file or directory."""
        return self._model_name

    @property
    def system(self) -> str:
        """The provider's name in traces."""
        return _SYSTEM

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Answer a conversation. Called by agents; cancelling the task cancels the generation."""
        done = await self.llm.achat(**self._arguments(messages, model_settings, model_request_parameters))
        return ModelResponse(
            parts=list(_parts(done)),
            usage=_usage(done),
            model_name=self.model_name,
            provider_name=_SYSTEM,
            finish_reason=_FINISH_REASONS.get(done.finish_reason),
            provider_details={"finish_reason": done.finish_reason},
        )

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[StreamedResponse, None]:
        """Answer a conversation as it is generated. Called by agents; leaving the block cancels the generation."""
        arguments = self._arguments(messages, model_settings, model_request_parameters)
        async with self.llm.astream_chat(**arguments) as stream:
            yield _Streamed(model_request_parameters=model_request_parameters, _name=self.model_name, _stream=stream)

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        """Return the length of a conversation's prompt. Called by agents with ``count_tokens_before_request``."""
        arguments = self._arguments(messages, model_settings, model_request_parameters)
        return RequestUsage(input_tokens=len(self.llm.tokenize_chat(**arguments)))

    def _arguments(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> dict[str, Any]:
        """The arguments of a chat."""
        check_allow_model_requests()
        settings, parameters = self.prepare_request(settings, parameters)
        given: dict[str, Any] = dict(settings or {})
        tools, choice = _tools(given.get("tool_choice"), parameters)
        found: dict[str, Any] = {
            "messages": self._messages(messages, parameters),
            "tools": [_tool(tool) for tool in tools],
            "tool_choice": choice,
        }
        found |= {ours: given[theirs] for theirs, ours in _SETTINGS.items() if given.get(theirs) is not None}
        if given.get("logit_bias"):
            found["logit_bias"] = {int(token_id): bias for token_id, bias in given["logit_bias"].items()}
        if given.get("thinking") is not None:
            found["thinking"] = bool(given["thinking"])
        schema = _schema(parameters)
        if schema is not None:
            found["json_schema"] = schema
        return {**found, **(given.get("extra_body") or {})}

    def _messages(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> list[dict[str, Any]]:
        """A conversation in OpenAI's format, with the agent's instructions behind its system prompts."""
        found: list[dict[str, Any]] = []
        for message in messages:
            if isinstance(message, ModelRequest):
                found += [made for part in message.parts for made in _request_messages(part)]
            else:
                found.append(_assistant(message))
        instructions = self._get_instruction_parts(messages, parameters) or []
        start = next((i for i, made in enumerate(found) if made["role"] != "system"), len(found))
        found[start:start] = [{"role": "system", "content": part.content} for part in instructions]
        return found


_PROFILE = ModelProfile(
    supports_tools=True,
    supports_json_schema_output=True,
    supports_json_object_output=True,
    supports_thinking=True,
    default_structured_output_mode="tool",
)


@dataclass
class _Streamed(StreamedResponse):
    """A running answer as Pydantic AI's events."""

    _name: str
    _stream: AsyncChatStream
    _began: datetime = field(default_factory=lambda: datetime.now(tz=timezone.utc))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        async for chunk in self._stream:
            for event in self._events(chunk):
                yield event
            if chunk.finish_reason is not None:
                self.finish_reason = _FINISH_REASONS.get(chunk.finish_reason)
                self.provider_details = {"finish_reason": chunk.finish_reason}
                self._usage = _usage(self._stream.completion)
                self._usage_received = True

    def _events(self, chunk: ChatChunk) -> Iterator[ModelResponseStreamEvent]:
        manager = self._parts_manager
        if chunk.reasoning_content:
            yield from manager.handle_thinking_delta(vendor_part_id="reasoning", content=chunk.reasoning_content)
        if chunk.content:
            yield from manager.handle_text_delta(vendor_part_id="content", content=chunk.content)
        for call in chunk.tool_calls:
            event = manager.handle_tool_call_delta(
                vendor_part_id=call.index,
                tool_name=call.name or None,
                args=call.arguments_text,
                tool_call_id=call.id or None,
            )
            if event is not None:
                yield event

    async def close_stream(self) -> None:
        """Cancel the generation."""
        await self._stream.aclose()

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return self._name

    @property
    def provider_name(self) -> str:
        """The provider's name in traces."""
        return _SYSTEM

    @property
    def provider_url(self) -> None:
        """None: the model is in this process."""
        return

    @property
    def timestamp(self) -> datetime:
        """Start of the answer."""
        return self._began


def _tools(wanted: Any, parameters: ModelRequestParameters) -> tuple[list[ToolDefinition], str]:
    """The tools that a request offers, and the choice among them.

    ``wanted`` is Pydantic AI's: a word for all function tools, names of tools that must be called, or an object with
    the names of function tools that may be, next to those of the output.
    """
    tools = list(parameters.declared_tool_defs.values())
    outputs = {tool.name for tool in parameters.output_tools}
    usual = "auto" if parameters.allow_text_output else "required"
    if wanted is None or wanted == "auto":
        return tools, usual
    if wanted == "none" or wanted == []:
        return [tool for tool in tools if tool.name in outputs], usual
    if wanted == "required":
        return [tool for tool in tools if tool.name not in outputs], "required"
    if isinstance(wanted, list):
        return [tool for tool in tools if tool.name in wanted], "required"
    return [tool for tool in tools if tool.name in outputs or tool.name in wanted.function_tools], usual


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}


def _schema(parameters: ModelRequestParameters) -> dict[str, Any] | None:
    """The schema of an answer that is an object itself; None: there is none."""
    if parameters.output_mode == "native" and parameters.output_object is not None:
        return parameters.output_object.json_schema
    if parameters.output_mode == "prompted" and parameters.output_object is not None and not parameters.function_tools:
        return {"type": "object"}
    return None


def _request_messages(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, SystemPromptPart):
        yield {"role": "system", "content": part.content}
    elif isinstance(part, UserPromptPart):
        yield {"role": "user", "content": _user_text(part.content)}
    elif isinstance(part, ToolReturnPart):
        content = part.model_response_str()
        yield {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": content}
    elif isinstance(part, RetryPromptPart) and part.tool_name is not None:
        content = part.model_response()
        yield {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": content}
    elif isinstance(part, RetryPromptPart):
        yield {"role": "user", "content": part.model_response()}
    else:
        raise InvalidParameterError(f"a request has a {type(part).__name__}, which pyggml models cannot read")


def _user_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for item in content:
        text = item if isinstance(item, str) else getattr(item, "content", None)
        if getattr(item, "kind", None) == "cache-point":
            continue
        if not isinstance(text, str):
            raise InvalidParameterError(f"a prompt has a {type(item).__name__}: pyggml models read only text here")
        texts.append(text)
    return "\n".join(texts)


def _assistant(message: ModelResponse) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "assistant", "content": ""}
    for part in message.parts:
        if isinstance(part, TextPart):
            found["content"] += part.content
        elif isinstance(part, ThinkingPart):
            found["reasoning_content"] = found.get("reasoning_content", "") + part.content
        elif isinstance(part, ToolCallPart):
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            call = {"id": part.tool_call_id, "type": "function", "function": function}
            found.setdefault("tool_calls", []).append(call)
    return found


def _parts(done: ChatCompletion) -> Iterator[Any]:
    message = done.message
    if message.reasoning_content:
        yield ThinkingPart(message.reasoning_content)
    if message.content:
        yield TextPart(message.content)
    for call in message.tool_calls:
        yield ToolCallPart(call.name, call.arguments_text, tool_call_id=call.id)


def _usage(done: ChatCompletion) -> RequestUsage:
    return RequestUsage(
        input_tokens=done.prompt_tokens, output_tokens=len(done.token_ids), cache_read_tokens=done.cached_tokens
    )

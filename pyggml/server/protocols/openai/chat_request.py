"""Bodies of ``/v1/chat/completions``, and their conversion to the library's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field as BodyField

from pyggml.server.http.generation import ChatInput
from pyggml.server.models.pool import LoadedModel
from pyggml.server.protocols.chat_options import TEMPLATE_TERMS, ReasoningEffort, TemplateVariables
from pyggml.server.protocols.openai.errors import invalid, unsupported
from pyggml.server.protocols.openai.generation_request import GenerationRequest, TokenLimit

Json = dict[str, Any]

_TEXT_ONLY = "models only read and write text here"


class ChatRequest(GenerationRequest):
    """A conversation to respond to.

    Attributes:
        messages: the messages, whose content is text or text parts.
        max_completion_tokens: overrides ``max_tokens``.
        tools: the functions that the model may call. Tools of other types are left out; the response names them in
            ``skipped_tools``.
        tool_choice: "auto", "none", "required", or one of the tools.
        parallel_tool_calls: allow several calls in one response; never with a single chosen tool.
        functions: older name of ``tools``.
        function_call: older name of ``tool_choice``.
        logprobs: return the log probability of each token.
        top_logprobs: return the log probabilities of this many most likely tokens at each position.
        reasoning_effort: how long a reasoning model thinks; "none": not at all.
        enable_thinking: let a reasoning model think or not; None: the template's default.
        chat_template_kwargs: additional variables of the model's template.
        continue_final_message: continue the last message, which is the assistant's, instead of starting another.
        modalities: ["text"].
    """

    refused: ClassVar[Mapping[str, str]] = {
        **GenerationRequest.refused,
        "audio": _TEXT_ONLY,
        "chat_template": "choose a template when starting the server; chat_template_kwargs sets its variables",
        "web_search_options": "models have no access to the web here",
    }

    terms: ClassVar[Mapping[str, str]] = TEMPLATE_TERMS

    messages: list[Json]
    max_completion_tokens: TokenLimit = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Json] | None = None
    function_call: str | Json | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, BodyField(ge=0, le=20)] | None = None
    reasoning_effort: ReasoningEffort | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: TemplateVariables = None
    continue_final_message: bool | None = None
    modalities: list[str] | None = None

    @property
    def uses_functions(self) -> bool:
        """True if the request uses the older API, in which tools were functions."""
        return self.functions is not None and not self.tools

    def to_chat(self, model: LoadedModel) -> ChatInput:
        """Return the request in the library's terms.

        Raises:
            RequestError: a field is not supported, or fields contradict each other.
        """
        if not self.logprobs and self.top_logprobs:
            raise invalid("top_logprobs", "it needs logprobs=true")
        n_logprobs = max(1, self.top_logprobs or 0) if self.logprobs else 0
        own = {} if self.max_completion_tokens is None else {"max_tokens": self.max_completion_tokens}
        sampling = self.sampling(model, logprobs=n_logprobs, **own)
        messages = [_convert_message(each) for each in self.messages]
        return ChatInput(messages, sampling, self._options(), self.n_choices)

    def _options(self) -> Mapping[str, Any]:
        if set(self.modalities or ["text"]) != {"text"}:
            raise unsupported("modalities", _TEXT_ONLY)
        tools, choice = self._tools()
        is_single = choice not in ("auto", "none", "required")
        return {
            "tools": tools,
            "tool_choice": choice,
            "parallel_tool_calls": not (is_single or self.uses_functions) and self.parallel_tool_calls is not False,
            "continue_final_message": bool(self.continue_final_message),
            **self._reasoning(),
        }

    def _tools(self) -> tuple[list[Json] | None, str | Json]:
        """Return the tools and the tool choice."""
        if self.uses_functions:
            if isinstance(self.function_call, dict):
                return self.functions, {"type": "function", "function": self.function_call}
            return self.functions, self.function_call or "auto"
        choice = "auto" if self.tool_choice is None else self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            return _allowed_tools([tool for tool in self.tools or () if not _is_skipped(tool)], choice)
        skipped, tools = self.skipped_tools, [tool for tool in self.tools or () if not _is_skipped(tool)]
        if choice == "required" and skipped and not tools:
            kinds = ", ".join(skipped)
            raise invalid("tools", f"tool_choice is 'required', but the model can call no tool of the type {kinds}")
        return (tools if skipped else self.tools), choice

    @property
    def skipped_tools(self) -> list[str]:
        """Types of the tools that the model cannot call."""
        return [str(tool["type"]) for tool in self.tools or () if _is_skipped(tool)]

    @property
    def skipped(self) -> Json:
        """Field of the response for tools that were left out."""
        return {"skipped_tools": self.skipped_tools} if self.skipped_tools else {}

    def _reasoning(self) -> Json:
        variables = {name: value for name, value in (self.chat_template_kwargs or {}).items() if value is not None}
        thinking = self.enable_thinking
        if self.reasoning_effort == "none" and thinking is None:
            thinking = False
        elif self.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", self.reasoning_effort)
        return {"thinking": thinking, "template_kwargs": variables}


def _is_skipped(tool: Json) -> bool:
    kind = tool.get("type")
    return isinstance(kind, str) and kind != "function"


def _allowed_tools(tools: list[Json], choice: Json) -> tuple[list[Json], str]:
    """Return the tools that ``{"type": "allowed_tools", ...}`` names, and its mode."""
    allowed = choice.get("allowed_tools", choice)
    named = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(named, list):
        raise invalid("tool_choice", "allowed_tools must be an object with a list of tools")
    names = [_tool_name(each) for each in named]
    return [tool for tool in tools if _tool_name(tool) in names], allowed.get("mode") or "auto"


def _tool_name(tool: Any) -> Any:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


# Fields of OpenAI's messages that the library's do not have.
_CONVERTED = ("refusal", "function_call", "reasoning", "annotations")


def _convert_message(message: Json) -> Json:
    """Convert refusals to text, calls of functions to calls of tools, and ``reasoning`` to ``reasoning_content``.

    Annotations, which describe the text of an earlier response, are dropped.
    """
    converted = {name: value for name, value in message.items() if name not in _CONVERTED}
    converted["content"] = _convert_content(message)
    if message.get("role") == "function":
        converted |= {"role": "tool", "tool_call_id": message.get("name")}
    if isinstance(message.get("function_call"), dict) and not message.get("tool_calls"):
        function = message["function_call"]
        converted["tool_calls"] = [{"id": function.get("name"), "type": "function", "function": function}]
    if converted.get("reasoning_content") is None and isinstance(message.get("reasoning"), str):
        converted["reasoning_content"] = message["reasoning"]
    if converted["content"] is None and converted.get("reasoning_content"):
        converted["content"] = ""
    return converted


def _convert_content(message: Json) -> Any:
    content = message.get("content")
    if content is None:
        return message.get("refusal")
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": part.get("refusal")}
        if isinstance(part, dict) and part.get("type") == "refusal"
        else part
        for part in content
    ]

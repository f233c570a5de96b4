"""Bodies of ollama's requests to generate, and their conversion to the library's terms."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pyggml.server.http import errors
from pyggml.server.http.errors import RequestError
from pyggml.server.http.generation import ChatInput
from pyggml.server.http.request_body import Body, StrictBody
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides

Json = dict[str, Any]

#: Time for which a model stays loaded while no request uses it: seconds, or a text such as "5m"; negative: always.
KeepAlive = float | str | None

_DURATION = re.compile(r"(-?)((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|ms|s|m|h))+")
_PART = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def seconds_of(keep_alive: float | str) -> float:
    """Return a time in seconds, as ollama reads it: numbers are seconds, texts are Go's durations.

    Raises:
        RequestError: 400, it is not a time.
    """
    with contextlib.suppress(ValueError):
        if not math.isnan(seconds := float(keep_alive)):
            return seconds
    text = str(keep_alive)
    if len(text) > _MAX_DURATION or not (found := _DURATION.fullmatch(text)):
        raise refused("keep_alive", f"{keep_alive!r:.100} is not a time: send seconds, or a text such as '5m'")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    return -seconds if found[1] else seconds


_MAX_DURATION = 50

_TEXT_ONLY = "models only read text here"

# Options whose negative numbers all mean the same.
_NEGATIVES = ("seed", "repeat_last_n", "num_predict")


class Options(Sampling):
    """Sampling parameters. Options for loading a model, such as ``num_ctx``, are ignored.

    Attributes:
        num_predict: maximum number of tokens to generate; negative: up to the end of the context, or with
            ``shift`` 10 times its size.
    """

    num_predict: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _normalize_negative(cls, options: Any) -> Any:
        """Replace negative numbers by -1, which means the same in ollama's API."""
        if not isinstance(options, dict):
            return options
        return options | {name: -1 for name in _NEGATIVES if _is_negative(options.get(name))}


class GenerationRequest(Body):
    """Common fields of requests to generate.

    Attributes:
        model: name of the model.
        stream: stream the response as JSON lines.
        format: "json", or a JSON schema that the output must match.
        options: sampling parameters.
        think: whether the model thinks first, or the effort: "low", "medium", "high" or "max"; None: the template's
            default.
        logprobs: return the log probability of each token.
        top_logprobs: return the log probabilities of this many most likely tokens at each position.
        keep_alive: time for which the model stays loaded while no request uses it; 0: unload it after this request.
        truncate: leave out the oldest turns of a conversation that is too long; None: refuse it.
        shift: when the context is full, go on without the oldest turns or tokens; the same as ``truncate``.
    """

    terms: ClassVar[Mapping[str, str]] = {"max_tokens": "num_predict", "json_schema": "format"}

    model: str
    stream: bool = True
    format: Literal["", "json"] | Json | None = None
    options: Options = Field(default_factory=Options)
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    keep_alive: KeepAlive = None
    truncate: bool | None = None
    shift: bool | None = None

    def sampling(self) -> Mapping[str, Any]:
        """Return the fields of SamplingParams that the request sets."""
        options = self.options
        return sampling_overrides(
            options,
            max_tokens=options.num_predict,
            json_schema={"type": "object"} if self.format == "json" else self.format or None,
            logprobs=max(1, self.top_logprobs) if self.logprobs else None,
            overflow="shift" if self.truncate or self.shift else None,
        )

    def thinking(self) -> Json:
        """Return the options of :meth:`pyggml.LLM.chat` for thinking."""
        if self.think is None or isinstance(self.think, bool):
            return {"thinking": self.think}
        return {
            "thinking": True,
            "template_kwargs": {"reasoning_effort": "high" if self.think == "max" else self.think},
        }


class GenerateRequest(GenerationRequest):
    """A prompt to respond to, or to continue.

    Attributes:
        prompt: the user's message of a chat; "": only load the model.
        system: the system message.
        raw: continue the prompt without a chat template.
        suffix: text after the output, for models with tokens for infilling; the prompt is the text before it.
        template: refused: the server chooses templates.
        context: refused: an earlier response in tokens; ``/api/chat`` takes messages instead.
        images: refused: models only read text here.
    """

    unsupported: ClassVar[Mapping[str, tuple[str, str]]] = {
        name: (f"{name}: {instead}", "unsupported_value")
        for name, instead in {
            "template": "choose a template when starting the server, or render the prompt yourself and send it raw",
            "context": "token contexts are not supported: send the messages to /api/chat",
            "images": _TEXT_ONLY,
        }.items()
    }

    prompt: str = ""
    system: str = ""
    raw: bool = False
    suffix: str = ""
    template: str = ""
    context: list[int] | None = None
    images: list[Any] | None = None

    def require_supported(self) -> None:
        """Refuse unsupported fields, and a system message with a raw prompt."""
        super().require_supported()
        if self.raw and self.system:
            raise refused("system", "it cannot be combined with raw: write it into the prompt")
        if self.suffix and self.system:
            raise refused("system", "it cannot be combined with suffix: write it into the prompt")

    def messages(self) -> list[Json]:
        """Return the request as messages of a chat."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.prompt}]


class Function(Body):
    """The name and arguments of a call: an object, or as in OpenAI's API its JSON text; "" stands for no arguments."""

    name: str
    arguments: Json | str = Field(default_factory=dict)


class ToolCall(Body):
    """The assistant's call of a tool."""

    id: str = ""
    function: Function


class Message(StrictBody):
    """A message.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: its text.
        thinking: the assistant's thinking before it.
        tool_calls: the assistant's calls of tools.
        tool_name: name of the tool, in its message.
        tool_call_id: ID of the call, in a tool's message.
        images: refused: models only read text here.
    """

    role: str
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    images: list[Any] | None = None

    def to_openai(self, index: int) -> Json:
        """Return the message in OpenAI's format."""
        if self.images:
            raise refused(f"messages.{index}.images", _TEXT_ONLY)
        return {
            "role": self.role.lower(),
            "content": self.content or "",
            "reasoning_content": self.thinking,
            "tool_calls": [
                {"id": call.id, "type": "function", "function": call.function.model_dump()}
                for call in self.tool_calls or ()
            ],
            "tool_call_id": self.tool_call_id,
            "name": self.tool_name,
        }


class ChatRequest(GenerationRequest):
    """A conversation to respond to.

    Attributes:
        messages: the messages; none: only load the model.
        tools: descriptions of functions that the model may call.
    """

    messages: list[Message] = Field(default_factory=list)
    tools: list[Json] | None = None

    def to_chat(self) -> ChatInput:
        """Return the request in the library's terms.

        Raises:
            RequestError: 400, a message has images.
        """
        messages = [each.to_openai(index) for index, each in enumerate(self.messages)]
        options = {**self.thinking(), "tools": self.tools, "parallel_tool_calls": True}
        return ChatInput(messages, self.sampling(), options)


def refused(param: str, instead: str) -> RequestError:
    """Return the error for an unsupported field, with what to do instead."""
    return errors.invalid(f"{param}: {instead}", param, "unsupported_value")


def _is_negative(value: object) -> bool:
    return isinstance(value, (int, float)) and value < 0

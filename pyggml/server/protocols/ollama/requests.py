"""What ollama's API is asked to generate, and the same in the library's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pyggml.server.http import errors
from pyggml.server.http.errors import RequestError
from pyggml.server.http.request_body import Body
from pyggml.server.protocols.sampling_fields import Sampling, given

Json = dict[str, Any]

#: What every request has that ollama would keep or free a model by: seconds, or a text such as "5m".
KeepAlive = float | str | None


class Options(Sampling):
    """Sampling parameters. What sets up a model, such as ``num_ctx``, is the server's to say, and ignored.

    Attributes:
        num_predict: maximum number of tokens to generate; negative: what the context has room for.
        stop: strings that end the answer.
        grammar: GBNF grammar that the whole answer must match, which is no option of ollama's.
    """

    num_predict: int | None = None
    stop: str | list[str] | None = None
    grammar: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_our_words(cls, options: Any) -> Any:
        """What -1 means elsewhere, any negative number does in ollama's options."""
        if not isinstance(options, dict):
            return options
        return options | {name: -1 for name in ("seed", "repeat_last_n") if _is_negative(options.get(name))}


class Generating(Body):
    """What requests to generate have in common.

    Attributes:
        model: name of the model.
        stream: answer in pieces, a line each.
        format: "json", or a JSON schema that the answer matches.
        options: sampling parameters.
        think: whether the model thinks first, or how hard: "low", "medium", "high" or "max"; None: as its template
            has it.
        logprobs: return the log probability of each token.
        top_logprobs: and this many of the likeliest in its place.
        keep_alive: ignored: models stay loaded until their memory is needed.
    """

    model: str
    stream: bool = True
    format: Literal["", "json"] | Json | None = None
    options: Options = Field(default_factory=Options)
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    keep_alive: KeepAlive = None

    @field_validator(
        *("stream", "options", "logprobs", "top_logprobs", "prompt", "system", "raw", "suffix", "template", "messages"),
        mode="before",
        check_fields=False,  # some are only in one of the two requests
    )
    @classmethod
    def _default_for_null(cls, value: Any, info: ValidationInfo) -> Any:
        """As in Go, null is as good as nothing."""
        assert info.field_name is not None
        return cls.model_fields[info.field_name].get_default(call_default_factory=True) if value is None else value

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing but the model to be loaded."""
        raise NotImplementedError

    def sampling(self) -> Mapping[str, Any]:
        """The fields of SamplingParams that it sets."""
        options = self.options
        return given(
            options,
            max_tokens=options.num_predict if options.num_predict is not None and options.num_predict >= 0 else None,
            stop=options.stop or None,
            grammar=options.grammar,
            json_schema={"type": "object"} if self.format == "json" else self.format or None,
            logprobs=max(1, self.top_logprobs) if self.logprobs else None,
        )

    def thinking(self) -> Json:
        """How much to think, as options of :meth:`pyggml.LLM.chat`."""
        if self.think is None or isinstance(self.think, bool):
            return {"thinking": self.think}
        return {
            "thinking": True,
            "template_kwargs": {"reasoning_effort": "high" if self.think == "max" else self.think},
        }


class Generate(Generating):
    """A prompt to answer, or to continue.

    Attributes:
        prompt: the question, as the user's message of a chat. An empty one loads the model.
        system: the system message.
        raw: continue the prompt as it is.
        suffix: refused: what comes after the answer; the model's own tokens for it can be written into a raw prompt.
        template: refused: templates belong to models here.
        context: refused: an earlier answer in tokens, for which ``/api/chat`` has messages.
        images: refused: models only read text here.
    """

    prompt: str = ""
    system: str = ""
    raw: bool = False
    suffix: str = ""
    template: str = ""
    context: list[int] | None = None
    images: list[Any] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing but the model to be loaded."""
        return not self.prompt

    def require_only_text(self) -> None:
        """Refuses what cannot be done with the prompt.

        Raises:
            RequestError: 400, it is asked for.
        """
        if self.raw and self.system:
            raise refused("system", "raw does not go with system: write it into the prompt")
        for name, instead in _NOT_HERE.items():
            if getattr(self, name):
                raise refused(name, instead)

    def messages(self) -> list[Json]:
        """The chat that it stands for."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.prompt}]


class Function(Body):
    """Which function is called, with what."""

    name: str
    arguments: Json = Field(default_factory=dict)


class Call(Body):
    """A call that the assistant made."""

    id: str = ""
    function: Function


class Message(Body):
    """A message.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: its text.
        thinking: what the assistant thought before it.
        tool_calls: the calls that the assistant made.
        tool_name: for a tool's message, its name.
        tool_call_id: for a tool's message, the call that it answers.
        images: refused: models only read text here.
    """

    role: str
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    images: list[Any] | None = None

    def in_librarys_form(self, index: int) -> Json:
        """The message in OpenAI's form."""
        if self.images:
            raise refused(f"messages.{index}.images", _NOT_HERE["images"])
        return {
            "role": self.role.lower(),
            "content": self.content or "",
            "reasoning_content": self.thinking,
            "tool_calls": [_call(call) for call in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "name": self.tool_name,
        }


class Chat(Generating):
    """A conversation to answer.

    Attributes:
        messages: the messages. None at all loads the model.
        tools: descriptions of functions that the model may call.
    """

    messages: list[Message] = Field(default_factory=list)
    tools: list[Json] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing but the model to be loaded."""
        return not self.messages

    def library_messages(self) -> list[Json]:
        """The messages in the library's form, which is OpenAI's.

        Raises:
            RequestError: 400, a message has images.
        """
        return [each.in_librarys_form(index) for index, each in enumerate(self.messages)]

    def chat_options(self) -> Json:
        """The options of :meth:`pyggml.LLM.chat` that are not sampling parameters."""
        return {**self.thinking(), "tools": self.tools, "parallel_tool_calls": True}


_NOT_HERE = {
    "suffix": "there is no filling in: write the model's own tokens for it into a raw prompt",
    "template": "a template is chosen when the server starts: render the prompt yourself, and send it raw",
    "context": "nothing is kept as tokens: send the messages to /api/chat",
    "images": "models only read text here",
}


def refused(param: str, instead: str) -> RequestError:
    """A field that cannot be used, and what to do instead."""
    return errors.invalid(f"{param}: {instead}", param, "unsupported_value")


def _call(call: Call) -> Json:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _is_negative(value: object) -> bool:
    return isinstance(value, (int, float)) and value < 0

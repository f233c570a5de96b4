"""``/v1/chat/completions``: answers conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field as BodyField
from starlette.responses import Response

from pyggml import ChatChunk, ChatCompletion
from pyggml.server.http.generation import Generation
from pyggml.server.http.request import Call
from pyggml.server.protocols.endpoint import EVENTS, Endpoint, Event
from pyggml.server.protocols.openai import legacy
from pyggml.server.protocols.openai.errors import invalid, unsupported
from pyggml.server.protocols.openai.generation_request import Generating, TokenLimit
from pyggml.server.protocols.openai.generation_response import (
    DONE,
    Answer,
    envelope,
    pieces,
    respond,
    timings,
    usage,
    whole,
)
from pyggml.server.protocols.openai.messages import in_our_form

Json = dict[str, Any]

_NO_AUDIO = "models only read and write text here"


class Chat(Generating):
    """A conversation to answer.

    Attributes:
        messages: the messages, whose content is text or text parts.
        max_completion_tokens: as ``max_tokens``, and goes before it.
        tools: the functions that the model may call.
        tool_choice: "auto", "none", "required", or one of the tools.
        parallel_tool_calls: allow several calls in one answer, which a single tool that is chosen never makes.
        functions: what ``tools`` was called before.
        function_call: what ``tool_choice`` was called before.
        logprobs: send how likely each token was.
        top_logprobs: and this many of the likeliest in its place.
        reasoning_effort: how long a reasoning model thinks; "none": not at all.
        enable_thinking: whether a reasoning model thinks; None: as its template has it.
        chat_template_kwargs: more variables for the model's template.
        continue_final_message: continue the last message, which is the assistant's, instead of beginning another.
        modalities: ["text"].
    """

    refused: ClassVar[Mapping[str, str]] = {
        **Generating.refused,
        "audio": _NO_AUDIO,
        "chat_template": "a template is chosen when the server starts, and chat_template_kwargs sets its variables",
        "web_search_options": "a model opens nothing here",
    }

    messages: list[Json]
    max_completion_tokens: TokenLimit = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Json] | None = None
    function_call: str | Json | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, BodyField(ge=0, le=20)] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: Json | None = None
    continue_final_message: bool | None = None
    modalities: list[str] | None = None

    @property
    def uses_functions(self) -> bool:
        """Whether the request speaks the older language, in which tools were functions."""
        return self.functions is not None and not self.tools

    def options(self) -> Mapping[str, Any]:
        """What else :meth:`Call.chat` takes.

        Raises:
            RequestError: a field cannot be kept.
        """
        if set(self.modalities or ["text"]) != {"text"}:
            raise unsupported("modalities", _NO_AUDIO)
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
        """The tools and which of them to call."""
        if self.uses_functions:
            return self.functions, legacy.choice(self.function_call)
        choice = "auto" if self.tool_choice is None else self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            return _allowed(self.tools or [], choice)
        return self.tools, choice

    def _reasoning(self) -> Json:
        variables = dict(self.chat_template_kwargs or {})
        thinking = self.enable_thinking
        if self.reasoning_effort == "none" and thinking is None:
            thinking = False
        elif self.reasoning_effort is not None:
            variables.setdefault("reasoning_effort", self.reasoning_effort)
        return {"thinking": thinking, "template_kwargs": variables}

    def n_logprobs(self) -> int:
        """How many likely tokens to compute for each; 0: nothing was asked for.

        Raises:
            RequestError: a number was given, but not asked for.
        """
        if not self.logprobs and self.top_logprobs:
            raise invalid("top_logprobs", "it needs logprobs=true")
        return max(1, self.top_logprobs or 0) if self.logprobs else 0


class ChatAnswer(Answer):
    """An answer to a conversation, or several."""

    object: Literal["chat.completion"]


async def chat(call: Call, body: Chat) -> Response:
    """Answers a conversation."""
    served = await call.model(body.model)
    own = {} if body.max_completion_tokens is None else {"max_tokens": body.max_completion_tokens}
    sampling = await call.prepared(body.sampling, served, logprobs=body.n_logprobs(), **own)
    messages = await call.prepared(in_our_form, body.messages)
    generation = await call.chat(served, messages, sampling, n=body.choices, **body.options())
    if body.stream:
        return call.events(_events(call, generation, body))
    done = await call.finish(generation)
    return await respond(call, done, lambda: _whole(call, generation, body))


def _whole(call: Call, generation: Generation[ChatChunk, ChatCompletion], body: Chat) -> Json:
    found = whole(generation.completions, body.choices, envelope(call, generation, "chatcmpl"))
    for choice, done in zip(found["choices"], generation.completions, strict=True):
        _adapt(choice, "message", done, body)
    return found


async def _events(call: Call, generation: Generation[ChatChunk, ChatCompletion], body: Chat) -> AsyncIterator[Event]:
    about = envelope(call, generation, "chatcmpl")
    no_usage: Json = {"usage": None} if body.wants_usage else {}
    form: Json = {}
    for index in range(body.choices):
        form = ChatChunk("").to_dict("openai", index=index, **about) | no_usage
        form["choices"][0]["delta"] = {"role": "assistant", "content": ""}
        yield Event.of(form)
    async for index, chunk in generation:
        form = chunk.to_dict("openai", index=index, **about) | no_usage
        _adapt(form["choices"][0], "delta", chunk, body)
        for piece in pieces(chunk, form, {"delta": {}, **body.no_token_ids}):
            yield piece
    if body.wants_usage:
        done = generation.completions
        yield Event.of(form | {"choices": [], "usage": usage(done, body.choices), **timings(done)})
    yield DONE


def _adapt(choice: Json, kind: Literal["message", "delta"], result: ChatCompletion | ChatChunk, body: Chat) -> None:
    """Changes a choice to what the request asked for."""
    if body.return_token_ids:
        choice["token_ids"] = result.token_ids
    if choice["logprobs"] is not None:
        for token in choice["logprobs"]["content"]:
            del token["top_logprobs"][body.top_logprobs or 0 :]
    if body.uses_functions:
        legacy.adapt(choice, kind)


def _allowed(tools: list[Json], choice: Json) -> tuple[list[Json], str]:
    """The tools that ``{"type": "allowed_tools", ...}`` names, and whether one of them must be called."""
    allowed = choice.get("allowed_tools", choice)
    named = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(named, list):
        raise invalid("tool_choice", "allowed_tools must be an object with a list of tools")
    names = [_name(each) for each in named]
    return [tool for tool in tools if _name(tool) in names], allowed.get("mode") or "auto"


def _name(tool: Any) -> Any:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


# The second is llama-server's, for clients whose address has no /v1.
CHAT = tuple(
    Endpoint("POST", path, chat, "Answer a conversation", Chat, ChatAnswer, events=EVENTS)
    for path in ("/v1/chat/completions", "/chat/completions")
)

"""``/api/generate`` and ``/api/chat``: answers, whole or in lines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml import ChatChunk, ChatCompletion, Chunk, Completion, ToolCall, ToolCallDelta
from pyggml.server.http.generation import Generation
from pyggml.server.http.request import Call
from pyggml.server.models.pool import Served
from pyggml.server.protocols.ollama.requests import Chat, Generate, Generating, refused
from pyggml.server.protocols.timestamps import rfc3339

Json = dict[str, Any]
_Generation = Generation[Any, Any]


class Answer(BaseModel):
    """What answers to both have in common: a piece of one if ``done`` is false. Durations are in nanoseconds."""

    model_config = ConfigDict(extra="allow")

    model: str
    created_at: str
    done: bool
    done_reason: str | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None


class Generated(Answer):
    """A continued or answered prompt."""

    response: str
    thinking: str | None = None


class Answered(Answer):
    """An answered conversation."""

    message: Json


@dataclass
class Piece:
    """A part of an answer, or all of it."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[Json] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.content or self.thinking or self.tool_calls or self.logprobs)


async def generate(call: Call, body: Generate) -> Response:
    """Answers or continues a prompt."""
    began = time.monotonic_ns()
    body.require_only_text()
    served = await call.model(body.model)
    writer = _Writer(body, served, _generated, began)
    if body.is_empty:
        return JSONResponse(writer.loaded())
    if body.raw or not _has_template(served):
        text = "\n\n".join(each for each in (body.system, body.prompt) if each)
        generation: _Generation = await call.complete(served, [text], body.sampling())
    else:
        _require_thoughts(body, served)
        generation = await call.chat(served, body.messages(), body.sampling(), **body.thinking())
    return await _answer(call, body, writer, generation)


async def chat(call: Call, body: Chat) -> Response:
    """Answers a conversation."""
    began = time.monotonic_ns()
    served = await call.model(body.model)
    writer = _Writer(body, served, _answered, began)
    if body.is_empty:
        return JSONResponse(writer.loaded())
    _require_thoughts(body, served)
    messages = await call.prepared(body.library_messages)
    generation = await call.chat(served, messages, body.sampling(), **body.chat_options())
    return await _answer(call, body, writer, generation)


async def _answer(call: Call, body: Generating, writer: _Writer, generation: _Generation) -> Response:
    if body.stream:
        return call.lines(writer.lines(generation))
    [done] = await call.finish(generation)
    return JSONResponse(writer.whole(done))


class _Writer:
    """Writes an answer, whole or in pieces."""

    def __init__(self, body: Generating, served: Served, form: Callable[[Piece], Json], began: int) -> None:
        self._body = body
        self._tokenizer = served.llm.tokenizer
        self._form = form
        self._began = began
        self._loaded = time.monotonic_ns()

    def loaded(self) -> Json:
        """The answer to a request for nothing but the model."""
        return {**self._piece(Piece()), "done": True, "done_reason": "load"}

    def whole(self, done: ChatCompletion | Completion) -> Json:
        """The whole answer."""
        logprobs = self._logprobs(done)
        if isinstance(done, ChatCompletion):
            message = done.message
            piece = Piece(message.content, message.reasoning_content, _complete(message.tool_calls), logprobs)
        else:
            piece = Piece(done.text, logprobs=logprobs)
        return {**self._piece(piece), **self._end(done)}

    async def lines(self, generation: _Generation) -> AsyncIterator[Json]:
        """The answer in pieces. A call of a tool is a piece of its own, once it is complete."""
        calls = _Calls()
        async for _, chunk in generation:
            if isinstance(chunk, ChatChunk):
                done = [call for each in chunk.tool_calls for call in calls.add(each)]
                piece = Piece(chunk.content, chunk.reasoning_content, done, self._logprobs(chunk))
            else:
                piece = Piece(chunk.text, logprobs=self._logprobs(chunk))
            if piece:
                yield {**self._piece(piece), "done": False}
        last = calls.end()
        if last:
            yield {**self._piece(Piece(tool_calls=last)), "done": False}
        yield {**self._piece(Piece()), **self._end(generation.completions[0])}

    def _piece(self, piece: Piece) -> Json:
        logprobs = {"logprobs": piece.logprobs} if piece.logprobs else {}
        return {"model": self._body.model, "created_at": rfc3339(time.time()), **self._form(piece), **logprobs}

    def _end(self, done: Completion) -> Json:
        timings = done.timings
        return {
            "done": True,
            "done_reason": "length" if done.finish_reason in ("length", "timeout", "cancelled") else "stop",
            "total_duration": time.monotonic_ns() - self._began,
            "load_duration": self._loaded - self._began,
            "prompt_eval_count": done.prompt_tokens,
            "prompt_eval_duration": round(timings.prefill_s * 1e9),
            "eval_count": len(done.token_ids),
            "eval_duration": round(timings.decode_s * 1e9),
        }

    def _logprobs(self, result: Chunk | Completion) -> list[Json]:
        """The log probabilities, whose form is that of OpenAI's chats."""
        if not result.logprobs:
            return []
        [choice] = ChatChunk("", logprobs=result.logprobs).to_dict("openai", tokenizer=self._tokenizer)["choices"]
        n_top = self._body.top_logprobs
        return [{**each, "top_logprobs": each["top_logprobs"][:n_top]} for each in choice["logprobs"]["content"]]


class _Calls:
    """Calls of tools as they grow: those of which another follows, or the end, are complete."""

    def __init__(self) -> None:
        self._index = 0
        self._call: ToolCall | None = None

    def add(self, news: ToolCallDelta) -> list[Json]:
        """Adds a piece of a call. Returns the call that it ends, if any."""
        if self._call is not None and self._index == news.index:
            self._call = replace(self._call, arguments_text=self._call.arguments_text + news.arguments_text)
            return []
        done = self.end()
        self._index, self._call = news.index, ToolCall(news.id, news.name, news.arguments_text)
        return done

    def end(self) -> list[Json]:
        """The last call, unless it was cut off."""
        call, self._call = self._call, None
        return [] if call is None else _complete([call], self._index)


def _complete(calls: Sequence[ToolCall], first_index: int = 0) -> list[Json]:
    """Those of some calls that were not cut off."""
    found = []
    for index, call in enumerate(calls, first_index):
        with contextlib.suppress(pyggml.InvalidParameterError):
            function = {"index": index, "name": call.name, "arguments": call.arguments}
            found.append({"id": call.id, "function": function})
    return found


def _generated(piece: Piece) -> Json:
    thinking = {"thinking": piece.thinking} if piece.thinking else {}
    return {"response": piece.content, **thinking}


def _answered(piece: Piece) -> Json:
    more = {"thinking": piece.thinking, "tool_calls": piece.tool_calls}
    message = {"role": "assistant", "content": piece.content, **{name: value for name, value in more.items() if value}}
    return {"message": message}


def _has_template(served: Served) -> bool:
    """Whether the model has a chat template, or one was chosen for it."""
    try:
        served.llm.chat_templates()
    except pyggml.InvalidParameterError:
        if served.llm.model.chat_template() is not None:  # which is broken
            raise
        return False
    return True


def _require_thoughts(body: Generating, served: Served) -> None:
    """Refuses to think with a model that does not, as ollama does.

    Raises:
        RequestError: 400.
    """
    if body.think and not served.llm.chat_templates().supports.thinking:
        raise refused("think", f"{body.model!r:.200} does not support thinking")

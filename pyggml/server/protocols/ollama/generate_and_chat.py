"""``/api/generate`` and ``/api/chat``: generate whole responses or JSON lines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml import ChatChunk, ChatCompletion, Chunk, Completion, ToolCall, ToolCallDelta
from pyggml.server.http.generation import ChatInput, Generation, submit_chat, submit_prompts, whole_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.streaming import stream_lines
from pyggml.server.models.pool import LoadedModel
from pyggml.server.protocols.infilling import infill_prompts
from pyggml.server.protocols.ollama.keep_alive import keep_loaded, unloads
from pyggml.server.protocols.ollama.requests import ChatRequest, GenerateRequest, GenerationRequest, refused
from pyggml.server.protocols.timestamps import rfc3339
from pyggml.server.protocols.tool_calls import complete_calls

Json = dict[str, Any]
_Generation = Generation[Any, Any]

# Sizes of the context that ollama generates at most.
_MAX_CONTEXTS = 10


class GenerationResponse(BaseModel):
    """Common fields of responses; part of a stream if ``done`` is false. Durations are in nanoseconds."""

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


class GenerateResponse(GenerationResponse):
    """A response to a prompt, or its continuation."""

    response: str
    thinking: str | None = None


class ChatResponse(GenerationResponse):
    """A response to a conversation."""

    message: Json


@dataclass
class Delta:
    """The new output of a stream, or the whole output."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[Json] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Return True if there is any output."""
        return bool(self.content or self.thinking or self.tool_calls or self.logprobs)


async def generate(request: ServerRequest, body: GenerateRequest) -> Response:
    """Respond to a prompt, or continue it."""
    started = time.monotonic_ns()
    if not body.prompt and unloads(body.keep_alive):
        return _unloaded(request, body, _generate_fields)
    model = await request.lease_model(body.model, takes_adapter=True)
    keep_loaded(request, body.model, body.keep_alive)
    writer = _ResponseWriter(body, model, _generate_fields, started)
    if not body.prompt:
        return JSONResponse(writer.loaded())
    if body.suffix:
        prompts, sampling = await request.run_in_thread(
            infill_prompts, model, [body.prompt], body.suffix, body.sampling()
        )
        generation: _Generation = await submit_prompts(request, model, prompts, sampling)
    elif body.raw or not _has_template(model):
        text = "\n\n".join(each for each in (body.system, body.prompt) if each)
        generation = await submit_prompts(request, model, [text], _limited(body.sampling(), model.llm.n_ctx))
    else:
        _require_thinking_support(body, model)
        generation = await submit_chat(request, model, ChatInput(body.messages(), body.sampling(), body.thinking()))
    return await _respond(request, body, writer, generation)


async def chat(request: ServerRequest, body: ChatRequest) -> Response:
    """Respond to a conversation."""
    started = time.monotonic_ns()
    if not body.messages and unloads(body.keep_alive):
        return _unloaded(request, body, _chat_fields)
    model = await request.lease_model(body.model, takes_adapter=True)
    keep_loaded(request, body.model, body.keep_alive)
    writer = _ResponseWriter(body, model, _chat_fields, started)
    if not body.messages:
        return JSONResponse(writer.loaded())
    _require_thinking_support(body, model)
    generation = await submit_chat(request, model, await request.run_in_thread_if_long(body.to_chat))
    return await _respond(request, body, writer, generation)


def _unloaded(request: ServerRequest, body: GenerationRequest, fields: Callable[[Delta], Json]) -> Response:
    """Unload the model without loading it first, and return the response of an empty request.

    Raises:
        RequestError: 403, the server does not allow it; 404, there is no such model.
    """
    request.worker.models.unload(request.worker.models.split(body.model)[0])
    named = {"model": body.model, "created_at": rfc3339(time.time())}
    return JSONResponse({**named, **fields(Delta()), "done": True, "done_reason": "unload"})


async def _respond(
    request: ServerRequest, body: GenerationRequest, writer: _ResponseWriter, generation: _Generation
) -> Response:
    if body.stream:
        return stream_lines(request, writer.lines(generation))
    return await whole_response(request, generation, lambda: writer.whole(generation.completions[0]))


class _ResponseWriter:
    """Formatter of a response, whole or as JSON lines."""

    def __init__(
        self, body: GenerationRequest, model: LoadedModel, fields: Callable[[Delta], Json], started: int
    ) -> None:
        self._body = body
        self._tokenizer = model.llm.tokenizer
        self._fields = fields
        self._started = started
        self._loaded = time.monotonic_ns()

    def loaded(self) -> Json:
        """Return the response to an empty request, which only loads the model."""
        return {**self._format(Delta()), "done": True, "done_reason": "load"}

    def whole(self, done: ChatCompletion | Completion) -> Json:
        """Return the whole response."""
        logprobs = self._logprobs(done)
        if isinstance(done, ChatCompletion):
            message = done.message
            output = Delta(message.content, message.reasoning_content, _complete(message.tool_calls), logprobs)
        else:
            output = Delta(done.text, logprobs=logprobs)
        return {**self._format(output), **self._end(done)}

    async def lines(self, generation: _Generation) -> AsyncIterator[Json]:
        """Yield the lines of a stream. A tool call is sent once it is complete."""
        calls = _ToolCalls()
        async for _, chunk in generation:
            if isinstance(chunk, ChatChunk):
                complete = [call for each in chunk.tool_calls for call in calls.add(each)]
                delta = Delta(chunk.content, chunk.reasoning_content, complete, self._logprobs(chunk))
            else:
                delta = Delta(chunk.text, logprobs=self._logprobs(chunk))
            if delta:
                yield {**self._format(delta), "done": False}
        last = calls.end()
        if last:
            yield {**self._format(Delta(tool_calls=last)), "done": False}
        yield {**self._format(Delta()), **self._end(generation.completions[0])}

    def _format(self, delta: Delta) -> Json:
        logprobs = {"logprobs": delta.logprobs} if delta.logprobs else {}
        return {"model": self._body.model, "created_at": rfc3339(time.time()), **self._fields(delta), **logprobs}

    def _end(self, done: Completion) -> Json:
        timings = done.timings
        return {
            "done": True,
            "done_reason": "length" if done.finish_reason in ("length", "timeout", "cancelled") else "stop",
            "total_duration": time.monotonic_ns() - self._started,
            "load_duration": self._loaded - self._started,
            "prompt_eval_count": done.prompt_tokens,
            "prompt_eval_duration": round(timings.prefill_s * 1e9),
            "eval_count": len(done.token_ids),
            "eval_duration": round(timings.decode_s * 1e9),
        }

    def _logprobs(self, result: Chunk | Completion) -> list[Json]:
        """Return the log probabilities, in the format of OpenAI's chats."""
        if not result.logprobs:
            return []
        [choice] = ChatChunk("", logprobs=result.logprobs).to_dict("openai", tokenizer=self._tokenizer)["choices"]
        n_top = self._body.top_logprobs
        return [{**each, "top_logprobs": each["top_logprobs"][:n_top]} for each in choice["logprobs"]["content"]]


class _ToolCalls:
    """Tool calls of a stream. A call is complete when the next one starts, or at the end."""

    def __init__(self) -> None:
        self._index = 0
        self._call: ToolCall | None = None

    def add(self, delta: ToolCallDelta) -> list[Json]:
        """Add a delta. Return the call that it completes, if any."""
        if self._call is not None and self._index == delta.index:
            self._call = replace(self._call, arguments_text=self._call.arguments_text + delta.arguments_text)
            return []
        complete = self.end()
        self._index, self._call = delta.index, ToolCall(delta.id, delta.name, delta.arguments_text)
        return complete

    def end(self) -> list[Json]:
        """Return the last call, unless it was cut off."""
        call, self._call = self._call, None
        return [] if call is None else _complete([call], self._index)


def _complete(calls: Sequence[ToolCall], first_index: int = 0) -> list[Json]:
    """Return the calls that were not cut off."""
    return [
        {"id": call.id, "function": {"index": index, "name": call.name, "arguments": arguments}}
        for index, (call, arguments) in enumerate(complete_calls(calls), first_index)
    ]


def _generate_fields(delta: Delta) -> Json:
    thinking = {"thinking": delta.thinking} if delta.thinking else {}
    return {"response": delta.content, **thinking}


def _chat_fields(delta: Delta) -> Json:
    more = {"thinking": delta.thinking, "tool_calls": delta.tool_calls}
    message = {"role": "assistant", "content": delta.content, **{name: value for name, value in more.items() if value}}
    return {"message": message}


def _limited(sampling: Mapping[str, Any], n_ctx: int) -> Mapping[str, Any]:
    """Return the sampling parameters of a prompt, with ollama's limit if it would never end."""
    if sampling.get("overflow") == "shift" and sampling.get("max_tokens") == -1:
        return {**sampling, "max_tokens": _MAX_CONTEXTS * n_ctx}
    return sampling


def _has_template(model: LoadedModel) -> bool:
    """Return True if the model has a chat template, or one was chosen for it."""
    try:
        model.llm.chat_templates()
    except pyggml.InvalidParameterError:
        if model.llm.model.chat_template() is not None:  # it is broken
            raise
        return False
    return True


def _require_thinking_support(body: GenerationRequest, model: LoadedModel) -> None:
    """Refuse ``think`` with status 400 for a model that does not support it, as ollama does."""
    if body.think and not model.llm.chat_templates().supports.thinking:
        raise refused("think", f"{body.model!r:.200} does not support thinking")

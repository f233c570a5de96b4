"""Generations: submit a request's prompts to the engine, and read the results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.responses import JSONResponse, Response

from pyggml import (
    AsyncChatStream,
    AsyncStream,
    ChatChunk,
    ChatCompletion,
    Chunk,
    Completion,
    Message,
    QueueFullError,
)
from pyggml.server.http import errors
from pyggml.server.http.access_control import api_key
from pyggml.server.http.concurrency_limit import queue_full
from pyggml.server.http.request_body import require_tractable

if TYPE_CHECKING:
    from pyggml.server.http.request import ServerRequest
    from pyggml.server.models.pool import LoadedModel
    from pyggml.server.settings.options import Settings

C = TypeVar("C", Chunk, ChatChunk)
D = TypeVar("D", Completion, ChatCompletion)


@dataclass(frozen=True)
class ChatInput:
    """A parsed chat request, in the library's terms.

    Attributes:
        messages: as for :meth:`pyggml.LLM.chat`.
        sampling: the fields of SamplingParams that the request sets.
        options: the other parameters of :meth:`pyggml.LLM.chat`.
        n: number of choices.
    """

    messages: Sequence[Message]
    sampling: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1


async def submit_chat(
    request: ServerRequest, model: LoadedModel, chat: ChatInput
) -> Generation[ChatChunk, ChatCompletion]:
    """Submit a conversation to the engine.

    Raises:
        InferError: as :meth:`pyggml.LLM.chat`.
        ClientDisconnectedError: the client disconnected.
    """
    settings = request.worker.settings
    _require_at_most("messages", len(chat.messages), settings.max_messages)
    if request.has_long_body:
        is_cut = chat.sampling.get("overflow") == "shift"
        texts, options = [] if is_cut else _texts(chat.messages), {**chat.sampling, **chat.options}
        await request.run_in_thread(require_tractable, model.llm.n_ctx, texts, options)
    _require_at_most("choices", chat.n, _max_choices(model, settings))

    def make_streams() -> list[AsyncChatStream]:
        params = model.sampling_params(_of_request(request, chat.sampling), chat.n, settings)
        return [model.llm.astream_chat(chat.messages, params=each, **chat.options) for each in params]

    return await _submit(request, model, make_streams)


async def submit_prompts(
    request: ServerRequest,
    model: LoadedModel,
    prompts: Sequence[str | Sequence[int]],
    sampling: Mapping[str, Any],
    n: int = 1,
) -> Generation[Chunk, Completion]:
    """Submit prompts to the engine, each a text or token IDs, with ``n`` choices each; those of the first come first.

    Raises:
        InferError: as :meth:`pyggml.LLM.generate`.
        ClientDisconnectedError: the client disconnected.
    """
    settings = request.worker.settings
    _require_at_most("choices", n * len(prompts), _max_choices(model, settings))
    if request.has_long_body:
        await request.run_in_thread(require_tractable, model.llm.n_ctx, prompts, sampling)

    def make_streams() -> list[AsyncStream]:
        params = model.sampling_params(_of_request(request, sampling), n, settings)
        return [model.llm.astream(prompt, each, parse_special=True) for prompt in prompts for each in params]

    return await _submit(request, model, make_streams)


def _of_request(request: ServerRequest, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add what is not in the body's fields for sampling: the adapter in the model's name, and the API key."""
    if request.adapter is None:
        return _with_salt(request, sampling)
    if sampling.get("adapter") is not None:
        message = f"the model's name has the adapter {request.adapter!r:.200}, and another field names adapters, too"
        raise errors.invalid(f"{message}: leave one of them out", "adapter")
    return _with_salt(request, {**sampling, "adapter": request.adapter})


def cache_salt(request: ServerRequest, own: str | None = None) -> str | None:
    """Return a request's ``cache_salt``, with its API key if each key has a prefix cache of its own."""
    if request.worker.settings.prefix_cache_scope == "all":
        return own
    key = sha256(api_key(request.http.headers).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{key} {own or ''}"


def _with_salt(request: ServerRequest, sampling: Mapping[str, Any]) -> Mapping[str, Any]:
    salt = cache_salt(request, sampling.get("cache_salt"))
    return sampling if salt is None else {**sampling, "cache_salt": salt}


async def _submit(
    request: ServerRequest,
    model: LoadedModel,
    make_streams: Callable[[], Sequence[AsyncStream] | Sequence[AsyncChatStream]],
) -> Generation[Any, Any]:
    """Make streams, which validates and tokenizes prompts, and submit them."""
    generation: Generation[Any, Any] = Generation(model, await request.run_in_thread_if_long(make_streams))
    request.cleanup.push_async_callback(generation.aclose)
    await request.wait_for_turn(len(generation))
    try:
        await request.cancel_on_disconnect(generation.submit())
    except QueueFullError as error:
        raise queue_full(model, error) from error
    request.add_generation(generation)
    return generation


async def whole_response(
    request: ServerRequest, generation: Generation[Any, Any], make: Callable[[], dict[str, Any]]
) -> Response:
    """Wait for the end of a generation, and return a JSON response.

    It is made in a thread if it has log probabilities or may repeat a long prompt.
    """
    completions = await request.cancel_on_disconnect(generation.finish())
    run = request.run_for_if_long if completions[0].logprobs is None else request.run_for
    return await run("responses", lambda: JSONResponse(make()))


def _require_at_most(what: str, number: int, limit: int) -> None:
    if number > limit:
        message = f"{number} {what} exceed the limit of {limit} {what} per request"
        raise errors.invalid(message, code=f"too_many_{what}")


def _max_choices(model: LoadedModel, settings: Settings) -> int:
    """Return the maximum number of choices of a request: at most what the queue can hold."""
    queue_size = model.concurrency.limit
    return settings.max_choices if queue_size is None else min(settings.max_choices, queue_size)


def _texts(messages: Sequence[Message]) -> Iterator[object]:
    """Yield the contents of messages that have not been validated yet."""
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            yield from (part.get("text") for part in content if isinstance(part, dict))
        else:
            yield content


class Generation(Generic[C, D]):
    """The choices of one request, computed together: an asynchronous iterator of (index, chunk).

    Attributes:
        model: the model.
        created: time of creation, in seconds since 1970.
    """

    def __init__(self, model: LoadedModel, streams: Sequence[AsyncStream] | Sequence[AsyncChatStream]) -> None:
        """Wrap streams that have not been submitted."""
        self.model = model
        self.created = int(time.time())
        self._streams: Sequence[AsyncStream | AsyncChatStream] = streams
        self._open = AsyncExitStack()

    def __len__(self) -> int:
        """Number of choices."""
        return len(self._streams)

    async def submit(self) -> None:
        """Submit all choices, or none."""
        async with AsyncExitStack() as submitted:
            for stream in self._streams:
                await submitted.enter_async_context(stream)
            self._open = submitted.pop_all()

    async def __aiter__(self) -> AsyncIterator[tuple[int, C]]:
        """Yield the chunks of all choices as they come."""
        if len(self._streams) == 1:
            async for chunk in self._streams[0]:
                yield 0, chunk  # type: ignore[misc]
            return
        async for pair in _merged(self._streams):
            yield pair  # type: ignore[misc]

    async def finish(self) -> list[D]:
        """Wait for the end, and return the completed choices."""
        await asyncio.gather(*(stream.finish() for stream in self._streams))
        return self.completions

    @property
    def completions(self) -> list[D]:
        """The completed choices; available once all have ended or :meth:`aclose` has been called."""
        return [stream.completion for stream in self._streams]  # type: ignore[misc]

    @property
    def prompt_tokens(self) -> int:
        """Length of the first prompt in tokens, available from the first chunk on."""
        return self._streams[0].prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Number of its tokens found in the prefix cache, available from the first chunk on."""
        return self._streams[0].cached_tokens

    @property
    def submitted_s(self) -> list[float | None]:
        """Time of submission of each choice, by :func:`time.monotonic`; None: never submitted."""
        return [stream.submitted_s for stream in self._streams]

    def cancel(self) -> None:
        """Cancel all choices; their last chunks have ``finish_reason="cancelled"``."""
        for stream in self._streams:
            stream.cancel()

    async def aclose(self) -> None:
        """Cancel all running choices, without waiting for the engine."""
        await self._open.aclose()


async def _merged(
    streams: Sequence[AsyncStream | AsyncChatStream],
) -> AsyncIterator[tuple[int, Chunk | ChatChunk]]:
    waiting = {asyncio.ensure_future(anext(stream)): index for index, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = waiting.pop(task)
                try:
                    chunk = task.result()
                except StopAsyncIteration:
                    continue
                waiting[asyncio.ensure_future(anext(streams[index]))] = index
                yield index, chunk
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

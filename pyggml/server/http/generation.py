"""A generation that a request asked for: one or more choices, computed together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Generic, TypeVar

from pyggml import AsyncChatStream, AsyncStream, ChatChunk, ChatCompletion, Chunk, Completion

if TYPE_CHECKING:
    from pyggml.server.models.pool import Served

S = TypeVar("S", AsyncStream, AsyncChatStream)
C = TypeVar("C", Chunk, ChatChunk)
D = TypeVar("D", Completion, ChatCompletion)


class Generation(Generic[C, D]):
    """The choices of one request, numbered from 0: an asynchronous iterator of (number, chunk).

    Attributes:
        served: the model that answers.
        created: when it was asked for, in seconds since 1970.
    """

    def __init__(self, served: Served, streams: Sequence[AsyncStream] | Sequence[AsyncChatStream]) -> None:
        """Keeps streams that have not been submitted."""
        self.served = served
        self.created = int(time.time())
        self._streams: Sequence[AsyncStream | AsyncChatStream] = streams
        self._open = AsyncExitStack()

    def __len__(self) -> int:
        """Number of choices."""
        return len(self._streams)

    async def submit(self) -> None:
        """Submits all choices, or none.

        Raises:
            InferError: as :meth:`pyggml.LLM.chat`.
        """
        async with AsyncExitStack() as submitted:
            for stream in self._streams:
                await submitted.enter_async_context(stream)
            self._open = submitted.pop_all()

    async def __aiter__(self) -> AsyncIterator[tuple[int, C]]:
        """Yields the chunks of all choices as they come."""
        if len(self._streams) == 1:
            async for chunk in self._streams[0]:
                yield 0, chunk  # type: ignore[misc]
            return
        async for pair in _merged(self._streams):
            yield pair  # type: ignore[misc]

    async def finish(self) -> list[D]:
        """Runs to the end, and returns the whole choices."""
        await asyncio.gather(*(stream.finish() for stream in self._streams))
        return self.completions

    @property
    def completions(self) -> list[D]:
        """The whole choices, once all have ended, which :meth:`aclose` sees to."""
        return [stream.completion for stream in self._streams]  # type: ignore[misc]

    @property
    def prompt_tokens(self) -> int:
        """Length of the first prompt in tokens, once a chunk of its first choice has come."""
        return self._streams[0].prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Number of that prompt's tokens that came from the cache, likewise."""
        return self._streams[0].cached_tokens

    @property
    def submitted_s(self) -> list[float | None]:
        """When the engine had each choice, by :func:`time.monotonic`; None: never."""
        return [stream.submitted_s for stream in self._streams]

    def cancel(self) -> None:
        """Ends all choices soon; their last chunks then have ``finish_reason="cancelled"``."""
        for stream in self._streams:
            stream.cancel()

    async def aclose(self) -> None:
        """Cancels what is still running. Does not wait for the engine."""
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

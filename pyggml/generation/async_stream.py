"""Running generations as asynchronous iterators. This module imports asyncio, so it is imported only when needed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, cast

from pyggml.errors import InvalidParameterError
from pyggml.generation.engine import Engine
from pyggml.generation.event_loops import LoopWaiter
from pyggml.generation.pending_request import PromptRequest
from pyggml.generation.request import Request
from pyggml.generation.stream import C, ChunkBuilder, D, StreamResult
from pyggml.types import Chunk, Completion

if TYPE_CHECKING:
    from typing_extensions import Self


class BaseAsyncStream(StreamResult[D], AsyncIterator[C], Generic[C, D]):
    """Base class of asynchronous streams, for any kind of chunk."""

    _instead_of_a_copy = "await finish() returns a completion, which can be"

    def __init__(self, engine: Engine, pending: PromptRequest, builder: ChunkBuilder) -> None:
        """Prepare a stream, which submits the request when it is entered or iterated."""
        self._engine = engine
        self._pending = pending
        self._builder = builder
        self._request: Request | None = None
        self._waiter: LoopWaiter | None = None
        self._is_awaited = False
        self._is_closed = False

    async def __anext__(self) -> C:
        if self._builder.ended:
            raise StopAsyncIteration
        with self._awaited():
            return await self._next()

    async def finish(self) -> D:
        """Run to the end and return the whole completion, including chunks already taken. Wakes up rarely.

        Errors as :meth:`LLM.generate`.
        """
        self._pending.is_streamed = False
        async for _ in self:
            pass
        return self.completion

    async def display(self) -> None:
        """Print the text as it is generated, as :meth:`Stream.display <pyggml.Stream.display>`.

        Errors as :meth:`LLM.generate`.
        """
        async with self:
            async for chunk in self:
                print(self._builder.text_to_display(chunk), end="", flush=True)
            print()

    @property
    def submitted_s(self) -> float | None:
        """Time of submission to the engine, by :func:`time.monotonic`; None: not submitted yet."""
        return self._pending.submitted_s

    def __repr__(self) -> str:
        state = "not started" if self._request is None and not self._builder.ended else repr(self._builder)
        return f"{type(self).__name__}({state})"

    def cancel(self) -> None:
        """End the generation soon; the last chunk then has ``finish_reason="cancelled"``."""
        self._is_cancelled = True
        if self._request is not None:
            self._request.cancel()
        elif self._waiter is not None:
            self._waiter.wake()

    async def aclose(self) -> None:
        """Cancel the generation and end the iterator. Does not wait for the engine."""
        self._close()

    async def __aenter__(self) -> Self:
        """Submit the request, unless that is done already; with ``queue_full="wait"``, wait while the queue is full.

        Raises:
            InvalidParameterError: the stream was closed, or failed.
            InferError: as :meth:`LLM.generate`, except what fails later than the submission.
        """
        if self._is_closed:
            raise InvalidParameterError("this stream is closed: ask for another one with astream() or astream_chat()")
        with self._awaited():
            await self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._close()

    @contextlib.contextmanager
    def _awaited(self) -> Iterator[None]:
        """Refuse other tasks during an await, and close the stream if the await fails or is cancelled."""
        if self._is_awaited:
            raise InvalidParameterError("another task is already awaiting this stream: use one task per stream")
        self._is_awaited = True
        try:
            yield
        except BaseException:
            self._close()
            raise
        finally:
            self._is_awaited = False
            if self._builder.ended:
                self._close_waiter()

    async def _next(self) -> C:
        request = await self._started()
        token_ids = [] if request is None else await request.aread(self._pending.min_tokens)
        if self._builder.ended:  # closed during the await
            raise StopAsyncIteration
        return cast("C", self._builder.cancel() if request is None else await self._add(request, token_ids))

    async def _add(self, request: Request, token_ids: list[int]) -> Chunk:
        if not self._builder.is_slow(token_ids):
            return self._builder.add(request, token_ids)
        chunk = await asyncio.to_thread(self._builder.build, request, token_ids)
        if self._is_closed:  # meanwhile
            raise StopAsyncIteration
        return self._builder.append(chunk)

    async def _started(self) -> Request | None:
        """Return the request, and submit it first if necessary. None: the stream was cancelled or closed before."""
        if self._request is None:
            self._waiter = self._waiter or LoopWaiter()
            self._request = await self._engine.aenqueue(self._pending, self._waiter, lambda: self._is_over)
            if self._request is not None and self._is_over:
                self._request.cancel()
        return self._request

    def _close(self) -> None:
        self._is_closed = True
        self._builder.cancel()
        if self._request is not None:
            self._request.cancel()
        self._close_waiter()

    def _close_waiter(self) -> None:
        if self._waiter is not None:
            self._waiter.close()
            self._waiter = None


class AsyncStream(BaseAsyncStream[Chunk, Completion]):
    """A generation as an asynchronous iterator of chunks.

    It starts where ``async with`` enters it, and every error of the submission raises there; without ``async with``,
    both happen at the first chunk. Only one task may await it at a time, in one event loop; any thread may call
    :meth:`cancel`. Closing or dropping the stream, leaving its ``async with`` block, or cancelling the task that awaits
    it cancels the generation. After an exception the stream has ended.
    """

    def __init__(self, engine: Engine, pending: PromptRequest) -> None:
        """Prepare a stream, which submits the request when it is entered or iterated.

        Args:
            engine: the engine to submit it to.
            pending: the request.
        """
        super().__init__(engine, pending, ChunkBuilder(pending))

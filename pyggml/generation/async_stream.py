"""A running generation in an event loop. This module imports asyncio, so it is itself imported only when needed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, cast

from pyggml._core.owner import Owner
from pyggml.errors import InvalidParameterError, QueueFullError
from pyggml.generation.engine import time_left
from pyggml.generation.event_loops import Line
from pyggml.generation.job import Job
from pyggml.generation.request import Request
from pyggml.generation.stream import Assembly, C, D
from pyggml.types import Chunk, Completion

if TYPE_CHECKING:
    from typing_extensions import Self


class BaseAsyncStream(Owner, AsyncIterator[C], Generic[C, D]):
    """Base class of asynchronous streams, for any kind of chunk."""

    _instead_of_a_copy = "await finish() returns a completion, which can be"

    def __init__(self, job: Job, assembly: Assembly) -> None:
        """Keeps the job, which is submitted when the stream is entered or iterated, and what makes its chunks."""
        self._job = job
        self._assembly = assembly
        self._request: Request | None = None
        self._line: Line | None = None
        self._is_awaited = False
        self._is_cancelled = False
        self._is_closed = False

    async def __anext__(self) -> C:
        if self._assembly.ended:
            raise StopAsyncIteration
        with self._awaited():
            return await self._next()

    async def finish(self) -> D:
        """Runs to the end and returns everything generated, including chunks already taken. Wakes up rarely.

        Raises:
            As :meth:`LLM.generate`.
        """
        self._job.unwatched()
        async for _ in self:
            pass
        return self.completion

    @property
    def completion(self) -> D:
        """The whole generation, once the last chunk has been taken.

        Raises:
            InvalidParameterError: the generation has not ended yet, or has not started.
        """
        return cast("D", self._assembly.completion(self._request))

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens, as of the last chunk; 0 before the first."""
        return 0 if self._request is None else self._request.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Number of prompt tokens taken from the cache, as of the last chunk; 0 before the first."""
        return 0 if self._request is None else self._request.cached_tokens

    @property
    def submitted_s(self) -> float | None:
        """When the engine was given the request, by :func:`time.monotonic`; None: not yet."""
        return self._job.submitted_s

    def __repr__(self) -> str:
        state = "not started" if self._request is None and not self._assembly.ended else repr(self._assembly)
        return f"{type(self).__name__}({state})"

    def cancel(self) -> None:
        """Ends the generation soon; the last chunk then has ``finish_reason="cancelled"``."""
        self._is_cancelled = True
        if self._request is not None:
            self._request.cancel()
        elif self._line is not None:
            self._line.nudge()

    async def aclose(self) -> None:
        """Cancels the generation and ends the iterator. Does not wait for the engine."""
        self._close()

    async def __aenter__(self) -> Self:
        """Submits the request, unless that is done already, and waits for room first if ``queue_full="wait"``.

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
        """Keeps other tasks out during an await, and closes the stream if the await fails or is cancelled."""
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
            if self._assembly.ended:
                self._hang_up()

    async def _next(self) -> C:
        request = await self._started()
        token_ids = [] if request is None else await request.aread(self._job.min_tokens)
        if self._assembly.ended:  # closed during the await
            raise StopAsyncIteration
        return cast("C", self._assembly.abandon() if request is None else await self._add(request, token_ids))

    async def _add(self, request: Request, token_ids: list[int]) -> Chunk:
        if not self._assembly.takes_long(token_ids):
            return self._assembly.add(request, token_ids)
        chunk = await asyncio.to_thread(self._assembly.made, request, token_ids)
        if self._is_closed:  # meanwhile
            raise StopAsyncIteration
        return self._assembly.keep(chunk)

    async def _started(self) -> Request | None:
        """The request, submitted now unless that is done already. None if the stream was cancelled or closed before."""
        if self._request is None:
            self._line = self._line or Line()
            await self._submit(self._line)
        return self._request

    async def _submit(self, line: Line) -> None:
        """Queues the request, waiting for room if the job says so, unless it is cancelled or closed meanwhile."""
        deadline = self._job.deadline()
        while not self._is_over:
            try:
                await self._try_to_submit(line, deadline)
            except QueueFullError:
                if not self._job.waits:
                    raise
            else:
                break
            if self._is_over:  # cancelled during the attempt, which may run in another thread
                break
            self._job.engine.ask_for_room(line.waker, line.tag)
            await line.news(time_left(deadline))
        if self._request is not None and self._is_over:
            self._request.cancel()

    async def _try_to_submit(self, line: Line, deadline: float | None) -> None:
        attempt = functools.partial(self._job.submit, deadline, line=line)
        if self._job.is_slow:
            self._request = await asyncio.to_thread(attempt)
            return
        # Hundreds of tasks may start at once: submitting one per turn of the loop lets other work run in between.
        async with line.beginning:
            if not self._is_over:
                self._request = attempt()
                await asyncio.sleep(0)

    @property
    def _is_over(self) -> bool:
        return self._is_cancelled or self._assembly.ended

    def _close(self) -> None:
        self._is_closed = True
        self._assembly.abandon()
        if self._request is not None:
            self._request.cancel()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class AsyncStream(BaseAsyncStream[Chunk, Completion]):
    """A generation as an asynchronous iterator of chunks.

    It starts where ``async with`` enters it, and every error of the submission raises there; without ``async with``,
    both happen at the first chunk. Only one task may await it at a time, in one event loop; any thread may call
    :meth:`cancel`. Closing or dropping the stream, leaving its ``async with`` block, or cancelling the task that awaits
    it cancels the generation. After an exception the stream has ended.
    """

    def __init__(self, job: Job) -> None:
        """Keeps the job, which is submitted when the stream is entered or iterated."""
        super().__init__(job, Assembly(job.tokenizer, job.stop))

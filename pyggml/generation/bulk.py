"""Runs many prompts, with a limited number in flight at a time, and returns the results in order."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyggml.errors import QueueFullError
from pyggml.generation.engine import Engine
from pyggml.generation.job import Job
from pyggml.generation.request import Request
from pyggml.generation.stream import Stream
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.types import Completion

Progress = Callable[[int, int | None], object]
NumberedJobs = Iterator[tuple[int, Job]]
P = TypeVar("P")

_ROOM = 2**64 - 1  # tag for room in the queue; the other tags are indices of prompts


def jobs(prompts: Iterable[P], make_job: Callable[[P], Job]) -> NumberedJobs:
    """Yields the index of each prompt and a job for it, created on demand."""
    for index, prompt in enumerate(prompts):
        with _named(index):
            job = make_job(prompt)
        yield index, job


class Results:
    """Collects completions by index, and reports progress to the caller."""

    def __init__(self, n_total: int | None, progress: Progress | None, what: str = "prompt") -> None:
        """Starts empty. ``what`` names one of the counted things in messages."""
        self.what = what
        self._n_total = n_total
        self._progress = progress
        self._completions: dict[int, Completion] = {}

    def add(self, index: int, completion: Completion) -> None:
        """Adds a completion. Exceptions from the caller's callback propagate."""
        self._completions[index] = completion
        if self._progress is not None:
            self._progress(len(self._completions), self._n_total)

    def in_order(self) -> list[Completion]:
        """All completions in order; call it when none is missing."""
        return [self._completions[index] for index in range(len(self._completions))]


def run(engine: Engine, numbered: NumberedJobs, n_in_flight: int, results: Results) -> None:
    """Runs every job on the calling thread, which sleeps while the engine works.

    Args:
        engine: the engine of the jobs.
        numbered: jobs with their indices, created as there is room for them.
        n_in_flight: maximum number of unfinished requests at any time.
        results: collects the completions.

    Raises:
        InferError: a job failed. This or any other exception cancels the other jobs.
    """
    window = _Window(engine, results)
    try:
        for index, job in numbered:
            window.drain_below(n_in_flight)
            window.add(index, job)
        window.drain_below(1)
    finally:
        window.close()


async def arun(numbered: NumberedJobs, n_in_flight: int, results: Results) -> None:
    """As :func:`run`, in an event loop: ``n_in_flight`` tasks share the jobs."""
    import asyncio  # imported late to keep "import pyggml" fast

    from pyggml.generation.async_stream import AsyncStream

    async def work() -> None:
        for index, job in numbered:
            with _named(index, results.what):
                completion = await AsyncStream(job).finish()
            results.add(index, completion)

    workers = [asyncio.create_task(work()) for _ in range(n_in_flight)]
    try:
        await asyncio.gather(*workers)
    except GeneratorExit:
        raise  # the event loop is gone, so there is nothing to wait for
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise


class _Window:
    """The requests in flight, and one waker for all of them."""

    def __init__(self, engine: Engine, results: Results) -> None:
        self._engine = engine
        self._results = results
        self._waker = Waker()
        self._streams: dict[int, Stream] = {}

    def add(self, index: int, job: Job) -> None:
        """Queues a job, after waiting for room if necessary."""
        with _named(index, self._results.what):
            self._streams[index] = Stream(job, self._queue(index, job))
        self._look(index)  # from now on the waker is notified

    def drain_below(self, n_in_flight: int) -> None:
        """Waits until fewer than ``n_in_flight`` requests are in flight."""
        while len(self._streams) >= n_in_flight:
            self._take_news()

    def close(self) -> None:
        """Cancels the requests in flight."""
        for stream in self._streams.values():
            stream.close()

    def _queue(self, index: int, job: Job) -> Request:
        while True:
            with contextlib.suppress(QueueFullError):
                return job.submit(waker=self._waker, tag=index)
            self._engine.ask_for_room(self._waker, _ROOM)
            while _ROOM not in self._take_news():
                pass

    def _take_news(self) -> list[int]:
        tags = self._waker.take(SIGNAL_CHECK_S)
        for tag in tags:
            self._look(tag)
        return tags

    def _look(self, index: int) -> None:
        """Reads a request's new tokens, and removes the request if it has ended."""
        stream = self._streams.get(index)
        if stream is None:
            return
        with _named(index, self._results.what):
            if not stream.poll():
                return
        del self._streams[index]
        self._results.add(index, stream.completion)


@contextlib.contextmanager
def _named(index: int, what: str = "prompt") -> Iterator[None]:
    """Adds a note to an exception saying which prompt it was about (Python 3.11 and later)."""
    try:
        yield
    except Exception as error:
        if sys.version_info >= (3, 11):
            error.add_note(f"This was {what} {index} of the batch, counted from 0.")
        raise

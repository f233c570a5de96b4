"""Many prompts at once: a window of them in flight, refilled as any ends, and the results in order."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyggml.errors import QueueFullError
from pyggml.generation.engine import Engine, Request
from pyggml.generation.job import Job
from pyggml.generation.stream import Stream
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.types import Completion

Progress = Callable[[int, int | None], object]
NumberedJobs = Iterator[tuple[int, Job]]
P = TypeVar("P")

_ROOM = 2**64 - 1  # the tag that stands for room in the queue; the others are numbers of prompts


def jobs(prompts: Iterable[P], make_job: Callable[[P], Job]) -> NumberedJobs:
    """A job for each prompt as it is asked for, with its number."""
    for index, prompt in enumerate(prompts):
        with _named(index):
            job = make_job(prompt)
        yield index, job


class Results:
    """Completions by number of prompt, and word to the caller of how many there are."""

    def __init__(self, n_total: int | None, progress: Progress | None, what: str = "prompt") -> None:
        """Starts with none. ``what`` is the word for one of those that are counted."""
        self.what = what
        self._n_total = n_total
        self._progress = progress
        self._completions: dict[int, Completion] = {}

    def add(self, index: int, completion: Completion) -> None:
        """Takes one; what the caller's callback raises comes out."""
        self._completions[index] = completion
        if self._progress is not None:
            self._progress(len(self._completions), self._n_total)

    def in_order(self) -> list[Completion]:
        """All of them, once none is missing."""
        return [self._completions[index] for index in range(len(self._completions))]


def run(engine: Engine, numbered: NumberedJobs, n_in_flight: int, results: Results) -> None:
    """Runs every job on the calling thread, which sleeps while the engine works.

    Args:
        engine: theirs.
        numbered: taken as there is room for them.
        n_in_flight: how many are submitted and not ended at any time.
        results: where the completions go.

    Raises:
        InferError: what went wrong with one of them. The others are cancelled then, as they are by whatever else
            comes up.
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
    """The same in an event loop, as so many tasks that share the jobs."""
    import asyncio  # loaded by who has a loop; "import pyggml" does without

    from pyggml.generation.astream import AsyncStream

    async def work() -> None:
        for index, job in numbered:
            with _named(index, results.what):
                completion = await AsyncStream(job).finish()
            results.add(index, completion)

    workers = [asyncio.create_task(work()) for _ in range(n_in_flight)]
    try:
        await asyncio.gather(*workers)
    except GeneratorExit:
        raise  # the loop is gone, and with it what there was to wait for
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise


class _Window:
    """Requests in flight, and the one waker that hears of them all."""

    def __init__(self, engine: Engine, results: Results) -> None:
        self._engine = engine
        self._results = results
        self._waker = Waker()
        self._streams: dict[int, Stream] = {}

    def add(self, index: int, job: Job) -> None:
        """Queues a job, once there is room."""
        with _named(index, self._results.what):
            self._streams[index] = Stream(job, self._queue(index, job))
        self._look(index)  # from then on the waker is told

    def drain_below(self, n_in_flight: int) -> None:
        """Waits until fewer than that many are in flight."""
        while len(self._streams) >= n_in_flight:
            self._take_news()

    def close(self) -> None:
        """Cancels what is in flight."""
        for stream in self._streams.values():
            stream.close()

    def _queue(self, index: int, job: Job) -> Request:
        while True:
            with contextlib.suppress(QueueFullError):
                return job.submit(self._waker, index)
            self._engine.ask_for_room(self._waker, _ROOM)
            while _ROOM not in self._take_news():
                pass

    def _take_news(self) -> list[int]:
        tags = self._waker.take(SIGNAL_CHECK_S)
        for tag in tags:
            self._look(tag)
        return tags

    def _look(self, index: int) -> None:
        """Reads what a request has, and lets it go when that was the end."""
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
    """Notes on an exception which one it was about, where Python can."""
    try:
        yield
    except Exception as error:
        if sys.version_info >= (3, 11):
            error.add_note(f"This was {what} {index} of the batch, counted from 0.")
        raise

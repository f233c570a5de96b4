"""Completions of many prompts, or several of one, with a limited number of requests in flight.

At most twice ``n_parallel`` requests are in flight, so that the engine's batches stay full and the memory bounded. If
the queue is full, they wait for capacity.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import sys
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Generic, Literal, TypeVar

from pyggml._core.checks import INT32_MAX, UINT32_MAX, callback, flag, integer, require_countable
from pyggml._core.json_forms import changed
from pyggml.errors import InferError, InvalidParameterError, QueueFullError
from pyggml.generation.engine import Engine
from pyggml.generation.pending_request import PromptRequest
from pyggml.generation.stream import BaseStream, D
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.progress import progress_bar
from pyggml.types import SamplingParams

T = TypeVar("T")
ItemProgress = Callable[[int, int | None], object] | Literal[False]  # False: no bar in a notebook

_CAPACITY = 2**64 - 1  # tag for capacity in the queue; the other tags are indices of requests


class Batch(Generic[D]):
    """Requests, each created when its turn comes, and their completions. Run it once.

    An exception, also of the caller's ``progress`` or ``items``, cancels the requests in flight.
    """

    def __init__(
        self,
        items: Iterable[T],
        make_request: Callable[[T], PromptRequest],
        *,
        noun: str = "prompt",
        progress: ItemProgress | None = None,
        return_exceptions: bool = False,
    ) -> None:
        """Make a request of each item; ``noun`` names an item in messages.

        Other arguments and errors as for :meth:`LLM.generate_batch <pyggml.LLM.generate_batch>`.
        """
        self._items = enumerate(_iterator_of(items, noun))
        self._make_request = make_request
        self._noun = noun
        self._n_total = len(items) if isinstance(items, Sized) else None
        callback("progress", None if progress is False else progress)
        self._progress = progress
        self._report: Callable[[int, int | None], object] | None = None
        self._returns_exceptions = flag("return_exceptions", return_exceptions)
        self._results: dict[int, D | InferError] = {}

    def run(self, engine: Engine) -> list[Any]:
        """Run every request on the calling thread, which sleeps while the engine works.

        Returns:
            The completions in order; with ``return_exceptions``, an InferError in the place of each that failed.
        """
        with self._reporting():
            window = _Window(engine, self._add, self._keeps)
            try:
                for index, item in self._items:
                    window.drain_below(2 * engine.n_parallel)
                    window.add(index, functools.partial(self._make_request, item))
                window.drain_below(1)
            finally:
                window.close()
        return self._in_order()

    async def arun(self, engine: Engine) -> list[Any]:
        """As :meth:`run`, in an event loop: a limited number of tasks share the requests."""
        import asyncio  # imported late to keep "import pyggml" fast

        from pyggml.generation.async_stream import BaseAsyncStream

        async def work() -> None:
            for index, item in self._items:
                try:
                    pending = self._make_request(item)
                    completion = await BaseAsyncStream[Any, D](engine, pending, pending.builder()).finish()
                except Exception as error:
                    if not self._keeps(index, error):
                        raise
                else:
                    self._add(index, completion)

        with self._reporting():
            workers = [asyncio.create_task(work()) for _ in range(2 * engine.n_parallel)]
            try:
                await asyncio.gather(*workers)
            except GeneratorExit:
                raise  # the event loop was closed, so there is nothing to wait for
            except BaseException:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
                raise
        return self._in_order()

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        with progress_bar("Generating", self._progress, counts=True) as self._report:
            yield

    def _add(self, index: int, result: D | InferError) -> None:
        self._results[index] = result
        if self._report is not None:
            self._report(len(self._results), self._n_total)

    def _keeps(self, index: int, error: Exception) -> bool:
        """Return True if an error is the result of its item; otherwise it is raised, with a note of the index."""
        if sys.version_info >= (3, 11):
            error.add_note(f"This was {self._noun} {index} of the batch, counted from 0.")
        if not (self._returns_exceptions and isinstance(error, InferError)):
            return False
        self._add(index, error)
        return True

    def _in_order(self) -> list[Any]:
        return [self._results[index] for index in range(len(self._results))]


def with_own_params(
    prompts: Iterable[T], params: Iterable[SamplingParams | None] | object, noun: str = "prompt"
) -> Iterable[tuple[T, SamplingParams | None]]:
    """Pair each prompt with its parameters, from a sequence with one for each.

    Raises:
        InvalidParameterError: ``params`` is not a sequence, or of another length.
    """
    if isinstance(params, (str, Mapping)) or not isinstance(params, Sequence):
        raise InvalidParameterError(
            f"params must be SamplingParams, or a list of them with one for each {noun}, not {type(params).__name__}"
        )
    texts = prompts if isinstance(prompts, Sequence) else list(_iterator_of(prompts, noun))
    if len(params) != len(texts):
        raise InvalidParameterError(
            f"params is a list of {len(params)}, and there are {len(texts)} {noun}s: give one for each, or one for all"
        )
    return list(zip(texts, params, strict=True))


def of_one_prompt(request: PromptRequest, n: int, engine: Engine, noun: str = "completion") -> Batch[D]:
    """Complete one request ``n`` times. Args and errors as :meth:`LLM.generate_n <pyggml.LLM.generate_n>`."""
    indices = range(integer("n", n, 1, INT32_MAX))
    request.encode(engine.stop_token_ids, engine.model.vocab)  # checked at once, and only once

    def nth(index: int) -> PromptRequest:
        if index == 0:
            return request
        other, params = copy.copy(request), request.params
        seed = None if params.seed is None else (params.seed + index) % UINT32_MAX
        other.params = dataclasses.replace(params, seed=seed, prompt_logprobs=0)
        return other

    return _OfOnePrompt(indices, nth, noun=noun)


class _OfOnePrompt(Batch[D]):
    """Completions of one prompt, whose logprobs are computed once and belong to all of them."""

    def _in_order(self) -> list[Any]:
        first, *others = super()._in_order()
        return [first, *(changed(each, prompt_logprobs=first.prompt_logprobs) for each in others)]


def _iterator_of(items: Iterable[T], noun: str) -> Iterator[T]:
    require_countable(f"{noun}s", items)  # no list could hold their results
    if not isinstance(items, (str, bytes)) and isinstance(items, Iterable):
        with contextlib.suppress(TypeError):  # raised only now by an array of no dimensions, for instance
            return iter(items)
    way_out = "put a single one in a list"
    if isinstance(items, AsyncIterable):
        way_out = f"collect them first, as in [each async for each in {noun}s]"
    raise InvalidParameterError(f"{noun}s must be an iterable of {noun}s, not {type(items).__name__}: {way_out}")


# --- requests in flight -------------------------------------------------------------------------------------------


class _Window:
    """The requests in flight, and one waker for all of them.

    ``done`` is called with each index and completion, ``keeps`` with each index and error, which is raised if it
    returns False.
    """

    def __init__(
        self, engine: Engine, done: Callable[[int, Any], None], keeps: Callable[[int, Exception], bool]
    ) -> None:
        self._engine = engine
        self._done = done
        self._keeps = keeps
        self._waker = Waker()
        self._streams: dict[int, BaseStream[Any, Any]] = {}

    def add(self, index: int, make_request: Callable[[], PromptRequest]) -> None:
        """Submit a request, after waiting for capacity if necessary."""
        pending: PromptRequest | None = None
        while True:
            try:
                pending = pending or make_request()
                request = self._engine.try_enqueue(pending, waker=self._waker, tag=index)
                self._streams[index] = BaseStream(request, pending.builder(), pending.min_tokens)
                break
            except QueueFullError:
                pass
            except Exception as error:
                if self._keeps(index, error):
                    return
                raise
            self._engine.notify_when_queue_has_capacity(self._waker, _CAPACITY)
            while _CAPACITY not in self._read_notified():
                pass
        self._read(index)  # from now on the waker is notified

    def drain_below(self, n_in_flight: int) -> None:
        """Wait until fewer than ``n_in_flight`` requests are in flight."""
        while len(self._streams) >= n_in_flight:
            self._read_notified()

    def close(self) -> None:
        """Cancel the requests in flight."""
        for stream in self._streams.values():
            stream.close()

    def _read_notified(self) -> list[int]:
        tags = self._waker.take(SIGNAL_CHECK_S)
        for tag in tags:
            self._read(tag)
        return tags

    def _read(self, index: int) -> None:
        """Read a request's new tokens, and remove the request if it has ended."""
        stream = self._streams.get(index)
        if stream is None:
            return
        try:
            if not stream.poll():
                return
        except Exception as error:
            del self._streams[index]
            if self._keeps(index, error):
                return
            raise
        del self._streams[index]
        self._done(index, stream.completion)

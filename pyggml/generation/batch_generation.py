"""Completions of many prompts, or several of one, with a limited number of requests in flight.

At most twice ``n_parallel`` requests are in flight, so that the engine's batches stay full and the memory bounded. If
the queue is full, they wait for capacity.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sized

from pyggml._core.checks import INT32_MAX, UINT32_MAX, callback, integer
from pyggml.errors import InvalidParameterError, QueueFullError
from pyggml.generation.engine import Engine
from pyggml.generation.param_merging import format_grammar
from pyggml.generation.pending_request import Prompt, PromptRequest, prompt_ids
from pyggml.generation.request import Request
from pyggml.generation.stream import Stream
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.tokenizer import Tokenizer
from pyggml.types import Completion, SamplingParams

Progress = Callable[[int, int | None], object]

_CAPACITY = 2**64 - 1  # tag for capacity in the queue; the other tags are indices of requests


class Batch:
    """Requests, each created when its turn comes, and their completions. Run it once.

    An exception, also of the caller's ``progress`` or ``prompts``, cancels the requests in flight.
    """

    def __init__(
        self,
        requests: Iterator[PromptRequest],
        *,
        of_one_prompt: bool = False,
        n_total: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._requests = enumerate(requests)
        self._of_one_prompt = of_one_prompt
        self._noun = "completion" if of_one_prompt else "prompt"  # in messages
        self._n_total = n_total
        self._progress = progress
        self._completions: dict[int, Completion] = {}

    @classmethod
    def of_prompts(
        cls,
        prompts: Iterable[Prompt],
        params: SamplingParams,
        tokenizer: Tokenizer,
        parse_special: bool,
        progress: Progress | None,
    ) -> Batch:
        """Complete each prompt. Args and errors as :meth:`LLM.generate_batch <pyggml.LLM.generate_batch>`."""
        callback("progress", progress)
        format_grammar(params)  # raises now, and is cached
        request = functools.partial(_request, params, tokenizer, parse_special)
        requests = _each(request, _iterator_of(prompts))
        n_total = len(prompts) if isinstance(prompts, Sized) else None
        return cls(requests, n_total=n_total, progress=progress)

    @classmethod
    def of_one_prompt(
        cls, prompt: Prompt, n: int, params: SamplingParams, tokenizer: Tokenizer, parse_special: bool
    ) -> Batch:
        """Complete one prompt ``n`` times. Args and errors as :meth:`LLM.generate_n <pyggml.LLM.generate_n>`."""
        format_grammar(params)
        token_ids = prompt_ids(prompt, tokenizer, parse_special)
        indices = range(integer("n", n, 1, INT32_MAX))
        first = _request(params, tokenizer, parse_special, token_ids)  # created, and so checked, at once
        others = (_request(_nth_params(params, i), tokenizer, parse_special, token_ids) for i in indices[1:])
        return cls(itertools.chain([first], others), of_one_prompt=True)

    def run(self, engine: Engine) -> list[Completion]:
        """Run every request on the calling thread, which sleeps while the engine works."""
        window = _Window(engine, self._noun, self._add)
        try:
            for index, request in self._requests:
                window.drain_below(2 * engine.n_parallel)
                window.add(index, request)
            window.drain_below(1)
        finally:
            window.close()
        return self._in_order()

    async def arun(self, engine: Engine) -> list[Completion]:
        """As :meth:`run`, in an event loop: a limited number of tasks share the requests."""
        import asyncio  # imported late to keep "import pyggml" fast

        from pyggml.generation.async_stream import AsyncStream

        async def work() -> None:
            for index, request in self._requests:
                with _noting_index(self._noun, index):
                    completion = await AsyncStream(engine, request).finish()
                self._add(index, completion)

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

    def _add(self, index: int, completion: Completion) -> None:
        self._completions[index] = completion
        if self._progress is not None:
            self._progress(len(self._completions), self._n_total)

    def _in_order(self) -> list[Completion]:
        completions = [self._completions[index] for index in range(len(self._completions))]
        if self._of_one_prompt and (logprobs := completions[0].prompt_logprobs) is not None:
            return [dataclasses.replace(each, prompt_logprobs=logprobs) for each in completions]
        return completions


# --- requests -----------------------------------------------------------------------------------------------------


def _each(request: Callable[[Prompt], PromptRequest], prompts: Iterator[Prompt]) -> Iterator[PromptRequest]:
    for index, prompt in enumerate(prompts):
        with _noting_index("prompt", index):
            created = request(prompt)
        yield created


def _iterator_of(prompts: Iterable[Prompt]) -> Iterator[Prompt]:
    if not isinstance(prompts, (str, bytes)) and isinstance(prompts, Iterable):
        with contextlib.suppress(TypeError):  # raised only now by an array of no dimensions, for instance
            return iter(prompts)
    raise InvalidParameterError(
        f"prompts must be an iterable of prompts, not {type(prompts).__name__}: put a single one in a list"
    )


def _request(params: SamplingParams, tokenizer: Tokenizer, parse_special: bool, prompt: Prompt) -> PromptRequest:
    return PromptRequest(
        prompt, params, tokenizer, parse_special=parse_special, is_streamed=False, waits_for_capacity=True
    )


def _nth_params(params: SamplingParams, index: int) -> SamplingParams:
    """Parameters of completion ``index`` of one prompt: its own seed; the prompt's logprobs only at index 0."""
    seed = None if params.seed is None else (params.seed + index) % UINT32_MAX
    return dataclasses.replace(params, seed=seed, prompt_logprobs=0)


@contextlib.contextmanager
def _noting_index(noun: str, index: int) -> Iterator[None]:
    """Add a note to an exception that names the item (Python 3.11 and later)."""
    try:
        yield
    except Exception as error:
        if sys.version_info >= (3, 11):
            error.add_note(f"This was {noun} {index} of the batch, counted from 0.")
        raise


# --- requests in flight -------------------------------------------------------------------------------------------


class _Window:
    """The requests in flight, and one waker for all of them. ``done`` is called with each index and completion."""

    def __init__(self, engine: Engine, noun: str, done: Callable[[int, Completion], None]) -> None:
        self._engine = engine
        self._noun = noun
        self._done = done
        self._waker = Waker()
        self._streams: dict[int, Stream] = {}

    def add(self, index: int, request: PromptRequest) -> None:
        """Submit a request, after waiting for capacity if necessary."""
        with _noting_index(self._noun, index):
            self._streams[index] = Stream(request, self._enqueue(index, request))
        self._read(index)  # from now on the waker is notified

    def drain_below(self, n_in_flight: int) -> None:
        """Wait until fewer than ``n_in_flight`` requests are in flight."""
        while len(self._streams) >= n_in_flight:
            self._read_notified()

    def close(self) -> None:
        """Cancel the requests in flight."""
        for stream in self._streams.values():
            stream.close()

    def _enqueue(self, index: int, request: PromptRequest) -> Request:
        while True:
            with contextlib.suppress(QueueFullError):
                return self._engine.try_enqueue(request, waker=self._waker, tag=index)
            self._engine.notify_when_queue_has_capacity(self._waker, _CAPACITY)
            while _CAPACITY not in self._read_notified():
                pass

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
        with _noting_index(self._noun, index):
            if not stream.poll():
                return
        del self._streams[index]
        self._done(index, stream.completion)

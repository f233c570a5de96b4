"""Completions of many prompts, or several of one, with a limited number of requests in flight.

At most twice ``n_parallel`` requests are in flight, so that the engine's batches stay full and the memory bounded. If
the queue is full, all functions wait for capacity.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sized

from pyggml._core.checks import INT32_MAX, UINT32_MAX, callback, integer
from pyggml.errors import InvalidParameterError, QueueFullError
from pyggml.generation.engine import Engine
from pyggml.generation.param_merging import without_schema
from pyggml.generation.pending_request import Prompt, PromptRequest, prompt_ids
from pyggml.generation.request import Request
from pyggml.generation.stream import Stream
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.tokenizer import Tokenizer
from pyggml.types import Completion, SamplingParams

Progress = Callable[[int, int | None], object]
_NumberedRequests = Iterator[tuple[int, PromptRequest]]

_CAPACITY = 2**64 - 1  # tag for capacity in the queue; the other tags are indices of prompts


def complete_prompts(
    engine: Engine,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    params: SamplingParams,
    parse_special: bool,
    progress: Progress | None,
) -> list[Completion]:
    """Complete each prompt on the calling thread, which sleeps while the engine works.

    Args and errors as :meth:`LLM.generate_batch <pyggml.LLM.generate_batch>`.
    """
    callback("progress", progress)
    requests = _requests(prompts, without_schema(params), tokenizer, parse_special)
    return _run(engine, requests, _Results(prompts if isinstance(prompts, Sized) else None, progress))


async def acomplete_prompts(
    engine: Engine,
    tokenizer: Tokenizer,
    prompts: Iterable[Prompt],
    params: SamplingParams,
    parse_special: bool,
    progress: Progress | None,
) -> list[Completion]:
    """As :func:`complete_prompts`, in the event loop."""
    import asyncio  # imported late to keep "import pyggml" fast

    callback("progress", progress)
    if params.json_schema is not None:
        params = await asyncio.to_thread(without_schema, params)
    requests = _requests(prompts, params, tokenizer, parse_special)
    return await _arun(engine, requests, _Results(prompts if isinstance(prompts, Sized) else None, progress))


def complete_n(
    engine: Engine, tokenizer: Tokenizer, prompt: Prompt, n: int, params: SamplingParams, parse_special: bool
) -> list[Completion]:
    """Complete one prompt ``n`` times on the calling thread, which sleeps while the engine works.

    Args and errors as :meth:`LLM.generate_n <pyggml.LLM.generate_n>`.
    """
    requests = _requests_of_one_prompt(prompt, n, params, tokenizer, parse_special)
    return _with_prompt_logprobs(_run(engine, requests, _Results(noun="completion")))


async def acomplete_n(
    engine: Engine, tokenizer: Tokenizer, prompt: Prompt, n: int, params: SamplingParams, parse_special: bool
) -> list[Completion]:
    """As :func:`complete_n`, in the event loop."""
    import asyncio

    requests = await asyncio.to_thread(_requests_of_one_prompt, prompt, n, params, tokenizer, parse_special)
    return _with_prompt_logprobs(await _arun(engine, requests, _Results(noun="completion")))


# --- requests -----------------------------------------------------------------------------------------------------


def _requests(
    prompts: Iterable[Prompt], params: SamplingParams, tokenizer: Tokenizer, parse_special: bool
) -> _NumberedRequests:
    """Requests with their indices, each created when the iterator reaches it."""

    def numbered(iterator: Iterator[Prompt]) -> _NumberedRequests:
        for index, prompt in enumerate(iterator):
            with _noting_index(index):
                request = _request(prompt, params, tokenizer, parse_special)
            yield index, request

    return numbered(_iterator_of(prompts))


def _iterator_of(prompts: Iterable[Prompt]) -> Iterator[Prompt]:
    if not isinstance(prompts, (str, bytes)) and isinstance(prompts, Iterable):
        with contextlib.suppress(TypeError):  # raised only now by an array of no dimensions, for instance
            return iter(prompts)
    raise InvalidParameterError(
        f"prompts must be an iterable of prompts, not {type(prompts).__name__}: put a single one in a list"
    )


def _requests_of_one_prompt(
    prompt: Prompt, n: int, params: SamplingParams, tokenizer: Tokenizer, parse_special: bool
) -> _NumberedRequests:
    """Requests with their indices. The first is created, and so checked, at once; the others when reached."""
    token_ids, params = prompt_ids(prompt, tokenizer, parse_special), without_schema(params)
    indices = range(integer("n", n, 1, INT32_MAX))
    first = _request(token_ids, params, tokenizer, parse_special)
    others = (_request(token_ids, _nth_params(params, i), tokenizer, parse_special) for i in indices[1:])
    return enumerate(itertools.chain([first], others))


def _request(prompt: Prompt, params: SamplingParams, tokenizer: Tokenizer, parse_special: bool) -> PromptRequest:
    return PromptRequest(
        prompt, params, tokenizer, parse_special=parse_special, is_streamed=False, waits_for_capacity=True
    )


def _nth_params(params: SamplingParams, index: int) -> SamplingParams:
    """Parameters of completion ``index`` of one prompt: its own seed; the prompt's logprobs only at index 0."""
    seed = None if params.seed is None else (params.seed + index) % UINT32_MAX
    return dataclasses.replace(params, seed=seed, prompt_logprobs=0)


def _with_prompt_logprobs(completions: list[Completion]) -> list[Completion]:
    """Copy the prompt's logprobs from the first completion to all of them."""
    logprobs = completions[0].prompt_logprobs
    return completions if logprobs is None else [dataclasses.replace(c, prompt_logprobs=logprobs) for c in completions]


# --- requests in flight -------------------------------------------------------------------------------------------


class _Results:
    """Completions by index, with reports of the progress to the caller.

    Attributes:
        noun: name of a counted item in messages.
    """

    def __init__(self, prompts: Sized | None = None, progress: Progress | None = None, noun: str = "prompt") -> None:
        self.noun = noun
        self._n_total = None if prompts is None else len(prompts)
        self._progress = progress
        self._completions: dict[int, Completion] = {}

    def add(self, index: int, completion: Completion) -> None:
        """Add a completion. Exceptions from the caller's callback propagate."""
        self._completions[index] = completion
        if self._progress is not None:
            self._progress(len(self._completions), self._n_total)

    def in_order(self) -> list[Completion]:
        """Return all completions in order; call it when none is missing."""
        return [self._completions[index] for index in range(len(self._completions))]


def _run(engine: Engine, requests: _NumberedRequests, results: _Results) -> list[Completion]:
    """Run every request on the calling thread. An exception cancels the other requests."""
    window = _Window(engine, results)
    try:
        for index, request in requests:
            window.drain_below(2 * engine.n_parallel)
            window.add(index, request)
        window.drain_below(1)
    finally:
        window.close()
    return results.in_order()


async def _arun(engine: Engine, requests: _NumberedRequests, results: _Results) -> list[Completion]:
    """As :func:`_run`, in an event loop: a limited number of tasks share the requests."""
    import asyncio

    from pyggml.generation.async_stream import AsyncStream

    async def work() -> None:
        for index, request in requests:
            with _noting_index(index, results.noun):
                completion = await AsyncStream(engine, request).finish()
            results.add(index, completion)

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
    return results.in_order()


class _Window:
    """The requests in flight, and one waker for all of them."""

    def __init__(self, engine: Engine, results: _Results) -> None:
        self._engine = engine
        self._results = results
        self._waker = Waker()
        self._streams: dict[int, Stream] = {}

    def add(self, index: int, request: PromptRequest) -> None:
        """Submit a request, after waiting for capacity if necessary."""
        with _noting_index(index, self._results.noun):
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
        with _noting_index(index, self._results.noun):
            if not stream.poll():
                return
        del self._streams[index]
        self._results.add(index, stream.completion)


@contextlib.contextmanager
def _noting_index(index: int, noun: str = "prompt") -> Iterator[None]:
    """Add a note to an exception that names the prompt (Python 3.11 and later)."""
    try:
        yield
    except Exception as error:
        if sys.version_info >= (3, 11):
            error.add_note(f"This was {noun} {index} of the batch, counted from 0.")
        raise

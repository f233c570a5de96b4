"""The methods of LLM that complete prompts, apart from LLM itself, which knows nothing about requests."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import INT32_MAX, UINT32_MAX, integer
from pyggml._core.checks import callback, flag
from pyggml._core.hints import with_hints
from pyggml.errors import InvalidParameterError
from pyggml.generation import bulk
from pyggml.generation.engine import Engine
from pyggml.generation.job import Job, Prompt, prompt_ids
from pyggml.generation.param_merging import merge, without_schema
from pyggml.generation.stream import Stream
from pyggml.tokenizer import Tokenizer
from pyggml.types import Completion, SamplingParams

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._keywords import SamplingOverrides
    from pyggml.generation.async_stream import AsyncStream


class Generating(ABC):
    """Base class of LLM with its methods for completions."""

    tokenizer: Tokenizer
    n_parallel: int
    _waits: bool

    @property
    @abstractmethod
    def _engine(self) -> Engine: ...

    @with_hints("prompts")
    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """Generates a completion and returns it when it is finished.

        Args:
            prompt: text (encoded with ``add_special``) or token ids.
            params: sampling parameters; None: greedy defaults.
            parse_special: read special tokens that a text spells, such as ``<|im_end|>``, as those tokens, so that you
                can write a prompt with its markup. False, for text from strangers: they are plain text.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            EmptyPromptError, ContextOverflowError: the prompt is empty or too long.
            InvalidParameterError, GrammarError: a parameter is invalid.
            QueueFullError: too many requests are waiting (``queue_full="raise"``).
            RequestTimeout: ``timeout_s`` passed before there was room in the queue (``queue_full="wait"``). A request
                that times out later returns what it has.
            ClosedError: the model was closed, before or during this call.
            EngineError: the engine failed.
        """
        job = self._job(prompt, merge(params, overrides), parse_special).unwatched()
        return Stream(job, job.queue()).finish()

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Stream:
        """Generates a completion and yields its text as it is generated.

        Args and errors as :meth:`generate`; invalid arguments raise here, not at the first chunk.

        Returns:
            An iterator of Chunks. Closing or dropping it cancels the generation.
        """
        job = self._job(prompt, merge(params, overrides), parse_special)
        return Stream(job, job.queue())

    async def agenerate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> Completion:
        """As :meth:`generate`, for coroutines. Cancelling the task cancels the generation."""
        from pyggml.generation.async_stream import (
            AsyncStream,  # loads asyncio, which would make "import pyggml" much slower
        )

        return await AsyncStream(self._job(prompt, merge(params, overrides), parse_special).unwatched()).finish()

    def astream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> AsyncStream:
        """As :meth:`stream`, for coroutines; ``async with`` submits the request, or else the first chunk does.

        Unknown or invalid parameters and an empty prompt raise here, what else is wrong with a request where it is
        submitted.

        Returns:
            An asynchronous context manager, and an asynchronous iterator of Chunks. Leaving, closing or dropping it, or
            cancelling the task that awaits it, cancels the generation.
        """
        from pyggml.generation.async_stream import AsyncStream

        return AsyncStream(self._job(prompt, merge(params, overrides), parse_special))

    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        progress: bulk.Progress | None = None,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """Generates a completion for each of many prompts, and returns them in the order of the prompts.

        At most twice ``n_parallel`` requests are in flight at a time, so thousands of prompts need no more memory than
        their results. If the queue is full, this waits for room, whatever ``queue_full`` is; each prompt's
        ``timeout_s`` counts from its submission.

        Args:
            prompts: any iterable, read as the work proceeds.
            params: used for every prompt.
            parse_special: as for :meth:`generate`.
            progress: called on this thread after each completion, with the number of completions so far and the number
                of prompts (None if ``prompts`` has no length).
            **overrides: as for :meth:`generate`.

        Raises:
            As :meth:`generate`, for the first prompt that fails; the others are cancelled and their results lost. On
            Python 3.11 and later a note says which prompt it was. An exception from ``progress`` or ``prompts`` has the
            same effect.
        """
        callback("progress", progress)
        jobs = self._numbered_jobs(prompts, merge(params, overrides), parse_special)
        results = bulk.Results(_n_total(prompts), progress)
        bulk.run(self._engine, jobs, 2 * self.n_parallel, results)
        return results.in_order()

    async def agenerate_batch(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        progress: bulk.Progress | None = None,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """As :meth:`generate_batch`, for coroutines; ``prompts`` is read and ``progress`` called in the event loop."""
        import asyncio

        callback("progress", progress)
        params = merge(params, overrides)
        if params.json_schema is not None:
            params = await asyncio.to_thread(without_schema, params)
        jobs = self._numbered_jobs(prompts, params, parse_special)
        results = bulk.Results(_n_total(prompts), progress)
        await bulk.arun(jobs, 2 * self.n_parallel, results)
        return results.in_order()

    def generate_n(
        self,
        prompt: Prompt,
        n: int,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """Generates ``n`` completions of one prompt, which is computed once and shared.

        The first completion computes the prompt, and the others start from its cache, as their ``cached_tokens`` show.
        If the prompt is short (about thirty tokens), they do not wait for the first but compute it themselves. With
        ``prefix_cache=False``, and for models whose memory cannot be shared (recurrent ones), each completion computes
        the whole prompt.

        At most twice ``n_parallel`` requests are in flight at a time. If the queue is full, this waits for room,
        whatever ``queue_full`` is; each completion's ``timeout_s`` counts from its submission.

        Args:
            prompt: as for :meth:`generate`.
            n: number of completions, at least 1.
            params: used for all completions. With a ``seed``, they use that seed, the next one, and so on; without,
                each gets a random seed. Greedy completions are all the same.
            parse_special: as for :meth:`generate`.
            **overrides: as for :meth:`generate`.

        Raises:
            As :meth:`generate`.
        """
        jobs = self._same_jobs(prompt, n, merge(params, overrides), parse_special)
        results = bulk.Results(n, None, what="completion")
        bulk.run(self._engine, enumerate(jobs), 2 * self.n_parallel, results)
        return _with_prompt_logprobs(results.in_order())

    async def agenerate_n(
        self,
        prompt: Prompt,
        n: int,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = True,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Completion]:
        """As :meth:`generate_n`, for coroutines. Cancelling the task cancels all the completions."""
        import asyncio

        jobs = await asyncio.to_thread(self._same_jobs, prompt, n, merge(params, overrides), parse_special)
        results = bulk.Results(n, None, what="completion")
        await bulk.arun(enumerate(jobs), 2 * self.n_parallel, results)
        return _with_prompt_logprobs(results.in_order())

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: Literal[False] = False
    ) -> str: ...

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: Literal[True]
    ) -> Completion: ...

    @overload
    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: bool
    ) -> str | Completion: ...

    async def forward(
        self, prompt: Prompt, sample_len: int, *, parse_special: bool = True, completion: bool = False
    ) -> str | Completion:
        """Generates at most ``sample_len`` tokens greedily. Cancelling the task cancels the generation.

        Args:
            prompt: as for :meth:`generate`.
            sample_len: maximum number of tokens.
            parse_special: as for :meth:`generate`.
            completion: return the whole Completion, with the reason why it ended and the counts of tokens, instead of
                only its text.

        Raises:
            As :meth:`generate`.
        """
        is_whole = flag("completion", completion)
        result = await self.agenerate(prompt, parse_special=parse_special, max_tokens=sample_len)
        return result if is_whole else result.text

    def logits(self, prompt: Prompt, *, parse_special: bool = True) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), owned by the caller.

        ``parse_special`` is that of :meth:`generate`.

        Raises:
            As :meth:`generate`.
        """
        return self._engine.logits(prompt_ids(prompt, self.tokenizer, parse_special), waits=self._waits)

    def _job(self, prompt: Prompt, params: SamplingParams, parse_special: bool, *, waits: bool | None = None) -> Job:
        waits = self._waits if waits is None else waits
        return Job(self._engine, self.tokenizer, prompt, params, parse_special=parse_special, waits=waits)

    def _same_jobs(self, prompt: Prompt, n: int, params: SamplingParams, parse_special: bool) -> Iterator[Job]:
        """Jobs of one prompt, checked here, and each made when there is room for it."""
        token_ids, params = prompt_ids(prompt, self.tokenizer, parse_special), without_schema(params)
        indices = range(integer("n", n, 1, INT32_MAX))
        first = self._job(token_ids, params, parse_special, waits=True).unwatched()
        others = (self._job(token_ids, _nth(params, i), parse_special, waits=True).unwatched() for i in indices[1:])
        return itertools.chain([first], others)

    def _numbered_jobs(
        self, prompts: Iterable[Prompt], params: SamplingParams, parse_special: bool
    ) -> bulk.NumberedJobs:
        params = without_schema(params)  # once, not for each prompt
        return bulk.jobs(
            _each_prompt(prompts), lambda prompt: self._job(prompt, params, parse_special, waits=True).unwatched()
        )


def _nth(params: SamplingParams, index: int) -> SamplingParams:
    """The parameters for completion ``index`` of one prompt: its own seed; the prompt's logprobs only at index 0."""
    if index == 0:
        return params
    seed = None if params.seed is None else (params.seed + index) % UINT32_MAX
    return dataclasses.replace(params, seed=seed, prompt_logprobs=0)


def _with_prompt_logprobs(completions: list[Completion]) -> list[Completion]:
    """Copies the prompt's logprobs from the first completion to all of them."""
    logprobs = completions[0].prompt_logprobs
    return completions if logprobs is None else [dataclasses.replace(c, prompt_logprobs=logprobs) for c in completions]


def _each_prompt(prompts: Iterable[Prompt]) -> Iterator[Prompt]:
    if not isinstance(prompts, (str, bytes)) and isinstance(prompts, Iterable):
        with contextlib.suppress(TypeError):  # some say so only now, such as an array of no dimensions
            return iter(prompts)
    raise InvalidParameterError(
        f"prompts must be an iterable of prompts, not {type(prompts).__name__}: put a single one in a list"
    )


def _n_total(prompts: Iterable[Prompt]) -> int | None:
    return len(prompts) if isinstance(prompts, Sized) else None

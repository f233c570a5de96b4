"""Requests in flight: token ids, which a thread or a task reads as the engine's thread generates them."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.checks import INT32_MAX, integer
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import Owner
from pyggml.generation import logprobs
from pyggml.generation.waker import SIGNAL_CHECK_S
from pyggml.types import FinishReason, SamplingParams, Timings, TokenLogprobs

if TYPE_CHECKING:
    from pyggml._core.ffi import CData
    from pyggml.generation.engine import Engine
    from pyggml.generation.event_loops import LoopWaiter
    from pyggml.generation.logits_processing import LogitsProcessing

#: Maximum number of tokens that one read returns.
READ_TOKENS = 512
#: Number of tokens per read of a reader that waits for the end: no noticeable time in an event loop.
TOKENS_PER_READ = 256

_AFTER_DEADLINE_S = 0.001  # the engine starts counting a moment later

_FINISH_REASONS: dict[int, FinishReason] = {
    lib.PYG_FINISH_STOP: "stop",
    lib.PYG_FINISH_LENGTH: "length",
    lib.PYG_FINISH_CANCELLED: "cancelled",
    lib.PYG_FINISH_TIMEOUT: "timeout",
    lib.PYG_FINISH_REPETITION: "length",
}
#: Reasons of the engine other than stop tokens.
_STOP_REASONS = {lib.PYG_FINISH_REPETITION: "repetition"}


class Request(Owner):
    """A request in flight, from :meth:`Engine.submit <pyggml.Engine.submit>`: an iterable of new tokens.

    One reader at a time: a thread (``for token_ids in request``, :meth:`read`, :meth:`read_all`), or a task in the
    event loop in which it was submitted (``async for``, :meth:`aread`, :meth:`aread_all`). Any thread may cancel it;
    dropping the last reference cancels it too.

    Attributes:
        logprobs: log probabilities of the tokens of the last read; None unless requested.
    """

    _instead_of_a_copy = "take its tokens, which are plain numbers"

    def __init__(
        self,
        handle: CData,
        engine: Engine,
        prompt: npt.NDArray[np.int32] | None = None,
        params: SamplingParams | None = None,
        timeout_s: float | None = None,
        waiter: LoopWaiter | None = None,
        processing: LogitsProcessing | None = None,
    ) -> None:
        """Take ownership of a native request, and keep its engine alive; for the engine.

        ``prompt`` and ``params`` are needed for logprobs and stop reasons; ``timeout_s`` counts from now; ``waiter``
        receives the request's notifications if a task reads it.

        Args:
            handle: the native ``pyg_request *``.
            engine: the engine that computes it.
            prompt: the prompt's token ids, int32, (n,); needed for the prompt's logprobs.
            params: the sampling parameters; needed for logprobs and stop reasons.
            timeout_s: seconds from now after which the request ends; None: no limit.
            waiter: receives the request's notifications if a task reads it.
            processing: the request's logits processors, which live as long as this.
        """
        params = params or SamplingParams()
        self._handle = handle
        self._engine = engine
        self._prompt = prompt.copy() if prompt is not None and params.prompt_logprobs else None
        self._max_tokens = params.max_tokens
        self._n_logprobs = min(params.logprobs, engine.n_vocab)
        self._n_prompt_logprobs = min(params.prompt_logprobs, engine.n_vocab)
        self.logprobs: list[TokenLogprobs] | None = [] if params.logprobs else None
        self._waiter = waiter
        self._processing = processing
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s + _AFTER_DEADLINE_S
        self._reader = threading.Lock()
        self._buffer = ffi.new("int32_t[]", READ_TOKENS)
        self._state = ffi.new("pyg_request_state *")
        self._n_out = ffi.new("int32_t *")

    # --- in a thread ----------------------------------------------------------------------------------------

    def read(self, min_tokens: int = 1) -> list[int]:
        """Wait for new tokens or the end, and return the available tokens (at most 512).

        With ``min_tokens``, wait until there are that many, for at most a twentieth of a second. Releases the GIL while
        waiting. After the end it returns any remaining tokens, then ``[]``, and :attr:`finish_reason` is set.

        Args:
            min_tokens: number of tokens to wait for.

        Raises:
            InvalidParameterError: another thread or task is reading it now.
            InvalidParameterError: its ``logits_processor`` raised an exception, which is the cause of this one.
            ClosedError: the engine was closed while the request was running.
            EngineError: the engine failed.
            KeyboardInterrupt: Ctrl-C, within a twentieth of a second.
        """
        self._require_no_reader()
        with self._reader:
            while True:
                token_ids = self._take(min_tokens, SIGNAL_CHECK_S)
                if token_ids or self._has_ended:
                    return token_ids

    def read_now(self, min_tokens: int = 1) -> list[int]:
        """Return the available tokens without waiting; there may be none.

        If there are fewer than ``min_tokens``, the request's waker is notified once there are that many, or at the end.
        Errors as :meth:`read`.

        Args:
            min_tokens: number of tokens that are worth a notification.
        """
        self._require_no_reader()
        with self._reader:
            return self._take(min_tokens, 0.0)

    def read_all(self) -> list[int]:
        """Run to the end and return the tokens not read before. Wakes up rarely. Errors as :meth:`read`."""
        reads = []
        while token_ids := self.read(TOKENS_PER_READ):
            reads.append((token_ids, self.logprobs))
        return self._joined(reads)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the result of each :meth:`read`, until the end."""
        while token_ids := self.read():
            yield token_ids

    # --- in an event loop -----------------------------------------------------------------------------------

    async def aread(self, min_tokens: int = 1) -> list[int]:
        """As :meth:`read`, for tasks in the event loop in which the request was submitted.

        The engine wakes the loop through one descriptor for all its requests: there is no helper thread and no polling.
        Cancelling the task leaves the generation running and loses no tokens.

        Raises:
            InvalidParameterError: another thread or task is reading it now, or it was submitted elsewhere.
            ClosedError, EngineError: as :meth:`read`.
        """
        self._require_no_reader()
        with self._reader:
            waiter = self._waiter
            if waiter is not None and self._n_out[0] == READ_TOKENS:
                await waiter.yield_to_loop()  # the caller has just handled many tokens, and more may follow
            while True:
                token_ids = self._take(min_tokens, 0.0)
                if token_ids or self._has_ended:
                    return token_ids
                if waiter is None or not waiter.is_in_running_loop:
                    raise errors.InvalidParameterError(
                        "this request was not submitted in this event loop: call submit() in the coroutine that reads, "
                        "or read it in a thread"
                    )
                if not waiter.is_open:
                    return []
                await waiter.wait(self._until_deadline())

    async def aread_all(self) -> list[int]:
        """As :meth:`read_all`, for tasks in the event loop in which it was submitted. Errors as :meth:`aread`."""
        reads = []
        while token_ids := await self.aread(TOKENS_PER_READ):
            reads.append((token_ids, self.logprobs))
        return self._joined(reads)

    async def __aiter__(self) -> AsyncIterator[list[int]]:
        """Yield the result of each :meth:`aread`, until the end."""
        while token_ids := await self.aread():
            yield token_ids

    # --- state ----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the request at the engine's next opportunity, even during prefill. Does not wait; any thread may call.

        Tokens generated by then can still be read; :attr:`finish_reason` is then "cancelled".
        """
        lib.pyg_request_cancel(self._handle)

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the request has ended and all its tokens have been read."""
        return _FINISH_REASONS.get(self._state.finish)

    @property
    def stop_token_id(self) -> int | None:
        """The stop token that ended the request, if one did."""
        return self._state.stop_token_id if self._state.stop_token_id >= 0 else None

    @property
    def stop_reason(self) -> str | int | None:
        """The stop token or the limit that ended the request; see :class:`Completion`. Stop strings are found later."""
        if self.finish_reason == "length":
            limit = "max_tokens" if 0 <= self._max_tokens <= self._state.n_generated else "context"
            return _STOP_REASONS.get(self._state.finish, limit)
        return self.stop_token_id

    @property
    def model_path(self) -> str:
        """The file of the model that computes it."""
        return self._engine.model.path

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens, as of the last read."""
        return int(self._state.n_prompt)

    @property
    def cached_tokens(self) -> int:
        """Number of prompt tokens taken from the cache, as of the last read."""
        return int(self._state.n_cached)

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        """Logprobs of the prompt tokens computed by the time of the last read; None unless requested."""
        if self._prompt is None:
            return None
        token_ids = self._prompt[1 : 1 + self._state.n_prompt_logprobs].tolist()
        return [None, *logprobs.read(self._handle, token_ids, 0, self._n_prompt_logprobs, of_prompt=True)]

    def saved_prefix(self) -> bytes:
        """The prompt's KV cells, after the end of a request that saves them.

        Raises:
            InvalidParameterError: it has not ended, or saves none.
        """
        data, size = ffi.new("const void **"), ffi.new("size_t *")
        c_calls.call(lib.pyg_request_saved_prefix, self._handle, data, size)
        return bytes(ffi.buffer(data[0], size[0]))

    @property
    def timings(self) -> Timings:
        """Duration of each phase, as of the last read."""
        state = self._state
        return Timings(
            queue_s=state.queue_s,
            prefill_s=state.prefill_s,
            decode_s=state.decode_s,
            prompt_tokens=state.n_prompt,
            computed_tokens=state.n_prefilled,
            generated_tokens=state.n_generated,
            n_preemptions=state.n_preemptions,
            n_drafted_forced=state.guesses.n_drafted_forced,
            n_accepted_forced=state.guesses.n_accepted_forced,
            n_drafted_lookup=state.guesses.n_drafted_lookup,
            n_accepted_lookup=state.guesses.n_accepted_lookup,
            n_drafted_model=state.guesses.n_drafted_model,
            n_accepted_model=state.guesses.n_accepted_model,
        )

    def __repr__(self) -> str:
        end = self.finish_reason or ("closed" if self._has_ended else "running")
        return f"Request({end}, {self._state.n_read} tokens read)"

    # --- inside ---------------------------------------------------------------------------------------------

    def _require_no_reader(self) -> None:
        """Refuse a second reader, which would take part of the tokens.

        A reader that arrives between this check and the lock waits instead. ``acquire(blocking=False)`` would be a
        single step, but Ctrl-C between that and ``try`` would leave the lock held forever.
        """
        if self._reader.locked():
            raise errors.InvalidParameterError("another thread or task is reading this request: one reader at a time")

    def _take(self, min_tokens: int, timeout_s: float) -> list[int]:
        min_tokens = integer("min_tokens", min_tokens, 0, INT32_MAX)
        arguments = min_tokens, timeout_s, self._buffer, READ_TOKENS, self._n_out, self._state
        try:
            c_calls.call(lib.pyg_request_wait, self._handle, *arguments)
        except errors.InvalidParameterError:
            if self._processing is None or self._processing.error is None:
                raise
            error = self._processing.error
            what = f"logits_processor raised {type(error).__name__}: {error}".removesuffix(": ")
            raise errors.InvalidParameterError(what) from error
        if self._has_ended:
            self._waiter = None
        if self._state.finish == lib.PYG_FINISH_CLOSED:
            raise errors.ClosedError("the engine was closed while this request was running")
        token_ids = list(self._buffer[0 : self._n_out[0]])
        if self.logprobs is not None:
            first = self._state.n_read - len(token_ids)
            self.logprobs = logprobs.read(self._handle, token_ids, first, self._n_logprobs)
        return token_ids

    def _joined(self, reads: list[tuple[list[int], list[TokenLogprobs] | None]]) -> list[int]:
        """Return the tokens of several reads, and set the logprobs to those of all of them."""
        if self.logprobs is not None:
            self.logprobs = [each for _, logprobs in reads for each in logprobs or ()]
        return [token_id for token_ids, _ in reads for token_id in token_ids]

    @property
    def _has_ended(self) -> bool:
        return bool(self._state.finish != lib.PYG_FINISH_NONE)

    def _until_deadline(self) -> float | None:
        """Seconds to wait before checking whether a queued request has timed out; a running one ends by itself."""
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        return left if left > 0 else None

"""The Python face of the native engine: submit, read, cancel.

The engine's thread decodes; Python only queues requests and takes their token ids in chunks, with the GIL released
while it waits. Nothing here runs per token.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml._native import int32_array, pointer
from pyggml.context import Context
from pyggml.types import EngineStats, FinishReason, SamplingParams, Timings

if TYPE_CHECKING:
    from pyggml._ffi import CData

TokenIds = Sequence[int] | npt.NDArray[np.integer[Any]]

# A waiting call comes up for air this often, so that Python can run signal handlers (Ctrl-C).
_SIGNAL_CHECK_S = 0.05
_CHUNK_TOKENS = 4096

_FINISH_REASONS: dict[int, FinishReason] = {
    lib.PYG_FINISH_STOP: "stop",
    lib.PYG_FINISH_LENGTH: "length",
    lib.PYG_FINISH_CANCELLED: "cancelled",
    lib.PYG_FINISH_TIMEOUT: "timeout",
}

_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Request:
    """One generation in flight. One thread reads it; any thread may cancel it.

    Dropping it cancels it if it still runs.
    """

    def __init__(self, handle: CData, engine: Engine) -> None:
        """Takes ownership of a native request, and keeps its engine alive."""
        self._handle = handle
        self._engine = engine
        self._buffer = ffi.new("int32_t[]", _CHUNK_TOKENS)
        self._state = ffi.new("pyg_request_state *")
        self._n_out = ffi.new("int32_t *")

    def read(self, min_tokens: int = 1) -> list[int]:
        """Waits for new tokens, or the end, and returns all there are (at most 4,096).

        With ``min_tokens`` it lets that many gather first, for a twentieth of a second at most.

        The GIL is released while waiting. After the end it returns what is left, then ``[]``, and
        :attr:`finish_reason` is set.

        Raises:
            ClosedError: the engine was closed under the request.
            EngineError: the engine failed.
            KeyboardInterrupt: Ctrl-C, within a twentieth of a second.
        """
        while True:
            errors.call(
                lib.pyg_request_wait,
                self._handle,
                min_tokens,
                _SIGNAL_CHECK_S,
                self._buffer,
                _CHUNK_TOKENS,
                self._n_out,
                self._state,
            )
            if self._state.finish == lib.PYG_FINISH_CLOSED:
                raise errors.ClosedError("the model was closed while this request was running")
            n = self._n_out[0]
            if n or self._state.finish != lib.PYG_FINISH_NONE:
                return list(self._buffer[0:n])

    def cancel(self) -> None:
        """Ends the request at the engine's next opportunity, also inside prefill. Does not wait."""
        lib.pyg_request_cancel(self._handle)

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the request has ended and all its tokens are read."""
        return _FINISH_REASONS.get(self._state.finish)

    @property
    def stop_token_id(self) -> int | None:
        """The stop token that ended it, if one did."""
        return self._state.stop_token_id if self._state.stop_token_id >= 0 else None

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return int(self._state.n_prompt)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose computation was reused."""
        return int(self._state.n_cached)

    @property
    def timings(self) -> Timings:
        """Where the time went, as of the last read."""
        state = self._state
        return Timings(state.queue_s, state.prefill_s, state.decode_s, state.n_prefilled, state.n_generated)


class Engine:
    """One context and the native thread that decodes with it.

    Any thread may submit. Requests are computed in the order they come.
    """

    def __init__(self, context: Context, n_ctx: int = 0) -> None:
        """Takes the context over: it is closed for everybody else.

        Args:
            context: made for this engine.
            n_ctx: cells that requests may use; 0: all the context has.

        Raises:
            UnsupportedArchitectureError: the model does not generate token by token.
            InvalidParameterError: n_ctx is more than the context has.
        """
        self.n_ctx = n_ctx or context.n_ctx
        self.n_vocab = context.n_vocab
        self._handle = errors.create("pyg_engine", lib.pyg_engine_free, lib.pyg_engine_new, context._handle, n_ctx)
        context.close()
        _open_engines.add(self)

    def submit(self, token_ids: TokenIds, params: SamplingParams, stop_token_ids: Sequence[int]) -> Request:
        """Queues a generation.

        Args:
            token_ids: the prompt.
            params: its ``stop`` strings are the caller's business; everything else is done here.
            stop_token_ids: the complete set of tokens to end at.

        Raises:
            EmptyPromptError: no tokens.
            ContextOverflowError: more tokens than n_ctx.
            InvalidParameterError: a token id outside the vocabulary.
            GrammarError: the grammar or schema cannot be used.
            ClosedError: the engine was closed.
        """
        prompt = int32_array("the prompt", token_ids)
        options, borrowed = _native_options(params, stop_token_ids)
        handle = errors.create(
            "pyg_request",
            lib.pyg_request_free,
            lib.pyg_engine_submit,
            self._handle,
            pointer("int32_t[]", prompt),
            len(prompt),
            options,
        )
        del borrowed  # the native side has copied it
        return Request(handle, self)

    def logits(self, token_ids: TokenIds) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), owned by the caller.

        Raises:
            As :meth:`submit`; EngineError when the computation failed.
        """
        prompt = int32_array("the prompt", token_ids)
        logits = self._room_for_logits(len(prompt))

        def free(request: CData, _lent: object = logits) -> None:
            """Waits until the engine has let go of the array, which lives as long as this function does."""
            lib.pyg_request_free(request)

        handle = errors.create(
            "pyg_request",
            free,
            lib.pyg_engine_submit_logits,
            self._handle,
            pointer("int32_t[]", prompt),
            len(prompt),
            pointer("float[]", logits.reshape(-1)),
        )
        Request(handle, self).read()
        return logits

    def reset(self) -> None:
        """Forgets everything in the context's memory, once the queue is empty. Does not wait.

        Raises:
            ClosedError: the engine was closed.
        """
        errors.call(lib.pyg_engine_reset, self._handle)

    def stats(self) -> EngineStats:
        """The engine's counters. Never waits for a decode.

        Raises:
            ClosedError: the engine was closed.
        """
        out = ffi.new("pyg_engine_stats *")
        errors.call(lib.pyg_engine_get_stats, self._handle, out)
        return EngineStats(**{name: getattr(out, name) for name in EngineStats.__dataclass_fields__})

    def _room_for_logits(self, n_tokens: int) -> npt.NDArray[np.float32]:
        if n_tokens > self.n_ctx:
            n_tokens = 0  # the engine is going to refuse the prompt, by name
        n_bytes, available = n_tokens * self.n_vocab * 4, lib.pyg_memory_available()
        if n_bytes > available:
            raise errors.OutOfMemoryError(
                f"the logits of {n_tokens} tokens need {n_bytes} bytes, and {available} bytes are available",
                n_bytes,
                available,
            )
        return np.empty((n_tokens, self.n_vocab), np.float32)

    def close(self) -> None:
        """Ends every request (their readers get ClosedError), stops the thread and frees the context.

        Waits until the thread has ended, which takes at most one step of a decode. May be repeated.
        """
        errors.call(lib.pyg_engine_close, self._handle)
        _open_engines.discard(self)


def _native_options(params: SamplingParams, stop_token_ids: Sequence[int]) -> tuple[CData, list[CData]]:
    """The request's options, and what they point to, which must live until the native call has copied it."""
    options = ffi.new("pyg_request_options *")
    options.max_tokens = params.max_tokens
    options.timeout_s = -1.0 if params.timeout_s is None else params.timeout_s
    stop = ffi.new("int32_t[]", list(stop_token_ids))
    options.stop_token_ids, options.n_stop = stop, len(stop_token_ids)
    return options, [stop, *_fill_sampling(options.sampling, params)]


def _fill_sampling(sampling: CData, params: SamplingParams) -> list[CData]:
    sampling.temperature = params.temperature
    sampling.top_k = params.top_k
    sampling.top_p = params.top_p
    sampling.min_p = params.min_p
    sampling.typical_p = params.typical_p
    sampling.repeat_penalty = params.repeat_penalty
    sampling.frequency_penalty = params.frequency_penalty
    sampling.presence_penalty = params.presence_penalty
    sampling.penalty_last_n = params.penalty_last_n
    sampling.seed = _any_seed() if params.seed is None else params.seed

    bias = dict(params.logit_bias or {})
    ids, values = ffi.new("int32_t[]", list(bias)), ffi.new("float[]", list(bias.values()))
    sampling.bias_token_ids, sampling.bias_values, sampling.n_bias = ids, values, len(bias)
    borrowed = [ids, values]
    if params.grammar is not None:
        sampling.grammar = grammar = ffi.new("char[]", params.grammar.encode())
        borrowed.append(grammar)
    return borrowed


def _any_seed() -> int:
    return int.from_bytes(os.urandom(4), "little") >> 1


@atexit.register
def _close_engines() -> None:
    """Stops the native threads before the interpreter and the process's statics go away under them."""
    for engine in list(_open_engines):
        engine.close()

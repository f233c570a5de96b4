"""The Python interface of the native engine: submit, read, cancel.

The engine's own thread decodes. Python only queues requests and reads their token ids in chunks, and releases the GIL
while it waits. Nothing here runs per token.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from pyggml import errors
from pyggml._ffi import ffi, lib
from pyggml._native import int32_array, pointer
from pyggml._owner import Owner
from pyggml.context import Context
from pyggml.generation import logprobs
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.types import EngineStats, FinishReason, Grammar, SamplingParams, Timings, TokenLogprobs
from pyggml.units import bytes_text

if TYPE_CHECKING:
    from pyggml._ffi import CData

TokenIds = Sequence[int] | npt.NDArray[np.integer[Any]]
T = TypeVar("T")

#: Maximum number of tokens that one read returns.
READ_TOKENS = 512

_FINISH_REASONS: dict[int, FinishReason] = {
    lib.PYG_FINISH_STOP: "stop",
    lib.PYG_FINISH_LENGTH: "length",
    lib.PYG_FINISH_CANCELLED: "cancelled",
    lib.PYG_FINISH_TIMEOUT: "timeout",
}

# The sampling parameters that are passed on unchanged: numbers whose fields in C have the same name.
_SAMPLING_NUMBERS = [
    name
    for name, field in ffi.typeof("pyg_sampling").fields
    if field.type.kind == "primitive" and name in SamplingParams.__dataclass_fields__
]

_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Request(Owner):
    """One generation in flight. One thread reads it; any thread may cancel it.

    Dropping it cancels the generation.

    Attributes:
        logprobs: log probabilities of the tokens of the last read; None unless requested.
    """

    _instead_of_a_copy = "take its tokens, which are plain numbers"

    def __init__(
        self,
        handle: CData,
        engine: Engine,
        prompt: npt.NDArray[np.int32] | None = None,
        n_logprobs: int = 0,
        n_prompt_logprobs: int = 0,
    ) -> None:
        """Takes ownership of a native request, and keeps its engine alive.

        Args:
            handle: the native request.
            engine: the engine that runs it.
            prompt: the prompt; needed only for its logprobs.
            n_logprobs: number of alternatives to report for each generated token; 0: no logprobs.
            n_prompt_logprobs: the same for the tokens of the prompt.
        """
        self._handle = handle
        self._engine = engine
        self._prompt = prompt.copy() if prompt is not None and n_prompt_logprobs else None
        self._n_logprobs = min(n_logprobs, engine.n_vocab)
        self._n_prompt_logprobs = min(n_prompt_logprobs, engine.n_vocab)
        self.logprobs: list[TokenLogprobs] | None = [] if n_logprobs else None
        self._buffer = ffi.new("int32_t[]", READ_TOKENS)
        self._state = ffi.new("pyg_request_state *")
        self._n_out = ffi.new("int32_t *")

    def read(self, min_tokens: int = 1) -> list[int]:
        """Waits for new tokens or the end, and returns the available tokens (at most 512).

        With ``min_tokens`` it lets that many gather first, for at most a twentieth of a second. Releases the GIL while
        waiting. After the end it returns any remaining tokens, then ``[]``, and :attr:`finish_reason` is set.

        Raises:
            ClosedError: the engine was closed while the request was running.
            EngineError: the engine failed.
            KeyboardInterrupt: Ctrl-C, within a twentieth of a second.
        """
        while True:
            token_ids = self._take(min_tokens, SIGNAL_CHECK_S)
            if token_ids or self._state.finish != lib.PYG_FINISH_NONE:
                return token_ids

    def read_now(self, min_tokens: int = 1) -> list[int]:
        """Returns the available tokens without waiting; there may be none.

        If there are fewer than ``min_tokens``, the request's waker is notified once there are that many, or at the end.

        Raises:
            As :meth:`read`.
        """
        return self._take(min_tokens, 0.0)

    def _take(self, min_tokens: int, timeout_s: float) -> list[int]:
        errors.call(
            lib.pyg_request_wait,
            self._handle,
            min_tokens,
            timeout_s,
            self._buffer,
            READ_TOKENS,
            self._n_out,
            self._state,
        )
        if self._state.finish == lib.PYG_FINISH_CLOSED:
            raise errors.ClosedError("the model was closed while this request was running")
        token_ids = list(self._buffer[0 : self._n_out[0]])
        if self.logprobs is not None:
            first = self._state.n_read - len(token_ids)
            self.logprobs = logprobs.read(self._handle, token_ids, first, self._n_logprobs)
        return token_ids

    def cancel(self) -> None:
        """Ends the request at the engine's next opportunity, even during prefill. Does not wait."""
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
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return int(self._state.n_prompt)

    @property
    def cached_tokens(self) -> int:
        """Number of prompt tokens taken from the cache."""
        return int(self._state.n_cached)

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        """Logprobs of the prompt tokens computed by the time of the last read; None unless requested."""
        if self._prompt is None:
            return None
        token_ids = self._prompt[1 : 1 + self._state.n_prompt_logprobs].tolist()
        return [None, *logprobs.read(self._handle, token_ids, 0, self._n_prompt_logprobs, of_prompt=True)]

    @property
    def timings(self) -> Timings:
        """How long each phase took, as of the last read."""
        state = self._state
        return Timings(
            queue_s=state.queue_s,
            prefill_s=state.prefill_s,
            decode_s=state.decode_s,
            prompt_tokens=state.n_prefilled,
            generated_tokens=state.n_generated,
            n_preemptions=state.n_preemptions,
        )


class Engine(Owner):
    """One context and the native thread that decodes with it.

    Any thread may submit. The engine computes as many requests together as the context has sequences; the others wait
    and are started in the order of their submission.

    Attributes:
        n_ctx: context size in tokens, shared by the requests.
        n_vocab: number of logits in a row.
    """

    _instead_of_a_copy = "share this one between threads and tasks; another process makes its own"

    def __init__(
        self,
        context: Context,
        n_ctx: int = 0,
        prefix_cache: bool = True,
        max_queue: int | None = None,
        adapt_threads: bool = False,
    ) -> None:
        """Takes over the context and closes it for everybody else.

        Args:
            context: a context made for this engine.
            n_ctx: number of cells that requests may use; 0: all cells of the context.
            prefix_cache: keep the work of finished requests for prompts with the same beginning, while there is room.
            max_queue: maximum number of waiting requests; None: no limit.
            adapt_threads: adapt the number of compute threads while running; otherwise the context's number is kept.

        Raises:
            UnsupportedArchitectureError: the model does not generate token by token.
            InvalidParameterError: n_ctx is more than the context has.
        """
        self.n_ctx = n_ctx or context.n_ctx
        self.n_vocab = context.n_vocab
        options = ffi.new("pyg_engine_options *", lib.pyg_engine_default_options())
        options.n_ctx = n_ctx
        options.max_queue = 0 if max_queue is None else max_queue
        options.prefix_cache = prefix_cache
        options.adapt_threads = adapt_threads
        self._handle = errors.create("pyg_engine", lib.pyg_engine_free, lib.pyg_engine_new, context._handle, options)
        context.close()
        _open_engines.add(self)

    def submit(
        self,
        token_ids: TokenIds,
        params: SamplingParams,
        stop_token_ids: Sequence[int],
        *,
        timeout_s: float | None = None,
        waker: Waker | None = None,
        tag: int = 0,
    ) -> Request:
        """Queues a generation.

        Args:
            token_ids: the prompt.
            params: sampling parameters; ``stop`` and ``timeout_s`` are ignored here and left to the caller.
            stop_token_ids: all tokens that end the generation.
            timeout_s: time limit, counted from now; None: no limit.
            waker: notified with ``tag`` when there is news; see :meth:`Request.read_now`.
            tag: identifies the request to the waker, 0 to 2**64 - 1.

        Raises:
            EmptyPromptError: the prompt has no tokens.
            ContextOverflowError: the prompt has more tokens than n_ctx.
            InvalidParameterError: a token id is outside the vocabulary.
            GrammarError: the grammar cannot be used.
            QueueFullError: ``max_queue`` requests are already waiting.
            ClosedError: the engine was closed.
        """
        prompt = int32_array("the prompt", token_ids)
        options, borrowed = _native_options(params, stop_token_ids)
        options.timeout_s = -1.0 if timeout_s is None else timeout_s
        if waker is not None:
            options.waker, options.tag = waker.handle, tag
        handle = errors.create(
            "pyg_request",
            lib.pyg_request_free,
            lib.pyg_engine_submit,
            self._handle,
            pointer("int32_t[]", prompt),
            len(prompt),
            options,
        )
        del borrowed  # native code has copied it
        return Request(handle, self, prompt, params.logprobs, params.prompt_logprobs)

    def ask_for_room(self, waker: Waker, tag: int = 0) -> None:
        """Notifies the waker once there is room in the queue, possibly at once. The room is not reserved.

        Raises:
            ClosedError: the engine was closed. If it is closed later, the waker is notified too.
        """
        errors.call(lib.pyg_engine_ask_for_room, self._handle, waker.handle, tag)

    def when_there_is_room(self, attempt: Callable[[], T], deadline: float | None = None) -> T:
        """Retries ``attempt`` until the queue has room, and returns its result.

        Releases the GIL while waiting.

        Args:
            attempt: submits something; raises QueueFullError when there is no room.
            deadline: when to give up, by :func:`time.monotonic`; None: never.

        Raises:
            RequestTimeout: the deadline has passed.
            ClosedError: the engine was closed.
        """
        waker: Waker | None = None
        while True:
            try:
                return attempt()
            except errors.QueueFullError:
                waker = waker or Waker()
            self.ask_for_room(waker)
            while not waker.take(SIGNAL_CHECK_S):
                time_left(deadline)

    def logits(self, token_ids: TokenIds, *, waits: bool = False) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), owned by the caller.

        Args:
            token_ids: the prompt.
            waits: if the queue is full, wait for room.

        Raises:
            As :meth:`submit`; EngineError: the computation failed.
        """
        prompt = int32_array("the prompt", token_ids)
        logits = self._room_for_logits(len(prompt))

        def free(request: CData, _lent: object = logits) -> None:
            """Waits until the engine has released the array, which this function keeps alive."""
            lib.pyg_request_free(request)

        def submit() -> CData:
            return errors.create(
                "pyg_request",
                free,
                lib.pyg_engine_submit_logits,
                self._handle,
                pointer("int32_t[]", prompt),
                len(prompt),
                pointer("float[]", logits.reshape(-1)),
            )

        Request(self.when_there_is_room(submit) if waits else submit(), self).read()
        return logits

    def reset(self) -> None:
        """Clears the prefix cache. Running requests are not affected. Does not wait.

        Raises:
            ClosedError: the engine was closed.
        """
        errors.call(lib.pyg_engine_reset, self._handle)

    def stats(self) -> EngineStats:
        """The engine's counters. Never waits for a forward pass.

        Raises:
            ClosedError: the engine was closed.
        """
        out = ffi.new("pyg_engine_stats *")
        errors.call(lib.pyg_engine_get_stats, self._handle, out)
        return EngineStats(**{name: getattr(out, name) for name in EngineStats.__dataclass_fields__})

    def _room_for_logits(self, n_tokens: int) -> npt.NDArray[np.float32]:
        if n_tokens > self.n_ctx:
            n_tokens = 0  # the engine will refuse the prompt
        n_bytes, available = n_tokens * self.n_vocab * 4, lib.pyg_memory_available()
        if n_bytes > available:
            raise errors.OutOfMemoryError(
                f"the logits of {n_tokens} tokens need {bytes_text(n_bytes)}, and {bytes_text(available)} is available",
                n_bytes,
                available,
            )
        return np.empty((n_tokens, self.n_vocab), np.float32)

    def close(self) -> None:
        """Ends every request (their readers get ClosedError), stops the thread and frees the context.

        Waits for the thread to end, which takes at most one step of a forward pass. Safe to call again.
        """
        errors.call(lib.pyg_engine_close, self._handle)
        _open_engines.discard(self)


def time_left(deadline: float | None) -> float | None:
    """Seconds until a request's deadline; None without one.

    Raises:
        RequestTimeout: the deadline passed before the request was queued.
    """
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise errors.RequestTimeout(
            "timeout_s passed before there was room in the queue: allow more time, send fewer requests at once, or "
            "load the model with a larger max_queue"
        )
    return left


def _native_options(params: SamplingParams, stop_token_ids: Sequence[int]) -> tuple[CData, list[CData]]:
    """The native options, and the objects they point to, which must live until the native call has copied them."""
    options = ffi.new("pyg_request_options *")
    options.max_tokens = params.max_tokens
    options.n_logprobs, options.n_prompt_logprobs = params.logprobs, params.prompt_logprobs
    stop = ffi.new("int32_t[]", list(stop_token_ids))
    options.stop_token_ids, options.n_stop = stop, len(stop_token_ids)
    return options, [stop, *_fill_sampling(options.sampling, params)]


def _fill_sampling(sampling: CData, params: SamplingParams) -> list[CData]:
    unset = {"adaptive_target": -1.0, "seed": _any_seed()}
    for name in _SAMPLING_NUMBERS:
        value = getattr(params, name)
        setattr(sampling, name, unset[name] if value is None else value)

    bias = dict(params.logit_bias or {})
    ids, values = ffi.new("int32_t[]", list(bias)), ffi.new("float[]", list(bias.values()))
    sampling.bias_token_ids, sampling.bias_values, sampling.n_bias = ids, values, len(bias)
    borrowed = [ids, values]
    sampling.dry_breakers, sampling.n_dry_breakers = _strings(params.dry_sequence_breakers, borrowed)
    if params.samplers is not None:
        sampling.samplers, sampling.n_samplers = _strings(params.samplers, borrowed)
    grammar = params.grammar
    if grammar is None:
        return borrowed
    return [*borrowed, *_fill_grammar(sampling, Grammar(grammar) if isinstance(grammar, str) else grammar)]


def _fill_grammar(sampling: CData, grammar: Grammar) -> list[CData]:
    text, root = ffi.new("char[]", grammar.text.encode()), ffi.new("char[]", grammar.root.encode())
    token_ids = ffi.new("int32_t[]", list(grammar.trigger_tokens))
    borrowed = [text, root, token_ids]
    sampling.grammar, sampling.grammar_root, sampling.grammar_lazy = text, root, grammar.lazy
    if grammar.prefix:
        sampling.grammar_prefix = prefix = ffi.new("char[]", grammar.prefix.encode())
        borrowed.append(prefix)
    sampling.trigger_patterns, sampling.n_trigger_patterns = _strings(grammar.trigger_patterns, borrowed)
    sampling.trigger_token_ids, sampling.n_trigger_tokens = token_ids, len(grammar.trigger_tokens)
    return borrowed


def _strings(texts: Sequence[str], borrowed: list[CData]) -> tuple[CData, int]:
    """Texts as an array of C strings, and their number. Adds to ``borrowed`` whatever has to stay alive."""
    strings = [ffi.new("char[]", text.encode()) for text in texts]
    array = ffi.new("char *[]", strings)
    borrowed += [*strings, array]
    return array, len(strings)


def _any_seed() -> int:
    return int.from_bytes(os.urandom(4), "little") >> 1


@atexit.register
def _close_engines() -> None:
    """Stops the native threads before the interpreter and C++ statics are torn down."""
    for engine in list(_open_engines):
        engine.close()

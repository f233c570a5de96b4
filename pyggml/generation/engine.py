"""The Python interface of the native engine: submit, read, cancel.

The engine's own thread decodes. Python only queues requests and reads their token ids in chunks, and releases the GIL
while it waits. Nothing here runs per token.
"""

from __future__ import annotations

import atexit
import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pyggml import errors, families
from pyggml._core import c_calls
from pyggml._core.c_values import UINT32_MAX, int32_array, integer, pointer
from pyggml._core.checks import flag, items
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import Owner
from pyggml._native.context import Context
from pyggml.generation.param_merging import in_token_ids, merge
from pyggml.generation.request import Request
from pyggml.generation.request_options import request_options
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.types import EngineStats, SamplingParams
from pyggml.units import bytes_text

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from pyggml._core.ffi import CData
    from pyggml._keywords import SamplingOverrides
    from pyggml.generation.event_loops import Line

TokenIds = Sequence[int] | npt.NDArray[np.integer[Any]]
T = TypeVar("T")

_COUNTERS = [name for name in EngineStats.__dataclass_fields__ if name not in ("not_batch_invariant", "n_restarts")]

_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Prepared(NamedTuple):
    """A generation in the engine's terms, which no longer change while it waits for room.

    Attributes:
        token_ids: the prompt.
        params: its sampling parameters, without a schema and ``ignore_eos``.
        stop_token_ids: all tokens that end it.
    """

    token_ids: npt.NDArray[np.int32]
    params: SamplingParams
    stop_token_ids: list[int]


class Engine(Owner):
    """One context and the native thread that decodes with it: the loop of :class:`~pyggml.LLM`, in token ids.

    Any thread or task may submit. The engine computes as many requests together as the context has sequences; the
    others wait and are started in the order of their submission. Close it, or use it as a context manager.

    Attributes:
        model: the context's model.
        n_ctx: context size in tokens, shared by the requests.
        n_parallel: number of requests computed together: the context's ``n_seq_max``.
        n_vocab: number of logits in a row.
        stop_token_ids: the tokens that end every generation.
    """

    _instead_of_a_copy = "share this one between threads and tasks; another process makes its own"

    def __init__(
        self,
        context: Context,
        n_ctx: int | None = None,
        *,
        prefix_cache: bool = True,
        max_queue: int | None = None,
        adapt_threads: bool = False,
        backend_sampling: bool = False,
        stop_token_ids: Iterable[int] | None = None,
    ) -> None:
        """Takes over the context, closes it for everybody else, and starts the thread, which sleeps when idle.

        Args:
            context: an empty context made for this engine. If this raises, it stays open and the caller's.
            n_ctx: number of cells that requests may use; None: all cells of the context.
            prefix_cache: keep the work of finished requests for prompts with the same beginning, while there is room.
            max_queue: maximum number of waiting requests; None: no limit.
            adapt_threads: adapt the number of compute threads while running; otherwise the context's number is kept.
            backend_sampling: choose the tokens of greedy requests on the device that computes the logits, if it can.
            stop_token_ids: tokens that end every generation. None: those of the model's files and its family, as
                ``llm.stop_tokens``. (): none, so that only a request's own end it.

        Raises:
            UnsupportedArchitectureError: the model does not generate token by token.
            InvalidParameterError: not a context, one that is in use, or with sequences that do not share their cells;
                the model has sliding windows, and the context an n_ubatch of less than its n_seq_max; n_ctx is more
                than it has; or another argument is out of range.
            TokenizerError: the model has no token to stop at, and ``stop_token_ids`` is None.
            ClosedError: the context was closed.
        """
        _require_unused(context)
        self.model = context.model
        self.n_ctx = context.n_ctx if n_ctx is None else integer("n_ctx", n_ctx, 1, UINT32_MAX)
        self.n_parallel = context.n_seq_max
        self.n_vocab = context.n_vocab
        options = ffi.new("pyg_engine_options *", lib.pyg_engine_default_options())
        options.n_ctx = 0 if n_ctx is None else self.n_ctx
        options.max_queue = 0 if max_queue is None else integer("max_queue", max_queue, 1, UINT32_MAX)
        options.prefix_cache = flag("prefix_cache", prefix_cache)
        options.adapt_threads = flag("adapt_threads", adapt_threads)
        options.backend_sampling = flag("backend_sampling", backend_sampling)
        self.stop_token_ids = self._ends(stop_token_ids)
        self._not_invariant = context.not_batch_invariant()
        self._handle = c_calls.create("pyg_engine", lib.pyg_engine_free, lib.pyg_engine_new, context._handle, options)
        context.close()
        _open_engines.add(self)

    def submit(
        self, token_ids: TokenIds, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> Request:
        """Queues a generation and returns at once.

        Submit it in the event loop in which it is read, or anywhere for threads. A grammar or a JSON schema that the
        model has not had before is compiled here, which :meth:`asubmit` does in a thread; later requests share it.

        Args:
            token_ids: the prompt.
            params: sampling parameters; None: greedy defaults. ``stop_token_ids`` end this generation besides the
                engine's own.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            EmptyPromptError: the prompt has no tokens.
            ContextOverflowError: the prompt has more tokens than n_ctx.
            InvalidParameterError: a token id is outside the vocabulary, a parameter is invalid, or there are ``stop``
                strings, which need a tokenizer.
            GrammarError: the grammar or the JSON schema cannot be used.
            QueueFullError: ``max_queue`` requests are already waiting; see :meth:`when_there_is_room`.
            ClosedError: the engine was closed.
        """
        return self._submit(token_ids, merge(params, overrides), _line_here())

    async def asubmit(
        self, token_ids: TokenIds, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> Request:
        """As :meth:`submit`, for new grammars and schemas in an event loop, which goes on while they are compiled."""
        from asyncio import to_thread

        return await to_thread(self._submit, token_ids, merge(params, overrides), _line_here())

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

        Waits until they are computed, beside other requests, without the GIL.

        Args:
            token_ids: the prompt.
            waits: if the queue is full, wait for room.

        Raises:
            As :meth:`submit`; OutOfMemoryError: they do not fit; EngineError: the computation failed.
        """
        prompt, waits = int32_array("the prompt", token_ids), flag("waits", waits)
        n_rows = self._rows_of_logits(len(prompt))
        logits = np.empty((n_rows, self.n_vocab), np.float32)

        # Waits until the engine has released the array, which it keeps alive. A Python function could be interrupted.
        free = functools.partial(lib.pyg_request_free)
        free.lent = logits  # type: ignore[attr-defined]

        def submit() -> CData:
            return c_calls.create(
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
        c_calls.call(lib.pyg_engine_reset, self._handle)

    def stats(self) -> EngineStats:
        """The engine's counters. Never waits for a forward pass.

        Raises:
            ClosedError: the engine was closed.
        """
        out = ffi.new("pyg_engine_stats *")
        c_calls.call(lib.pyg_engine_get_stats, self._handle, out)
        return EngineStats(**{name: getattr(out, name) for name in _COUNTERS}, not_batch_invariant=self._not_invariant)

    def close(self) -> None:
        """Ends every request (their readers get ClosedError), stops the thread and frees the context.

        Waits for the thread to end, which takes at most one step of a forward pass. Safe to call again.
        """
        c_calls.call(lib.pyg_engine_close, self._handle)
        self._is_closed = True
        _open_engines.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Engine(n_ctx={self.n_ctx}, n_parallel={self.n_parallel}, {self.model!r}{', closed' * self._is_closed})"

    # --- for the rest of this package -----------------------------------------------------------------------

    def prepared(self, token_ids: TokenIds, params: SamplingParams) -> Prepared:
        """A generation ready to :meth:`start`, perhaps several times until there is room.

        Raises:
            InvalidParameterError, GrammarError: as :meth:`submit`.
        """
        ids = int32_array("the prompt", token_ids)
        return Prepared(ids, *in_token_ids(params, self.stop_token_ids, self.model.vocab))

    def start(
        self,
        prepared: Prepared,
        timeout_s: float | None,
        *,
        waker: Waker | None = None,
        tag: int = 0,
        line: Line | None = None,
        watched: bool = True,
    ) -> Request:
        """Queues a generation.

        Args:
            prepared: the generation.
            timeout_s: time limit, counted from now; None: no limit.
            waker: notified with ``tag`` when there is news; see :meth:`Request.read_now`.
            tag: identifies the request to the waker, 0 to 2**64 - 1.
            line: to the event loop that reads it, in place of a waker and a tag.
            watched: whether somebody reads its tokens as they come; otherwise they may come late if all requests are
                done sooner.

        Raises:
            As :meth:`submit`.
        """
        if line is not None:
            waker, tag = line.waker, line.tag
        options, borrowed = request_options(prepared.params, prepared.stop_token_ids, watched=watched)
        options.timeout_s = -1.0 if timeout_s is None else timeout_s
        if waker is not None:
            options.waker, options.tag = waker.handle, tag
        handle = self._queued(prepared, options, timeout_s, watched)
        del borrowed  # native code has copied it
        return Request(handle, self, prepared.token_ids, prepared.params, timeout_s, line)

    def ask_for_room(self, waker: Waker, tag: int = 0) -> None:
        """Notifies the waker once there is room in the queue, possibly at once. The room is not reserved.

        Raises:
            ClosedError: the engine was closed. If it is closed later, the waker is notified too.
        """
        c_calls.call(lib.pyg_engine_notify_when_queue_has_capacity, self._handle, waker.handle, tag)

    @property
    def starts_slowly(self) -> bool:
        """Whether :meth:`start` has to wait for more than a moment, whatever is submitted."""
        return False

    def _queued(self, prepared: Prepared, options: CData, timeout_s: float | None, watched: bool) -> CData:  # noqa: ARG002
        """Queues a generation; the last two arguments are in the native options, too. Returns the native request."""
        return c_calls.create(
            "pyg_request",
            lib.pyg_request_free,
            lib.pyg_engine_submit,
            self._handle,
            pointer("int32_t[]", prepared.token_ids),
            len(prepared.token_ids),
            options,
        )

    def _submit(self, token_ids: TokenIds, params: SamplingParams, line: Line | None) -> Request:
        if isinstance(token_ids, (str, bytes)):
            raise errors.InvalidParameterError("an engine takes token ids, not text: tokenize it first, or use an LLM")
        if params.stop:
            raise errors.InvalidParameterError(
                "an engine has no tokenizer to find stop strings with: pass stop_token_ids, or read the tokens and "
                "cancel() the request"
            )
        return self.start(self.prepared(token_ids, params), params.timeout_s, line=line)

    def _ends(self, stop_token_ids: Iterable[int] | None) -> tuple[int, ...]:
        if stop_token_ids is None:
            return tuple(families.stop_tokens(self.model, families.of_model(self.model).family))
        given = [*stop_token_ids] if isinstance(stop_token_ids, Mapping) else items("stop_token_ids", stop_token_ids)
        ids: list[int] = int32_array("stop_token_ids", given).tolist()
        return tuple(integer("an id of stop_token_ids", token_id, 0, self.n_vocab - 1) for token_id in ids)

    def _rows_of_logits(self, n_tokens: int) -> int:
        """The number of rows for the logits of a prompt; 0 if the engine will refuse it.

        Raises:
            OutOfMemoryError: they do not fit.
        """
        if n_tokens > self.n_ctx:
            return 0
        n_bytes, available = n_tokens * self.n_vocab * 4, lib.pyg_memory_available()
        if n_bytes > available:
            raise errors.OutOfMemoryError(
                f"the logits of {n_tokens} tokens need {bytes_text(n_bytes)}, and {bytes_text(available)} is available",
                n_bytes,
                available,
            )
        return n_tokens


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


def _require_unused(context: Context) -> None:
    if not isinstance(context, Context):
        raise errors.InvalidParameterError(f"a Context was expected, not {type(context).__name__}")
    if not context.has_memory:
        return  # an encoder's, which the engine refuses by name
    used = [seq_id for seq_id in range(context.n_seq_max) if context.seq_pos(seq_id) is not None]
    if used:
        raise errors.InvalidParameterError(
            f"the context has already decoded: it remembers sequence {used[0]}, and the engine's requests need all of "
            "it. Make another context, or call memory_clear() first"
        )


def _line_here() -> Line | None:
    """A line to the event loop that runs in this thread, if any. Does not load asyncio, which takes long."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return None
    from pyggml.generation.event_loops import Line

    return Line()


@atexit.register
def _close_engines() -> None:
    """Stops the native threads before the interpreter and C++ statics are torn down."""
    for engine in list(_open_engines):
        engine.close()

"""The Python interface of the native engine: submit, read, cancel.

The engine's own thread decodes. Python queues requests and reads their token ids in chunks, without the GIL while it
waits. Nothing here runs per token.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import numpy.typing as npt

from pyggml import errors, families
from pyggml._core import c_calls
from pyggml._core.c_values import int32_array, pointer
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import UINT32_MAX, UINT64_MAX, choice, flag, integer, items
from pyggml._core.ffi import ffi, lib
from pyggml._core.owner import ClosableOwner
from pyggml._native.adapter import Adapter
from pyggml._native.context import Context
from pyggml.generation.adapters import Adapters, ScaledAdapters
from pyggml.generation.logits_processing import LogitsProcessing, LogitsProcessor
from pyggml.generation.param_merging import merge
from pyggml.generation.pending_request import PendingRequest, TokenIds, time_left
from pyggml.generation.request import Request
from pyggml.generation.request_options import SPECULATIVE, request_options, salt_number, scaled_adapters
from pyggml.generation.slots import SlotMethods
from pyggml.generation.waker import SIGNAL_CHECK_S, Waker
from pyggml.options.adapter_choice import AdapterChoice, checked_choice
from pyggml.options.load import require_prefix_cache
from pyggml.options.sampling_values import SPECULATIVE_MODES
from pyggml.system import memory_limits
from pyggml.types import EngineStats, SamplingParams
from pyggml.units import bytes_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pyggml._core.ffi import CData
    from pyggml._keywords import SamplingOverrides
    from pyggml.generation.event_loops import LoopWaiter
    from pyggml.generation.submission_threads import SubmissionThreads

T = TypeVar("T")

_GUESS_COUNTERS = [name for name, _ in ffi.typeof("pyg_guess_counts").fields]
_COUNTERS = [
    name
    for name in EngineStats.__dataclass_fields__
    if name not in ("not_batch_invariant", "n_restarts", *_GUESS_COUNTERS)
]

# Default of prefix_cache_disk_bytes.
_DISK_BYTES = 10 << 30

_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine(SlotMethods, ClosableOwner):
    """One context and the native thread that decodes with it: the loop of :class:`~pyggml.LLM`, in token ids.

    Any thread or task may submit. The engine computes as many requests together as the context has sequences; the
    others wait and are started in the order of their submission. Close it, or use it as a context manager; its methods
    then raise ClosedError.

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
        prefix_cache_bytes: int | None = None,
        prefix_cache_dir: str | os.PathLike[str] | None = None,
        prefix_cache_disk_bytes: int | None = None,
        max_queue: int | None = None,
        adapt_threads: bool = False,
        kv_unified: bool | None = None,
        backend_sampling: bool = False,
        speculative: str = "auto",
        stop_token_ids: Iterable[int] | None = None,
    ) -> None:
        """Take over the context, which is closed for other users, and start the thread, which sleeps when idle.

        Args:
            context: an empty context made for this engine. If this raises, it stays open and belongs to the caller.
            n_ctx: number of cells that requests may use; None: all cells of the context.
            prefix_cache: keep the KV cache of finished requests, until its cells are needed, for prompts with the same
                beginning.
            prefix_cache_bytes: most bytes of main memory for copies of evicted cells, and for checkpoints, from which
                prompts continue in models with sliding windows or recurrent layers. None: 1 GiB, or an eighth of the
                available memory if that is less. 0: none.
            prefix_cache_dir: directory for copies of evicted cells as files, which outlive the engine and which other
                processes share. It is created if it does not exist, for its owner only. None: no files.
            prefix_cache_disk_bytes: most bytes of these files, of all models; the least recently used are removed.
                None: 10 GiB.
            max_queue: maximum number of waiting requests; None: no limit.
            adapt_threads: adapt the number of compute threads while running; otherwise the context's number is kept.
            kv_unified: share the cells: a lone request can use all of n_ctx. False: divide them among n_parallel
                requests, while none is longer than its part, a multiple of 256 cells; a longer one unifies them, and
                the running requests are computed again. None: divide them if devices compute the whole model and at
                least four requests run. ``n_kv_streams`` of the statistics is the number of parts.
            backend_sampling: find the likeliest tokens on the device that computes the logits, if it can.
            speculative: how next tokens are guessed, unless a request's parameters set it; see SamplingParams.
            stop_token_ids: tokens that end every generation. None: those of the model's files and its family, as
                ``llm.stop_tokens``. (): only a request's own.

        Raises:
            UnsupportedArchitectureError: the model does not generate token by token.
            InvalidParameterError: not a context, one that is in use, or with sequences that do not share their cells;
                the model has sliding windows, and the context an n_ubatch of less than its n_seq_max; n_ctx is more
                than it has; or another argument is out of range; ``kv_unified=False`` with fewer than 256 cells for
                each request, or with a model whose KV cache has sliding windows or recurrent states;
                ``speculative="forced"`` or "lookup" where guesses could not be exact.
            OutOfMemoryError: ``prefix_cache_bytes`` is more than the available memory.
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
        options.prefix_cache_bytes = _checked_prefix_cache_bytes(prefix_cache_bytes)
        require_prefix_cache(options.prefix_cache, prefix_cache_bytes, prefix_cache_dir, prefix_cache_disk_bytes)
        folder = ffi.NULL if prefix_cache_dir is None else ffi.new("char[]", _writable_folder(prefix_cache_dir))
        options.prefix_cache_dir = folder
        n_disk_bytes = _DISK_BYTES if prefix_cache_disk_bytes is None else prefix_cache_disk_bytes
        options.prefix_cache_disk_bytes = integer("prefix_cache_disk_bytes", n_disk_bytes, 1, UINT64_MAX)
        options.adapt_threads = flag("adapt_threads", adapt_threads)
        options.kv_layout = _kv_layout(kv_unified)
        options.backend_sampling = flag("backend_sampling", backend_sampling)
        self.stop_token_ids = self._checked_stop_ids(stop_token_ids)
        self._not_invariant = context.not_batch_invariant()
        choice("speculative", speculative, SPECULATIVE_MODES)
        options.speculative, options.batch_invariant = SPECULATIVE[speculative], not self._not_invariant
        self._handle = c_calls.create("pyg_engine", lib.pyg_engine_free, lib.pyg_engine_new, context._handle, options)
        context.close()
        self._adapters = Adapters(self.model)
        _open_engines.add(self)

    def submit(
        self, token_ids: TokenIds, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> Request:
        """Queue a generation and return at once.

        Submit it in the event loop in which it is read, or anywhere for threads. A grammar or a JSON schema that is new
        to the model is compiled here, by :meth:`asubmit` in a thread; later requests share it.

        Args:
            token_ids: the prompt.
            params: sampling parameters; None: greedy defaults. ``stop_token_ids`` are added to the engine's own.
            **overrides: fields of SamplingParams that replace those of ``params``.

        Raises:
            EmptyPromptError: the prompt has no tokens.
            ContextOverflowError: the prompt has more tokens than n_ctx.
            InvalidParameterError: a token id is outside the vocabulary, a parameter is invalid, or there are ``stop``
                strings, which need a tokenizer.
            GrammarError: the grammar or the JSON schema cannot be used.
            QueueFullError: ``max_queue`` requests are already waiting; see :meth:`when_there_is_room`.
        """
        request = PendingRequest(token_ids, merge(params, overrides))
        return self.try_enqueue(request, waiter=_waiter_of_running_loop())

    async def asubmit(
        self, token_ids: TokenIds, params: SamplingParams | None = None, **overrides: Unpack[SamplingOverrides]
    ) -> Request:
        """As :meth:`submit`, for new grammars and schemas in an event loop, which continues while they are compiled."""
        from asyncio import to_thread

        request = PendingRequest(token_ids, merge(params, overrides))
        return await to_thread(self.try_enqueue, request, waiter=_waiter_of_running_loop())

    def when_there_is_room(self, attempt: Callable[[], T], deadline: float | None = None) -> T:
        """Retry ``attempt`` until the queue has capacity, and return its result. Waits without the GIL.

        Args:
            attempt: a function that submits a request; raises QueueFullError while the queue is full.
            deadline: end of the wait, by :func:`time.monotonic`; None: no limit.

        Raises:
            RequestTimeout: the deadline has passed.
        """
        waker: Waker | None = None
        while True:
            try:
                return attempt()
            except errors.QueueFullError:
                waker = waker or Waker()
            self.notify_when_queue_has_capacity(waker)
            while not waker.take(SIGNAL_CHECK_S):
                time_left(deadline)

    def load_adapter(self, path: str | os.PathLike[str], name: str | None = None, scale: float = 1.0) -> Adapter:
        """Load a LoRA adapter, which requests then name (``adapter="name"``), while others run.

        Args:
            path: its GGUF file.
            name: its name in requests. None: the file's, without suffix.
            scale: factor of its low-rank products in requests that give no other.

        Returns:
            The adapter. Closing it unloads it.

        Raises:
            InvalidParameterError: there is already an adapter of that name, or an argument is of the wrong kind.
            InferError: as :class:`pyggml.Adapter`.
        """
        return self._adapters.load(path, name, scale)

    @property
    def adapters(self) -> dict[str, Adapter]:
        """Name -> adapter, in the order in which they were loaded."""
        return self._adapters.by_name()

    @property
    def default_adapters(self) -> Mapping[str, float]:
        """Name -> scale of the adapters of requests that name none, as long as they are open.

        Assign a name, such a mapping, or None.
        """
        return self._adapters.defaults

    @default_adapters.setter
    def default_adapters(self, choice: AdapterChoice | None) -> None:
        self._adapters.set_defaults(choice)

    def resolve_adapters(self, adapter: AdapterChoice | None) -> ScaledAdapters:
        """Return the adapters of a request and their scales, without those of a scale of 0.

        Args:
            adapter: as in SamplingParams; None: the defaults.

        Raises:
            InvalidParameterError: there is no adapter of that name, or a scale is not a finite number.
        """
        return self._adapters.resolve(None if adapter is None else checked_choice(adapter))

    def logits(
        self, token_ids: TokenIds, *, adapter: AdapterChoice | None = None, waits: bool = False
    ) -> npt.NDArray[np.float32]:
        """Logits after every position of a prompt: float32, (n_tokens, n_vocab), owned by the caller.

        Waits without the GIL until they are computed, together with other requests.

        Args:
            token_ids: the prompt.
            adapter: as in SamplingParams.
            waits: if the queue is full, wait instead of raising QueueFullError.

        Raises:
            OutOfMemoryError: the logits do not fit.
            EngineError: the computation failed.
            InferError: as :meth:`submit`.
        """
        prompt, waits = int32_array("the prompt", token_ids), flag("waits", waits)
        n_rows = self._n_logit_rows(len(prompt))
        logits = np.empty((n_rows, self.n_vocab), np.float32)

        # Waits until the engine has released the array, which it keeps alive. A Python function could be interrupted.
        free = functools.partial(lib.pyg_request_free)
        free.array = logits  # type: ignore[attr-defined]
        adapters = self.resolve_adapters(adapter)
        array, n_adapters = scaled_adapters(adapters)

        def submit() -> CData:
            return c_calls.create(
                "pyg_request",
                free,
                lib.pyg_engine_submit_logits,
                self._handle,
                pointer("int32_t[]", prompt),
                len(prompt),
                array,
                n_adapters,
                pointer("float[]", logits.reshape(-1)),
            )

        Request(self.when_there_is_room(submit) if waits else submit(), self).read()
        return logits

    def save_prefix(
        self, token_ids: TokenIds, *, cache_salt: str | None = None, timeout_s: float | None = None
    ) -> bytes:
        """Copy of a prompt's KV cells, for :meth:`restore_prefix`: after a restart, or in another process.

        Tokens that are not in the prefix cache are computed first, and the last one always. Waits without the GIL. The
        cells are those of the model without adapters, for requests without adapters.

        Args:
            token_ids: the prompt.
            cache_salt: isolates the prefix cache, as in :class:`~pyggml.SamplingParams`.
            timeout_s: seconds to wait; None: no limit.

        Raises:
            RequestTimeout: ``timeout_s`` passed first.
            EngineError: the cells could not be copied, or the model's file could not be read when the engine started.
            InvalidParameterError: the engine has no prefix cache.
            InferError: as :meth:`submit`.
        """
        # Without adapters: restore_prefix could not tell which ones the cells were computed with.
        params = SamplingParams(max_tokens=0, cache_salt=cache_salt, timeout_s=timeout_s, adapter={})
        pending = PendingRequest(token_ids, params, is_streamed=False, waits_for_capacity=True, saves_prefix=True)
        request = self.enqueue(pending)
        request.read_all()
        if request.finish_reason == "timeout":
            raise errors.RequestTimeout(f"timeout_s={timeout_s:g} passed before the prefix was computed")
        return request.saved_prefix()

    def restore_prefix(self, data: bytes | bytearray | memoryview, *, cache_salt: str | None = None) -> int:
        """Bring a saved prefix into the prefix cache, and return its number of tokens. Does not wait.

        Prompts that begin with its tokens start from it, with the same bits as if it were computed. It stays in main
        memory until a request has used it, whatever ``prefix_cache_bytes`` is; then it can be evicted like any other.
        Best effort: a prefix that was saved from a divided KV cache (``kv_unified``) is used only while this one is
        divided, any other only while it is not; one for a layout that this engine never has is dropped.

        Args:
            data: bytes of :meth:`save_prefix`. A checksum detects damage, but not malice: restore only what you saved.
            cache_salt: the requests for which it is meant, which have the same one.

        Raises:
            InvalidParameterError: the bytes are damaged, or were saved with another model, other load options (types of
                the KV cache, RoPE, devices) or another build of pyggml; the prefix is longer than the context; or the
                engine has no prefix cache.
            EngineError: the model's file could not be read when the engine started.
        """
        view = bytes_view(data)
        n_tokens, salt = ffi.new("int32_t *"), salt_number(cache_salt)
        c_calls.call(lib.pyg_engine_restore_prefix, self._handle, ffi.from_buffer(view), len(view), salt, n_tokens)
        return int(n_tokens[0])

    def reset(self) -> None:
        """Clear the prefix cache. Running requests are not affected. Does not wait."""
        c_calls.call(lib.pyg_engine_reset, self._handle)

    def stats(self) -> EngineStats:
        """The engine's counters. Never waits for a forward pass."""
        out = ffi.new("pyg_engine_stats *")
        c_calls.call(lib.pyg_engine_get_stats, self._handle, out)
        counters = {name: getattr(out, name) for name in _COUNTERS}
        guesses = {name: getattr(out.guesses, name) for name in _GUESS_COUNTERS}
        return EngineStats(**counters, **guesses, not_batch_invariant=self._not_invariant)

    def close(self) -> None:
        """End every request (their readers get ClosedError), stop the thread and free the context.

        Waits for the thread to end, which takes at most one step of a forward pass. Closes its adapters. Safe to call
        again.
        """
        c_calls.call(lib.pyg_engine_close, self._handle)
        self._is_closed = True
        _open_engines.discard(self)
        self._adapters.close()

    def __repr__(self) -> str:
        return f"Engine(n_ctx={self.n_ctx}, n_parallel={self.n_parallel}, {self.model!r}{', closed' * self._is_closed})"

    # --- the queue, for the rest of this package --------------------------------------------------------------

    def enqueue(self, request: PendingRequest) -> Request:
        """Queue a request; if the queue is full and the request waits for capacity, wait without the GIL.

        Args:
            request: the request, which holds prompt and parameters.

        Raises:
            RequestTimeout: ``timeout_s`` passed while the queue was full.
            InferError: as :meth:`submit`, and errors of tokenizers.
        """
        if not request.waits_for_capacity:
            return self.try_enqueue(request)
        deadline = request.deadline()
        return self.when_there_is_room(lambda: self.try_enqueue(request, deadline), deadline)

    async def aenqueue(
        self, request: PendingRequest, waiter: LoopWaiter, is_cancelled: Callable[[], bool]
    ) -> Request | None:
        """As :meth:`enqueue`, for tasks. Returns None if the request was cancelled before it was queued.

        To cancel the wait for capacity, let ``is_cancelled`` return True and wake the waiter.

        Args:
            request: the request.
            waiter: waits in the event loop that reads the request.
            is_cancelled: returns True once nothing awaits the request any more.
        """
        deadline = request.deadline()
        while not is_cancelled():
            try:
                return await self._try_aenqueue(request, deadline, waiter, is_cancelled)
            except errors.QueueFullError:
                if not request.waits_for_capacity:
                    raise
            if not is_cancelled():
                self.notify_when_queue_has_capacity(waiter.waker, waiter.tag)
                await waiter.wait(time_left(deadline))
        return None

    def try_enqueue(
        self,
        request: PendingRequest,
        deadline: float | None = None,
        *,
        waker: Waker | None = None,
        tag: int = 0,
        waiter: LoopWaiter | None = None,
    ) -> Request:
        """Queue a request without waiting.

        Args:
            request: the request, which can be submitted again if this raises QueueFullError.
            deadline: end of its ``timeout_s``; None: ``timeout_s`` counts from now.
            waker: notified with ``tag`` of new tokens and the end; see :meth:`Request.read_now`.
            tag: identifies the request to the waker, 0 to 2**64 - 1.
            waiter: waits in the event loop that reads the request; replaces waker and tag.

        Raises:
            InferError: as :meth:`submit`, and errors of tokenizers.
        """
        request.encode(self.stop_token_ids, self.model.vocab)
        params = request.params
        timeout_s = params.timeout_s if deadline is None else max(0.0, deadline - time.monotonic())
        request.submitted_s = time.monotonic()
        if waiter is not None:
            waker, tag = waiter.waker, waiter.tag
        adapters = self._adapters.resolve(params.adapter)
        options, borrowed = request_options(
            params, request.stop_token_ids, adapters, is_streamed=request.is_streamed, reasoning=request.reasoning
        )
        options.timeout_s = -1.0 if timeout_s is None else timeout_s
        options.save_prefix = request.saves_prefix
        if waker is not None:
            options.waker, options.tag = waker.handle, tag
        processors = cast("Sequence[LogitsProcessor]", params.logits_processor)  # checked, and made a tuple
        processing = LogitsProcessing(processors, self) if processors else None
        if processing is not None:
            processing.request_options(options)
        handle = self._submit(request, options, timeout_s)
        del borrowed, adapters  # native code has copied it
        return Request(handle, self, request.token_ids, params, timeout_s, waiter, processing)

    def notify_when_queue_has_capacity(self, waker: Waker, tag: int = 0) -> None:
        """Notify the waker once the queue is not full, possibly at once. Nothing is reserved.

        Args:
            waker: the waker to notify.
            tag: identifies the notification to the waker, 0 to 2**64 - 1.

        Raises:
            ClosedError: the engine was closed. If it is closed later, the waker is notified too.
        """
        c_calls.call(lib.pyg_engine_notify_when_queue_has_capacity, self._handle, waker.handle, tag)

    @property
    def is_starting(self) -> bool:
        """True if any submission has to wait first, for more than a moment."""
        return False

    @cached_property
    def _threads(self) -> SubmissionThreads:
        from pyggml.generation.submission_threads import SubmissionThreads  # it imports asyncio

        return SubmissionThreads()

    async def _try_aenqueue(
        self, request: PendingRequest, deadline: float | None, waiter: LoopWaiter, is_cancelled: Callable[[], bool]
    ) -> Request | None:
        from asyncio import sleep  # imported late to keep "import pyggml" fast

        if request.is_slow or self.is_starting:
            return await self._threads.run(request, self.try_enqueue, deadline, waiter=waiter)
        # Hundreds of tasks may start at once: submitting one per iteration of the loop lets other tasks run in between.
        async with waiter.submission_lock:
            if is_cancelled():
                return None
            submitted = self.try_enqueue(request, deadline, waiter=waiter)
            try:
                await sleep(0)
            except BaseException:
                submitted.cancel()
                raise
            return submitted

    def _submit(self, request: PendingRequest, options: CData, timeout_s: float | None) -> CData:  # noqa: ARG002
        """Submit a request to the native engine, and return the native one. The timeout is in ``options``, too."""
        return c_calls.create(
            "pyg_request",
            lib.pyg_request_free,
            lib.pyg_engine_submit,
            self._handle,
            pointer("int32_t[]", request.token_ids),
            len(request.token_ids),
            options,
        )

    def _checked_stop_ids(self, stop_token_ids: Iterable[int] | None) -> tuple[int, ...]:
        if stop_token_ids is None:
            return tuple(families.stop_tokens(self.model, families.of_model(self.model).family))
        given = [*stop_token_ids] if isinstance(stop_token_ids, Mapping) else items("stop_token_ids", stop_token_ids)
        ids: list[int] = int32_array("stop_token_ids", given).tolist()
        return tuple(integer("an id of stop_token_ids", token_id, 0, self.n_vocab - 1) for token_id in ids)

    def _n_logit_rows(self, n_tokens: int) -> int:
        """Number of rows of a prompt's logits; 0 if the engine will refuse the prompt.

        Raises:
            OutOfMemoryError: the logits do not fit.
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


def bytes_view(data: bytes | bytearray | memoryview) -> memoryview:
    """Return the bytes of a saved prefix.

    Raises:
        InvalidParameterError: it is something else.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)) or not memoryview(data).c_contiguous:
        raise errors.InvalidParameterError(f"a saved prefix is bytes, not {type(data).__name__}")
    return memoryview(data).cast("B")


def _writable_folder(path: str | os.PathLike[str]) -> bytes:
    """Create a directory if it does not exist, and return its path for the engine.

    Raises:
        InvalidParameterError: it cannot be created, or not be written to.
    """
    try:
        folder = Path(os.fsdecode(path)).absolute()
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except (OSError, TypeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise errors.InvalidParameterError(f"prefix_cache_dir={path!r} cannot be used: {why}") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise errors.InvalidParameterError(f"prefix_cache_dir={path!r} cannot be used: permission denied")
    return os.fsencode(folder)


def default_prefix_cache_bytes(available_bytes: int) -> int:
    """Return the default of ``prefix_cache_bytes`` with this much main memory available."""
    return min(int(lib.pyg_engine_default_options().prefix_cache_bytes), available_bytes // 8)


def _checked_prefix_cache_bytes(value: int | None) -> int:
    available = memory_limits().usable_bytes
    if value is None:
        return default_prefix_cache_bytes(available)
    n_bytes = integer("prefix_cache_bytes", value, 0, UINT64_MAX)
    if n_bytes > available:
        raise errors.OutOfMemoryError(
            f"prefix_cache_bytes={n_bytes}: {bytes_text(n_bytes)} is more than the {bytes_text(available)} available",
            n_bytes,
            available,
        )
    return n_bytes


def _kv_layout(kv_unified: bool | None) -> int:
    if kv_unified is None:
        return lib.PYG_KV_AUTO
    return lib.PYG_KV_UNIFIED if flag("kv_unified", kv_unified) else lib.PYG_KV_STREAMS


def _require_unused(context: Context) -> None:
    if not isinstance(context, Context):
        raise errors.InvalidParameterError(f"a Context was expected, not {type(context).__name__}")
    if not context.has_memory:
        return  # an encoder's, which the engine refuses by name
    used = [seq_id for seq_id in range(context.n_seq_max) if context.seq_pos(seq_id) is not None]
    if used:
        raise errors.InvalidParameterError(
            f"the context has already decoded: its KV cache holds sequence {used[0]}, and an engine needs it empty. "
            "Make another context, or call memory_clear() first"
        )


def _waiter_of_running_loop() -> LoopWaiter | None:
    """A waiter in this thread's running event loop, if any. Does not import asyncio, which takes long."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return None
    from pyggml.generation.event_loops import LoopWaiter

    return LoopWaiter()


@atexit.register
def _close_engines() -> None:
    """Stop the native threads before the interpreter and C++ statics are torn down."""
    for engine in list(_open_engines):
        engine.close()

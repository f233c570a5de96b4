"""The number of compute threads of passes that the engine does not run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from pyggml._core import c_calls
from pyggml._core.ffi import lib
from pyggml._native.context import Context
from pyggml.errors import EngineError, OutOfMemoryError


class ThreadTuner:
    """Finds the number of threads that is fastest while other programs run, as the engine does. Not thread-safe.

    Compute threads wait for each other, so a thread that has lost its core to another program slows all of them down.
    """

    def __init__(self) -> None:
        """Begin with one thread per idle core."""
        self._handle = c_calls.create("pyg_thread_tuner", lib.pyg_thread_tuner_free, lib.pyg_thread_tuner_new)

    @contextlib.contextmanager
    def tuned(self, context: Context, n_tokens: int) -> Iterator[None]:
        """Set the threads of a context for one pass, and measure it."""
        n_threads = int(lib.pyg_thread_tuner_begin(self._handle, n_tokens))
        start, own_start = time.perf_counter(), time.thread_time()
        try:
            if n_threads != context.n_threads_batch or n_threads != context.n_threads:
                with contextlib.suppress(EngineError, OutOfMemoryError):  # no more threads can be started: keep these
                    context.set_threads(n_threads)
            yield
        except BaseException:
            lib.pyg_thread_tuner_abandoned(self._handle)
            raise
        seconds, own_seconds = time.perf_counter() - start, time.thread_time() - own_start
        lib.pyg_thread_tuner_measured(self._handle, n_tokens, seconds, own_seconds)

"""Queue of texts from all callers, which one thread computes in shared forward passes.

The thread runs while there is work. Before each pass it packs texts of all waiting jobs
(:mod:`~pyggml.generation.embedding.pass_packing`), so that a job which arrives during a pass is in the next one. Locks:
the queue's is held for moments only, since event loops take it; the one for computing during a pass.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
from collections.abc import Sequence

from pyggml._core.locks import NonReentrantLock
from pyggml.errors import ClosedError, EngineError, InvalidParameterError, OutOfMemoryError
from pyggml.generation.embedding.encoder import BATCH_TOKENS, BatchEncoder
from pyggml.generation.embedding.job import Job, Part
from pyggml.generation.embedding.pass_packing import pack
from pyggml.types import EmbeddingStats


class PassQueue:
    """Computes jobs in shared passes. Any thread may call its methods.

    Attributes:
        n_passes: number of passes that have begun.
        n_texts: number of texts in them.
        n_tokens: number of their tokens.
    """

    def __init__(self, token_encoder: BatchEncoder, head_encoder: BatchEncoder) -> None:
        """Compute vectors with one encoder and scores with the other, which it closes. Starts no thread yet."""
        self._encoders = {"pooled": token_encoder, "tokens": token_encoder, "scores": head_encoder}
        self._state_lock = NonReentrantLock("a method that embeds or reranks")
        self._compute_lock = NonReentrantLock("a forward pass")
        self._is_running = self._is_closed = self._was_short = False
        self._waiting: dict[Job, None] = {}
        self._n_jobs = 0
        self._thread_id: int | None = None
        self.n_passes = self.n_texts = self.n_tokens = 0

    def submit(self, job: Job) -> None:
        """Queue a job; its :meth:`Job.wait` waits for the results. Does not wait.

        Raises:
            ClosedError: the model was closed, or the interpreter is shutting down.
            EngineError: this is a forked child, and the model belongs to its parent; or no thread can be started.
            InvalidParameterError: a finalizer that interrupts a pass calls it.
        """
        if threading.get_ident() == self._thread_id:
            raise InvalidParameterError(
                "embed() or rerank() was called within itself: a finalizer that interrupted a forward pass would wait "
                "for its end, which cannot come. Call it in another thread"
            )
        with self._state_lock.hold():
            self._require_open()
            if job.n_waiting == 0:
                job.end()
                return
            job.arrival, job.turn = self._n_jobs, self.n_passes
            self._n_jobs += 1
            self._waiting[job] = None
            if self._is_running:
                return
            try:
                self._start()
            except BaseException:
                self._waiting.pop(job, None)
                raise

    def cancel(self, job: Job) -> None:
        """Give up the texts of a job that are in no pass yet. Safe to call for a job that has ended."""
        if job.has_ended:
            return
        with self._state_lock.hold():
            job.is_cancelled = True
            self._waiting.pop(job, None)

    def run(self, job: Job) -> None:
        """Compute a job, and wait for it.

        Raises:
            InferError: as :meth:`submit`, or it failed.
        """
        try:
            self.submit(job)
            job.wait()
        finally:
            self.cancel(job)

    async def arun(self, job: Job) -> None:
        """As :meth:`run`, for coroutines. Cancelling the task gives up texts that are in no pass yet."""
        import asyncio  # imported late to keep "import pyggml" fast

        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, and nothing waits any more
                loop.call_soon_threadsafe(ended.set)

        job.on_end = notify
        try:
            self.submit(job)
            await ended.wait()
        finally:
            self.cancel(job)
        job.require_success()

    def stats(self) -> EmbeddingStats:
        """Return the counters and the number of waiting texts. Never waits for a pass."""
        with self._state_lock.hold():
            n_waiting = sum(job.n_waiting for job in self._waiting)
            return EmbeddingStats(n_waiting, self.n_passes, self.n_texts, self.n_tokens)

    def close(self) -> None:
        """Wait for the pass that is being computed, free the contexts, and end all jobs. Safe to call again."""
        with self._state_lock.hold_reentrant():
            self._is_closed = True
        with self._compute_lock.hold_reentrant():
            for encoder in self._encoders.values():
                encoder.close()
        self._end_all()

    # --- inside -----------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the model was closed")

    def _start(self) -> None:
        """Start the computing thread, which does not keep the process from exiting.

        A Thread of :mod:`threading` would make this one wait until it runs, with the lock that a finalizer there needs.
        """
        self._is_running = True
        try:
            _thread.start_new_thread(self._work, ())
        except RuntimeError as error:
            self._is_running = False
            if "shutdown" in str(error):
                raise ClosedError("the interpreter is shutting down") from None
            raise EngineError(f"the thread that embeds could not be started: {error}") from None

    def _end_all(self) -> None:
        with self._state_lock.hold_reentrant():
            jobs = list(self._waiting)
            self._waiting.clear()
        for job in jobs:
            job.end(ClosedError("the model was closed"))

    # --- the computing thread ---------------------------------------------------------------------------------

    def _work(self) -> None:
        """Compute passes until no texts wait."""
        self._thread_id = threading.get_ident()
        while parts := self._next_pass():
            self._compute(parts)

    def _next_pass(self) -> list[Part]:
        with self._state_lock.hold():
            if not self._waiting or self._is_closed:
                self._is_running, self._thread_id = False, None  # another thread may get the same number
                return []
            first = min(self._waiting, key=lambda job: (job.turn, job.n_waiting_tokens, job.arrival))
            jobs = [job for job in self._waiting if job.kind == first.kind and job.adapters == first.adapters]
            packed = pack(jobs, BATCH_TOKENS, self._encoders[first.kind].n_texts, may_be_short=not self._was_short)
            self._was_short = packed.is_short
            parts = [job.take(n) for job, n in packed.calls]
            self.n_passes += 1
            self.n_texts += sum(len(part.content.texts.lengths) for part in parts)
            self.n_tokens += sum(len(part.content.texts.ids) for part in parts)
            for job in self._waiting:
                job.n_passes_missed += 1
            for part in parts:
                part.job.turn = self.n_passes
                part.job.n_passes_missed -= 1
                if part.job.n_waiting == 0:
                    del self._waiting[part.job]
            return parts

    def _compute(self, parts: Sequence[Part]) -> None:
        encoder = self._encoders[parts[0].job.kind]
        try:
            with self._compute_lock.hold():
                self._require_open()
                results = encoder.outputs([part.content for part in parts], parts[0].job.adapters)
            for part, rows in zip(parts, results, strict=True):
                if not part.job.is_cancelled:
                    part.add(rows)
        except OutOfMemoryError as error:
            # Another job's texts may need the memory.
            if len(parts) > 1:
                for part in parts:
                    self._compute([part])
            else:
                self._fail(parts, error)
        except Exception as error:
            self._fail(parts, error)

    def _fail(self, parts: Sequence[Part], error: Exception) -> None:
        with self._state_lock.hold():
            for part in parts:
                self._waiting.pop(part.job, None)
        for part in parts:
            part.job.end(error)

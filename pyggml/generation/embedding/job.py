"""The texts of one call that wait for forward passes, and the results that they get."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pyggml._native.adapter import Adapter
from pyggml._native.token_batch import TokenBatch
from pyggml.generation.embedding.pass_texts import Floats, PassTexts, ResultKind


class Job:
    """The texts of one call. The queue that it is submitted to computes them, longest first.

    Attributes:
        kind: what is computed for each text.
        pooling: for "pooled": kinds of pooling, whose results are concatenated.
        n_skipped: for "pooled": tokens at the beginning of each text that are left out.
        adapters: LoRA adapters that they are computed with, and their scales.
        results: for "pooled" and "scores": float32, (n_texts, n_columns); for "tokens", a list of float32,
            (n_tokens, n_columns).
        arrival: number of jobs before it.
        turn: number of passes that had begun when it arrived, or when its texts were last in one.
        n_waiting: number of its texts that are in no pass yet.
        n_waiting_tokens: their tokens.
        n_passes_missed: number of passes since it arrived that had none of its texts although some waited.
        on_end: is called by the computing thread when the job has ended.
    """

    def __init__(
        self,
        kind: ResultKind,
        texts: TokenBatch,
        n_columns: int,
        pooling: Sequence[str] = (),
        n_skipped: int = 0,
        adapters: Mapping[Adapter, float] | None = None,
    ) -> None:
        n_texts = len(texts.lengths)
        self.adapters = dict(adapters or {})
        self.kind, self.pooling, self.n_skipped = kind, tuple(pooling), n_skipped
        self.results: Floats | list[Floats] = np.zeros((n_texts, n_columns), np.float32)
        if kind == "tokens":
            self.results = [np.zeros((0, n_columns), np.float32)] * n_texts
        self.arrival = self.turn = self.n_passes_missed = 0
        self.n_waiting, self.n_waiting_tokens = n_texts, len(texts.ids)
        self.on_end: Callable[[], object] | None = None
        self.is_cancelled = False
        self._order = np.argsort(-texts.lengths, kind="stable")
        self._texts = texts if n_texts == 1 else texts.take(self._order)
        self._ends = np.concatenate([[0], np.cumsum(self._texts.lengths, dtype=np.int64)])
        self._n_missing = n_texts
        self._has_ended = threading.Event()
        self._error: Exception | None = None

    # --- for the queue ----------------------------------------------------------------------------------------

    def n_fitting(self, first: int, n_tokens: int) -> int:
        """Return the number of waiting texts, from the waiting text ``first`` on, that fit into ``n_tokens``."""
        start = len(self._ends) - 1 - self.n_waiting + first
        return int(np.searchsorted(self._ends, self._ends[start] + n_tokens, side="right")) - 1 - start

    def n_tokens_of(self, first: int, n_texts: int) -> int:
        """Return the number of tokens of ``n_texts`` waiting texts, from the waiting text ``first`` on."""
        start = len(self._ends) - 1 - self.n_waiting + first
        return int(self._ends[start + n_texts] - self._ends[start])

    def take(self, n_texts: int) -> Part:
        """Take the next texts, which do not wait any more."""
        start = len(self._ends) - 1 - self.n_waiting
        part = Part(self, start, start + n_texts)
        self.n_waiting -= n_texts
        self.n_waiting_tokens -= len(part.content.texts.ids)
        return part

    @property
    def has_ended(self) -> bool:
        """True if all results are there, or it failed or was cancelled."""
        return self._has_ended.is_set()

    def end(self, error: Exception | None = None) -> None:
        """End it, with an error if it failed. It then has no waiting texts."""
        if self.has_ended:
            return
        self._error = error
        self.n_waiting = self.n_waiting_tokens = 0
        self._has_ended.set()
        if self.on_end is not None:
            self.on_end()

    # --- for the caller ---------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait for the results.

        Raises:
            InferError: it failed.
        """
        self._has_ended.wait()
        self.require_success()

    def require_success(self) -> None:
        """Raise the error of a job that failed: a copy, since jobs that share a pass share its error."""
        if self._error is not None:
            raise copy.copy(self._error) from self._error


class Part:
    """Texts of a job that are computed in one pass.

    Attributes:
        job: the job.
        content: the texts, and what to compute for them.
    """

    def __init__(self, job: Job, first: int, end: int) -> None:
        """Take the texts ``first`` to ``end`` - 1 of the job's order."""
        self.job = job
        self._range = slice(first, end)
        ids = slice(job._ends[first], job._ends[end])
        texts = TokenBatch(job._texts.ids[ids], job._texts.lengths[self._range])
        self.content = PassTexts(texts, job.kind, job.pooling, job.n_skipped)

    def add(self, results: Floats) -> None:
        """Store the results: those of each text, or for "tokens" those of each token, in rows."""
        job, indices = self.job, self.job._order[self._range]
        if isinstance(job.results, list):
            rows = np.split(results, np.cumsum(self.content.texts.lengths)[:-1])
            for index, each in zip(indices.tolist(), rows, strict=True):
                job.results[index] = each.copy()
        else:
            job.results[indices] = results
        job._n_missing -= len(indices)
        if job._n_missing == 0:
            job.end()

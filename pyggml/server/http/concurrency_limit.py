"""Limits on concurrent and waiting requests outside the engine's own queue."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyggml
from pyggml.server.http.errors import RETRY_AFTER_S, RequestError, failure_from

if TYPE_CHECKING:
    from pyggml.server.models.model_state import LoadedModel

_MAX_RETRY_S = 60


class ConcurrencyLimit:
    """A limit on the number of requests that run or wait at the same time.

    Attributes:
        limit: number of slots; None: unlimited.
        n_taken: number of slots taken.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.n_taken = 0

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot for one request.

        Raises:
            QueueFullError: all slots are taken.
        """
        if self.limit is not None and self.n_taken >= self.limit:
            raise pyggml.QueueFullError(f"{self.n_taken} requests are already waiting: try again later")
        self.n_taken += 1
        try:
            yield
        finally:
            self.n_taken -= 1


def queue_full(model: LoadedModel, error: pyggml.QueueFullError) -> RequestError:
    """Return the error for a full queue, with an estimate of when to retry."""
    return RequestError(replace(failure_from(error), retry_after_s=_retry_after_s(model)))


def _retry_after_s(model: LoadedModel) -> int:
    """Estimate the seconds until the queued requests have been served, from the time of finished ones."""
    stats = model.stats()
    if stats is None or not stats.n_finished:
        return RETRY_AFTER_S
    request_s = (stats.prefill_s + stats.decode_s) / stats.n_finished  # engine time, which concurrent requests share
    return min(max(math.ceil(stats.n_queued * request_s), RETRY_AFTER_S), _MAX_RETRY_S)

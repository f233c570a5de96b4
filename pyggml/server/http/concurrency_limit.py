"""Limits on concurrent and waiting requests outside the engine's own queue."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyggml
from pyggml.server.http.errors import RETRY_AFTER_S, RequestError, failure_from

if TYPE_CHECKING:
    from pyggml.server.models.model_state import LoadedModel

_MAX_RETRY_S = 60


@dataclass
class ConcurrencyLimit:
    """A limit on the number of requests that run or wait at the same time.

    Attributes:
        limit: number of slots; None: unlimited.
        n_taken: number of slots taken.
    """

    limit: int | None
    n_taken: int = 0

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
    """Return the error for a full queue. It says when the queued requests will have been served, at the usual speed."""
    failure = failure_from(error)
    stats = model.stats()
    if stats is not None and stats.n_finished:
        request_s = (stats.prefill_s + stats.decode_s) / stats.n_finished  # engine time, shared by concurrent requests
        retry_after_s = min(max(math.ceil(stats.n_queued * request_s), RETRY_AFTER_S), _MAX_RETRY_S)
        failure = replace(failure, retry_after_s=retry_after_s)
    return RequestError(failure)

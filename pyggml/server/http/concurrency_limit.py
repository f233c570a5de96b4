"""How much may wait, and for how long: what the engine's own queue does not count."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyggml
from pyggml.server.http.errors import RETRY_AFTER_S, RequestError, failure_of

if TYPE_CHECKING:
    from pyggml.server.models.loaded_model import Served

_LONGEST_RETRY_S = 60


class Places:
    """A number of places for requests, some of which work while the others wait.

    Attributes:
        limit: how many there are; None: any number.
        n_taken: how many are taken.
    """

    def __init__(self, limit: int | None) -> None:
        """Makes them."""
        self.limit = limit
        self.n_taken = 0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Holds a place for one request.

        Raises:
            QueueFullError: there is none.
        """
        if self.limit is not None and self.n_taken >= self.limit:
            raise pyggml.QueueFullError(f"{self.n_taken} requests are waiting already: try again later")
        self.n_taken += 1
        try:
            yield
        finally:
            self.n_taken -= 1


def queue_full(served: Served, error: pyggml.QueueFullError) -> RequestError:
    """The refusal of a request for which the queue has no room, which says when there may be some."""
    return RequestError(replace(failure_of(error), retry_after_s=retry_after_s(served)))


def retry_after_s(served: Served) -> int:
    """Seconds until those that wait now have probably been served, from what requests have taken so far."""
    stats = served.stats()
    if stats is None or not stats.n_finished:
        return RETRY_AFTER_S
    each_s = (stats.prefill_s + stats.decode_s) / stats.n_finished  # of the engine, which computes several together
    return min(max(math.ceil(stats.n_queued * each_s), RETRY_AFTER_S), _LONGEST_RETRY_S)

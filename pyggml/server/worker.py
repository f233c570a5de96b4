"""The server's state, which its endpoints share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyggml.server.failures import Failure, RequestError
from pyggml.server.models import Models
from pyggml.server.observer import Observer
from pyggml.server.settings import Settings

if TYPE_CHECKING:
    from pyggml.server.call import Call


class Jobs:
    """The running calls that others may cancel, by the names that their clients gave them."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}

    def enter(self, job_id: str, call: Call) -> None:
        """Adds a call.

        Raises:
            RequestError: 409, there is one of that name.
        """
        if job_id in self._calls:
            message = f"a job {job_id!r} is running: choose another job_id, or cancel that one"
            raise RequestError(Failure(409, "invalid", message, "job_exists", "job_id"))
        self._calls[job_id] = call

    def leave(self, job_id: str) -> None:
        """Forgets a call that has ended."""
        del self._calls[job_id]

    def cancel(self, job_id: str) -> bool:
        """Ends what a call has started soon. Returns whether there is such a call."""
        call = self._calls.get(job_id)
        if call is not None:
            call.cancel()
        return call is not None


class Worker:
    """Models, and those who watch.

    Attributes:
        settings: what the server was told.
        models: the models that it offers.
        jobs: the calls that others may cancel.
        observer: hears of every call.
        created: when it was made, in seconds since 1970.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.observer = Observer()
        self.models = Models(settings, self.observer)
        self.jobs = Jobs()
        self.created = int(time.time())

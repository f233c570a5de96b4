"""The server's state, which its endpoints share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pyggml.server.http.access_control import Keys
from pyggml.server.http.errors import STOPPING, Failure, RequestError
from pyggml.server.models.pool import Models
from pyggml.server.observability import tracing
from pyggml.server.observability.logs import Logs
from pyggml.server.observability.observer import Observers
from pyggml.server.observability.prometheus_metrics import Metrics
from pyggml.server.settings.options import Settings

if TYPE_CHECKING:
    from pyggml.server.http.request import Call


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


class Calls:
    """The running calls."""

    def __init__(self) -> None:
        self._running: set[Call] = set()
        self._are_over: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._running)

    def enter(self, call: Call) -> None:
        """Adds a call."""
        self._running.add(call)

    def leave(self, call: Call) -> None:
        """Forgets a call that has ended."""
        self._running.discard(call)
        if self._are_over is not None and not self._running:
            self._are_over.set()

    async def over(self, limit_s: float) -> bool:
        """Waits until none is running, but no longer than ``limit_s`` seconds. Returns whether none is."""
        self._are_over = asyncio.Event()
        if not self._running:
            self._are_over.set()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._are_over.wait(), limit_s)
        return not self._running

    def stop(self) -> None:
        """Has those answer at once that have not begun to."""
        for call in list(self._running):
            call.stop()

    def cancel(self) -> None:
        """Ends what they have started soon; their answers then end as cancelled."""
        for call in list(self._running):
            call.cancel()


class Worker:
    """Models, and those who watch.

    Attributes:
        settings: what the server was told.
        models: the models that it offers.
        keys: lets requests in.
        calls: what is running.
        jobs: the calls that others may cancel.
        metrics: counts what happens.
        observer: hears of every call.
        is_draining: whether it ends soon, and takes nothing new.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(lambda: self.models.loaded)
        self.observer = Observers([self.metrics, Logs(settings.log_prompts), *tracing.observers()])
        self.models = Models(settings, self.observer)
        self.keys = Keys(settings.read_api_keys())
        self.calls = Calls()
        self.jobs = Jobs()
        self.is_draining = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Loads the models that are loaded from the start, and closes everything at the end.

        Raises:
            InferError: the first model cannot be loaded.
        """
        watching = asyncio.create_task(self.metrics.watch_loop())
        try:
            await self.models.start()
            yield
        finally:
            watching.cancel()
            try:
                await self.models.aclose()
            finally:
                self.observer.close()

    def admit(self, call: Call) -> None:
        """Lets a call in.

        Raises:
            RequestError: 401, it needs a key; 503, the server is stopping.
        """
        if call.endpoint.is_open:
            return
        self.keys.check(call.request.headers)
        if self.is_draining:
            raise RequestError(STOPPING)
        self.calls.enter(call)

    def why_not_ready(self) -> str | None:
        """Why a request would have to wait or be refused; None: it would not."""
        return STOPPING.message if self.is_draining else self.models.why_not_ready()

    async def drain(self, limit_s: float) -> None:
        """Takes nothing new, lets what runs end, and after a limit ends it; every call gets an answer.

        Args:
            limit_s: seconds that calls have to end by themselves.
        """
        self.is_draining = True
        if await self.calls.over(limit_s):
            return
        self.calls.stop()
        await self.models.aclose()  # which streams hear of
        self.calls.cancel()  # those with models that the program around the server keeps open
        await self.calls.over(_LAST_WORDS_S)


# What calls need to say that they were ended.
_LAST_WORDS_S = 2.0

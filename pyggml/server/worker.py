"""State of the server, shared by its endpoints."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pyggml.server.http.access_control import ApiKeys
from pyggml.server.http.errors import STOPPING, RequestError
from pyggml.server.models.pool import ModelPool
from pyggml.server.observability import tracing
from pyggml.server.observability.logs import Logs
from pyggml.server.observability.observer import Observers
from pyggml.server.observability.prometheus_metrics import Metrics
from pyggml.server.settings.options import Settings

if TYPE_CHECKING:
    from pyggml.server.http.request import ServerRequest


class RunningRequests:
    """The running requests, for a graceful shutdown."""

    def __init__(self) -> None:
        self._requests: set[ServerRequest] = set()
        self._is_empty: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: ServerRequest) -> None:
        """Add a request."""
        self._requests.add(request)

    def remove(self, request: ServerRequest) -> None:
        """Remove a request that has ended."""
        self._requests.discard(request)
        if self._is_empty is not None and not self._requests:
            self._is_empty.set()

    async def wait_until_empty(self, timeout_s: float) -> bool:
        """Wait until no request is running. Return False after a timeout."""
        self._is_empty = asyncio.Event()
        if not self._requests:
            self._is_empty.set()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_empty.wait(), timeout_s)
        return not self._requests

    def stop(self) -> None:
        """Respond with 503 to all requests whose response has not begun."""
        for request in list(self._requests):
            request.stop()

    def cancel(self) -> None:
        """Cancel all generations."""
        for request in list(self._requests):
            request.cancel()


class Worker:
    """State of the server.

    Attributes:
        settings: the settings.
        models: the models.
        api_keys: the accepted API keys.
        running_requests: the running requests.
        jobs: the running requests that other requests may cancel, by the IDs that their clients chose.
        metrics: the Prometheus metrics.
        observer: receives all events.
        is_draining: True during shutdown, when new requests are refused.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(lambda: self.models.loaded)
        self.observer = Observers([self.metrics, Logs(settings.log_prompts), *tracing.observers()])
        self.models = ModelPool(settings, self.observer)
        self.api_keys = ApiKeys(settings.read_api_keys())
        self.running_requests = RunningRequests()
        self.jobs: dict[str, ServerRequest] = {}
        self.is_draining = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models that the settings load at startup; close everything on exit.

        Raises:
            InferError: the first model cannot be loaded.
        """
        loop_monitor = asyncio.create_task(self.metrics.monitor_event_loop())
        try:
            await self.models.start()
            yield
        finally:
            loop_monitor.cancel()
            try:
                await self.models.aclose()
            finally:
                self.observer.close()

    def admit(self, request: ServerRequest) -> None:
        """Check the API key, and add the request to the running ones.

        Raises:
            RequestError: 401, the API key is missing or wrong; 503, the server is stopping.
        """
        if request.endpoint.is_open:
            return
        self.api_keys.check(request.http.headers)
        if self.is_draining:
            raise RequestError(STOPPING)
        self.running_requests.add(request)

    def not_ready_reason(self) -> str | None:
        """Return why a request would have to wait or would be refused; None: the server is ready."""
        return STOPPING.message if self.is_draining else self.models.not_ready_reason()

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and wait for running ones; after a timeout, end them with a response.

        Args:
            timeout_s: seconds for running requests to finish.
        """
        self.is_draining = True
        if await self.running_requests.wait_until_empty(timeout_s):
            return
        self.running_requests.stop()
        await self.models.aclose()  # ends the streams of the models that it closes
        self.running_requests.cancel()  # models opened by the embedding program stay open
        await self.running_requests.wait_until_empty(_CANCEL_S)


# Seconds for cancelled requests to send the end of their responses.
_CANCEL_S = 2.0

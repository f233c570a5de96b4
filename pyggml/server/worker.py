"""State of the server, shared by its endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from pyggml import InvalidParameterError
from pyggml.options import MemoryOptions, fields_of
from pyggml.server.http.cpu_threads import CpuThreads
from pyggml.server.http.errors import STOPPING, RequestError
from pyggml.server.keys.accounts import ApiKeys
from pyggml.server.models.pool import ModelPool
from pyggml.server.observability import tracing
from pyggml.server.observability.logs import Logs, logger
from pyggml.server.observability.observer import Observers
from pyggml.server.observability.prometheus_metrics import Metrics
from pyggml.server.protocols.batches.runner import Batches
from pyggml.server.protocols.responses.store import ResponseStore
from pyggml.server.settings.api_keys import KeyLimits, is_readable_by_others
from pyggml.server.settings.options import ModelSpec, Settings

if TYPE_CHECKING:
    from pyggml.server.http.request import ServerRequest


class Worker:
    """State of the server.

    Attributes:
        settings: the settings.
        models: the models.
        api_keys: the accepted API keys.
        cpu_threads: threads for CPU work other than the models'.
        running_requests: the running requests.
        stored_responses: the responses that requests may read or continue.
        batches: the batches of requests, and their files.
        jobs: the running requests that other requests may cancel, by their owner and the IDs that their clients chose.
        metrics: the Prometheus metrics.
        observer: receives all events.
        is_draining: True during shutdown, when new requests are refused.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics(lambda: self.models.loaded)
        self.observer = Observers([self.metrics, Logs(settings.log_prompts), *tracing.observers()])
        self.models = ModelPool(settings, self.observer)
        limits = KeyLimits(max_requests=settings.max_requests_per_key, tokens_per_minute=settings.tokens_per_minute)
        self.api_keys = ApiKeys(settings.read_api_keys(), limits)
        self.cpu_threads = CpuThreads()
        if settings.prefix_cache_scope == "key" and not self.api_keys.are_required:
            raise InvalidParameterError(
                'prefix_cache_scope="key" has no effect without API keys: set api_keys or api_key_file, or leave it out'
            )
        for name in ("max_requests_per_key", "tokens_per_minute"):
            if getattr(settings, name) is not None and not self.api_keys.are_required:
                raise InvalidParameterError(
                    f"{name} has no effect without API keys: set api_keys or api_key_file, or leave it out"
                )
        if settings.slot_save_path is not None and not settings.slot_save_path.is_dir():
            message = f"slot_save_path must be a directory that exists, not {settings.slot_save_path}"
            raise InvalidParameterError(message)
        self.running_requests: set[ServerRequest] = set()
        self.jobs: dict[tuple[str, str], ServerRequest] = {}
        self.stored_responses = ResponseStore(settings.max_stored_bytes)
        load = settings.load_options(settings.models[0] if settings.models else ModelSpec())
        n_parallel: int = load.get("n_parallel", fields_of(MemoryOptions)["n_parallel"].default)
        self.batches = Batches(settings.max_stored_bytes, max(1, n_parallel - 1))
        self.is_draining = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models that the settings load at startup; close everything on exit.

        Raises:
            InferError: the first model cannot be loaded.
        """
        self._warn_of_readable_keys()
        loop_monitor = asyncio.create_task(self.metrics.monitor_event_loop())
        try:
            await self.models.start()
            yield
        finally:
            loop_monitor.cancel()
            await self.batches.aclose()
            try:
                await self.models.aclose()
            finally:
                self.cpu_threads.close()
                self.observer.close()

    def admit(self, request: ServerRequest) -> None:
        """Check the API key and its limits, and add the request to the running ones.

        Raises:
            RequestError: 401, the API key is missing or wrong; 429, a limit of the key is reached; 503, the server is
                stopping.
        """
        if request.endpoint.is_open:
            return
        request.account = self.api_keys.account_of(request.http.headers)
        if self.is_draining:
            raise RequestError(STOPPING)
        request.count_for_account()
        self.running_requests.add(request)

    def reload_api_keys(self) -> None:
        """Read the API keys again. If they are invalid, those before remain, and the error is logged."""
        try:
            keys = self.settings.read_api_keys()
        except InvalidParameterError as error:
            logger.error("the API keys are not reloaded: %s", error)
            return
        self.api_keys.replace(keys)
        self._warn_of_readable_keys()
        logger.info("reloaded %d API keys", len(keys))

    def _warn_of_readable_keys(self) -> None:
        path = self.settings.api_key_file
        if path is not None and is_readable_by_others(path):
            logger.warning("other users can read the api_key_file %s: chmod o-r %s", path, path)

    def not_ready_reason(self) -> str | None:
        """Return why a request would have to wait or would be refused; None: the server is ready."""
        return STOPPING.message if self.is_draining else self.models.not_ready_reason()

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and wait for running ones; after a timeout, end them with a response.

        Args:
            timeout_s: seconds for running requests to finish.
        """
        self.is_draining = True
        await self._wait_for_requests(timeout_s)
        if not self.running_requests:
            return
        for request in list(self.running_requests):
            request.stop()
        await self.models.aclose()  # ends the streams of the models that it closes
        for request in list(self.running_requests):
            request.cancel()  # models opened by the embedding program stay open
        await self._wait_for_requests(_CANCEL_S)

    async def _wait_for_requests(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while self.running_requests and time.monotonic() < deadline_s:
            await asyncio.sleep(_POLL_S)


# Seconds for cancelled requests to send the end of their responses.
_CANCEL_S = 2.0
# Seconds between two looks at the running requests; uvicorn looks once in 0.1 s if draining has ended.
_POLL_S = 0.05

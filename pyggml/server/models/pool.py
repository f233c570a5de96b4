"""The models of a server: found by name, loaded on demand, and kept loaded while requests use them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pyggml
from pyggml.server.http.errors import Failure, RequestError, strip_folders, strip_paths, unavailable
from pyggml.server.models.catalogue import DEFAULT, Catalogue, CatalogueEntry
from pyggml.server.models.eviction import Evictor
from pyggml.server.models.idle_unloading import IdleUnloading
from pyggml.server.models.loader import Loader
from pyggml.server.models.model_info import HeaderInfo, ModelInfo
from pyggml.server.models.model_state import LoadedModel, ModelState
from pyggml.server.models.warm_up import read_prefixes
from pyggml.server.observability.observer import Observer
from pyggml.server.settings.options import ModelSpec, Settings

__all__ = ["DEFAULT", "LoadedModel", "ModelInfo", "ModelPool"]

# Seconds before a model that could not be loaded is tried again.
_BACK_OFF_S = 1.0
# Retry-After for a model that could not be loaded in time.
_RETRY_S = 10


class ModelPool:
    """The models of a server, for one event loop at a time."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        """Set up the pool; nothing is loaded yet. ``observer`` is notified of loaded and unloaded models."""
        self._settings = settings
        self._catalogue = Catalogue(settings.models)
        self._states = {entry: ModelState.create(entry, settings) for entry in self._catalogue}
        self._headers = {entry: HeaderInfo() for entry in self._catalogue}
        self._observer = observer
        self._prefixes = read_prefixes(settings.warm) if settings.warm is not None else ()
        if self._prefixes and settings.prefix_cache_scope == "key":
            raise pyggml.InvalidParameterError(
                'warm has no effect with prefix_cache_scope="key", where each API key has a prefix cache of its own: '
                "leave one of them out"
            )
        self._idle = IdleUnloading(settings.idle_unload, self._unload_idle)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._enter_loop(None)
        self._unloading: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def names(self) -> list[str]:
        """The models' names in responses, the default first."""
        return self._catalogue.names

    @property
    def loaded(self) -> list[LoadedModel]:
        """The loaded models; may be read from any thread."""
        return [each for state in self._states.values() if (each := state.loaded) is not None]

    async def info(self, name: str = DEFAULT) -> ModelInfo:
        """Return the properties of a model, loaded or not.

        Raises:
            RequestError: 404, there is no such model.
        """
        return await self._info(self._catalogue.find(name))

    async def infos(self) -> list[ModelInfo]:
        """Return the properties of all models, the default first."""
        return [await self._info(entry) for entry in self._catalogue]

    def not_ready_reason(self) -> str | None:
        """Return why a request for the default model would have to wait or would be refused; None: it is ready.

        Starts to load a model that no request has used yet. A model that was evicted counts as ready.
        """
        state = self._states[self._catalogue.default]
        if state.is_lost:
            return "the model's engine or one of its hosts is lost: the program that opened the model must reopen it"
        if state.loaded is not None:
            stats, limit = state.loaded.stats(), state.options.get("max_queue")
            is_full = stats is not None and limit is not None and stats.n_queued >= limit
            return "the queue is full" if is_full else None
        if self._is_closed:
            return "the server is closed"
        if state.last_use and state.failed is None:
            return None
        try:
            self._start_loading(state)
        except RequestError as error:
            return error.failure.message
        return "the model is being loaded"

    async def start(self) -> None:
        """Load the default model, or with the setting ``load_all`` all models that fit.

        Raises:
            ModelNotFoundError: a model's path does not exist.
            InferError: the default model cannot be loaded.
        """
        self._is_closed = False
        for entry in self._catalogue:
            _require_file(entry)
        default, *others = self._states.values()
        default.failed = None  # no back-off at startup
        try:
            if not default.loaded and (error := await self._start_loading(default, is_startup=True)) is not None:
                raise error
            for state in others if self._settings.load_all else []:
                if state.loaded is None:
                    await self._start_loading(state, may_evict=False)
            for state in self._states.values():
                self._idle.unused(state)
        except BaseException:
            await self.aclose()
            raise

    def split(self, name: str) -> tuple[str, str | None]:
        """Return the model and the adapter of a name "model:adapter"; None: no adapter."""
        return self._catalogue.split(name)

    @contextlib.asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[LoadedModel]:
        """Load a model if necessary, and keep it loaded in the context.

        Raises:
            RequestError: 404, there is no such model; 503, it cannot be loaded, or not in time.
            QueueFullError: too many requests are waiting for it.
        """
        state = self._states[self._catalogue.find(name)]
        request_timeout = self._settings.request_timeout or math.inf
        deadline_s = time.monotonic() + min(self._settings.load_timeout, request_timeout)
        while state.loaded is None or state.is_evicting:
            error = await self._wait(state, max(0.0, deadline_s - time.monotonic()))
            if error is not None:
                raise _load_error(state, error) from error
        self._evictor.acquire(state)
        self._idle.used(state)
        state.keep_loaded_s = None
        try:
            yield state.loaded
        finally:
            self._evictor.release(state)
            self._idle.unused(state)

    def offer(self, spec: ModelSpec) -> None:
        """Offer a further model, unless there is one of its name. The first request loads it."""
        if (entry := self._catalogue.add(spec)) is None:
            return
        state = ModelState.create(entry, self._settings)
        self._headers = {**self._headers, entry: HeaderInfo()}
        self._states = {**self._states, entry: state}  # other threads may iterate over the old ones
        self._evictor.add(state)

    def expires(self, name: str) -> float | None:
        """Return the time at which a model will be unloaded if no request uses it; None: never."""
        return self._states[self._catalogue.find(name)].expires

    def keep_loaded(self, name: str, seconds: float) -> None:
        """Keep a model loaded for so many seconds without requests, unless a later one says otherwise.

        Negative numbers mean always. The server's settings may not allow it; then this changes nothing.

        Raises:
            RequestError: 404, there is no such model.
        """
        state = self._states[self._catalogue.find(name)]
        if self._settings.allow_unload:
            state.keep_loaded_s = seconds

    def unload(self, name: str) -> None:
        """Unload a model once no request uses it; the next request loads it again.

        Raises:
            RequestError: 403, the server does not allow it or cannot unload this model; 404, there is no such model.
        """
        state = self._states[self._catalogue.find(name)]
        if not self._settings.allow_unload:
            message = "requests cannot unload models: the server was started with allow_unload=False"
            raise RequestError(Failure(403, "invalid", message, "models_are_fixed"))
        if state.loaded is not None and not state.is_evictable:
            message = f"the model {state.entry.name!r} was opened before the server: only its program can unload it"
            raise RequestError(Failure(403, "invalid", message, "models_are_fixed"))
        if state.loaded is not None:
            self._unload(state)

    def discard_failed(self, model: LoadedModel) -> None:
        """Unload a model whose engine or hosts are lost; the next request loads it again.

        The server cannot reload a model that was opened before it: that one stays, and is not ready.
        """
        state = next((each for each in self._states.values() if each.loaded is model), None)
        if state is not None and not state.is_evictable:
            state.is_lost = True
        elif state is not None:
            self._unload(state)

    def _unload(self, state: ModelState) -> None:
        """Unload a model once no request uses it; new requests wait, and load it again."""
        if state.discarding is None:
            state.is_evicting = True  # from now on, not from the task's first step
            state.discarding = task = self._start_unloading(self._loader.discard(state))
            task.add_done_callback(lambda _: setattr(state, "discarding", None))

    def _unload_idle(self, state: ModelState) -> None:
        """Unload a model that no request has used for some time."""
        self._start_unloading(self._loader.unload_idle(state))

    def _start_unloading(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)
        return task

    async def aclose(self) -> None:
        """Close all models that were not opened before the server; running requests end with ClosedError."""
        self._is_closed = True
        states = list(self._states.values())
        tasks = [state.loading for state in states if state.loading is not None and not state.loading.done()]
        for task in self._unloading:
            task.cancel()
        for state in states:
            state.cancelled.set()
            if state.loading is not None and state.stage != "load":
                state.loading.cancel()
        await asyncio.gather(*tasks, *self._unloading, return_exceptions=True)
        for state in states:
            if state.entry.kind != "open":
                await self._evictor.unload(state)

    async def _wait(self, state: ModelState, timeout_s: float) -> Exception | None:
        """Wait until a model is loaded, together with all other requests for it. Return the error of a failed load.

        Raises:
            RequestError: 503, timeout, or loading failed a moment ago.
            QueueFullError: too many requests are waiting.
            ClosedError: the server is closed.
        """
        task = self._start_loading(state)
        try:
            with state.waiting.slot():
                await asyncio.wait({task}, timeout=timeout_s)
        finally:
            if not state.waiting.n_taken and state.stage in ("queue", "memory"):
                task.cancel()  # no request is waiting any more
            self._idle.unused(state)
        if not task.done():
            is_waiting = state.stage in ("queue", "memory")
            reason = self._evictor.shortage(state) if is_waiting else "it is still being loaded"
            message = f"the model {state.entry.name!r} was not ready in time: {reason}; try again later"
            raise RequestError(unavailable(message, "model_not_loaded", _RETRY_S))
        return None if task.cancelled() else task.result()

    def _start_loading(
        self, state: ModelState, *, may_evict: bool = True, is_startup: bool = False
    ) -> asyncio.Task[Exception | None]:
        """Return the task that loads a model, starting it if necessary."""
        if self._is_closed:
            raise pyggml.ClosedError("the server has been closed")
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._enter_loop(loop)
        if state.loading is None or state.loading.done():
            if state.failed is not None and time.monotonic() - state.failed[0] < _BACK_OFF_S:
                raise _load_error(state, state.failed[1]) from state.failed[1]
            state.loading = loop.create_task(self._loader.load(state, may_evict=may_evict, is_startup=is_startup))
            state.loading.add_done_callback(lambda _: self._idle.unused(state))  # its requests may have gone
        return state.loading

    def _enter_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start working in another event loop; the tasks of the previous one have ended with it."""
        self._loop = loop
        self._evictor = Evictor(self._settings, self._observer, list(self._states.values()))
        self._loader = Loader(self._observer, self._evictor, self._prefixes)
        for state in self._states.values():
            state.loading, state.discarding, state.stage, state.is_evicting = None, None, "", False

    async def _info(self, entry: CatalogueEntry) -> ModelInfo:
        state, header = self._states[entry], self._headers[entry]
        path = state.path or entry.path
        if path is not None and not (state.loaded and header.is_known):
            await asyncio.to_thread(header.read, path)
        return header.info(entry, state.loaded, state.options.get("n_ctx"))


def _require_file(entry: CatalogueEntry) -> None:
    """Raise pyggml's error, which suggests similar names, if a local model's path does not exist."""
    if entry.kind == "local" and entry.path is not None and not entry.path.exists():
        pyggml.inspect(entry.path)


def _load_error(state: ModelState, error: Exception) -> Exception:
    """Return the error for requests whose model cannot be loaded: the library's message without paths."""
    if isinstance(error, pyggml.ModelNotFoundError) and state.entry.kind == "local":
        reason, code = "its file does not exist", "model_not_loaded"  # the library's message lists similar files
    elif isinstance(error, pyggml.InferError):
        known = [path for path in (state.path, state.entry.path, state.options.get("tokenizer")) if path is not None]
        reason = strip_paths(strip_folders(str(error), *known))
        code = "out_of_memory" if isinstance(error, pyggml.OutOfMemoryError) else "model_not_loaded"
    else:
        return error  # a bug in the server
    return RequestError(unavailable(f"the model {state.entry.name!r} cannot be loaded: {reason}", code, _RETRY_S))

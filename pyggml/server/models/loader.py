"""Downloading and loading models, one at a time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyggml
from pyggml.server.models.eviction import Evictor
from pyggml.server.models.model_state import LoadedModel, ModelState, max_requests
from pyggml.server.models.warm_up import Prefix, warm
from pyggml.server.observability.observer import Observer

T = TypeVar("T")


class Loader:
    """Loader of one model at a time, in the order of the requests for them; downloads run concurrently.

    A loader works in one event loop.
    """

    def __init__(self, observer: Observer, evictor: Evictor, prefixes: Sequence[Prefix] = ()) -> None:
        """Set up the loader; ``observer`` is notified of loaded models, which compute ``prefixes`` first."""
        self._observer = observer
        self._evictor = evictor
        self._prefixes = prefixes
        self._lock = asyncio.Lock()

    async def load(self, model: ModelState, *, may_evict: bool = True, is_startup: bool = False) -> Exception | None:
        """Load a model, evicting others if necessary. Return the error if it cannot be loaded.

        At startup the caller reports it: the server ends with it.
        """
        try:
            source = await self._download(model)
            model.stage = "queue"
            if model.discarding is not None:
                await asyncio.wait({model.discarding})
            async with self._lock:
                if model.loaded is None:
                    model.stage = "memory"
                    memory = await self._evictor.evict_until_fits(model, source, may_evict)
                    model.stage = "load"
                    await self._load(model, source, memory)
            model.failed = None
        except Exception as error:
            model.failed = time.monotonic(), error
            if not is_startup:
                self._observer.model_failed(model.entry.name, error)
            return error
        finally:
            model.stage = ""
            model.needed = None
        return None

    async def discard(self, model: ModelState) -> None:
        """Unload a model once the requests that use it have ended; new ones wait, and load it again.

        Other models can be loaded meanwhile.
        """
        model.is_evicting = True
        try:
            while model.loaded is not None:
                await self._evictor.wait_until_unused(model)
                async with self._lock:
                    if not model.n_leases:  # an eviction for another model may have let requests in
                        await self._evictor.unload(model)
        finally:
            model.is_evicting = False

    async def unload_idle(self, model: ModelState) -> None:
        """Unload a model, unless a request has used it once no other model is being loaded."""
        last_use = model.last_use
        async with self._lock:
            if model.is_evictable and not model.is_used and model.last_use == last_use:
                await self._evictor.unload(model)

    async def _download(self, model: ModelState) -> str | os.PathLike[str] | None:
        """Return the path to load; None: the model that ships with pyggml."""
        source = model.entry.spec.source
        assert not isinstance(source, pyggml.LLM), "an open model is never loaded"
        model.cancelled = cancelled = threading.Event()
        if model.entry.kind == "hub":
            model.stage = "download"
            model.path = await _run_in_own_thread(pyggml.hub.fetch, str(source), lambda _: not cancelled.is_set())
            return model.path
        return source

    async def _load(
        self, model: ModelState, source: str | os.PathLike[str] | None, memory: pyggml.MemoryEstimate
    ) -> None:
        started_s = time.monotonic()
        try:
            llm = await _run_in_own_thread(load, source, model.options, model.cancelled)
        except asyncio.CancelledError:  # the thread is still running
            model.cancelled.set()
            raise
        try:
            if self._prefixes:
                await _run_in_own_thread(warm, llm, model.entry.name, self._prefixes, model.cancelled)
            model.loaded = LoadedModel.create(
                model.entry.name, llm, model.sampling, max_requests(model.options), memory
            )
        except BaseException:
            llm.close()
            raise
        self._evictor.touch(model)
        self._observer.model_loaded(model.entry.name, time.monotonic() - started_s)


def load(source: str | os.PathLike[str] | None, options: Mapping[str, Any], cancelled: threading.Event) -> pyggml.LLM:
    """Load a model, unless another thread sets ``cancelled`` meanwhile.

    Raises:
        InferError: as :func:`pyggml.load`; ModelLoadError, if it is cancelled.
    """
    llm = pyggml.load(source, **options, progress=lambda _: not cancelled.is_set())
    if cancelled.is_set():
        llm.close()
        raise pyggml.ModelLoadError("loading was cancelled: no request waits for the model")
    return llm


async def _run_in_own_thread(function: Callable[..., T], *args: Any) -> T:
    """Run a function that may take hours in a new thread, as requests need the few threads of the event loop."""
    thread = ThreadPoolExecutor(1, "pyggml.server.models.loader")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, function, *args)
    finally:
        thread.shutdown(wait=False)

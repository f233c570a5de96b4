"""Unloading models: evict the least recently used ones to free memory for others."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence

import pyggml
from pyggml.memory.estimate import estimate
from pyggml.options import SnapshotOptions, fields_of
from pyggml.server.models.memory_budget import MemoryBudget, MemoryUse
from pyggml.server.models.model_state import ModelState
from pyggml.server.observability.observer import Observer
from pyggml.server.settings.options import Settings


class Evictor:
    """Usage counts of models, and eviction of models that no request uses, in one event loop."""

    def __init__(self, settings: Settings, observer: Observer, models: Sequence[ModelState]) -> None:
        """Set up the evictor; ``observer`` is notified of unloaded models."""
        self._budget = MemoryBudget(settings.max_memory, settings.max_loaded_models)
        self._observer = observer
        self._models = list(models)
        self._released = asyncio.Event()

    def add(self, model: ModelState) -> None:
        """Take a further model into account."""
        self._models.append(model)

    def touch(self, model: ModelState) -> None:
        """Mark a model as the most recently used one."""
        model.last_use = time.monotonic()

    def acquire(self, model: ModelState) -> None:
        """Count a request that uses a model."""
        model.n_leases += 1
        self.touch(model)

    def release(self, model: ModelState) -> None:
        """Undo :meth:`acquire`."""
        model.n_leases -= 1
        self.touch(model)
        if not model.n_leases:
            self._released.set()

    async def unload(self, model: ModelState) -> None:
        """Close a model; requests that use it end with ClosedError."""
        loaded, model.loaded = model.loaded, None
        if loaded is not None:
            self._observer.model_unloaded(loaded.name)
            await asyncio.to_thread(loaded.llm.close)

    async def wait_until_unused(self, model: ModelState) -> None:
        """Wait until the requests that use a model have ended."""
        while model.n_leases:
            await self._wait_for_release()

    async def evict_until_fits(
        self, model: ModelState, source: str | os.PathLike[str] | None, may_evict: bool
    ) -> pyggml.MemoryEstimate:
        """Evict models until ``model`` fits. Return its memory estimate.

        Raises:
            OutOfMemoryError: it does not fit even alone, or does not fit and ``may_evict`` is False.
            InferError: as :func:`pyggml.memory.estimate.estimate`.
        """
        options = {name: value for name, value in model.options.items() if name in fields_of(SnapshotOptions)}
        while True:
            try:
                model.needed = needed = await asyncio.to_thread(estimate, source, **options)
            except pyggml.OutOfMemoryError:  # n_ctx is "auto", and not even the smallest context fits
                if not self._in_use():
                    raise
            else:
                if self._budget.fits(needed, self._in_use()):
                    return needed
                self._budget.require_fits_alone(model.entry.name, needed, self._in_use())
            if not may_evict:
                raise pyggml.OutOfMemoryError(self.shortage(model))
            await self._evict_one()

    def shortage(self, model: ModelState) -> str:
        """Return why a model waits for memory, as a message."""
        if model.needed is None:
            return "other models are being loaded first"
        return self._budget.shortage(model.needed, self._in_use())

    async def _evict_one(self) -> None:
        """Evict the least recently used model once no request uses it, or another model that is unused earlier.

        New requests for it wait until the other model is loaded; otherwise they could keep it loaded forever.
        """
        evictable = sorted((each for each in self._models if each.is_evictable), key=lambda each: each.last_use)
        try:
            while (unused := next((each for each in evictable if not each.is_used), None)) is None:
                evictable[0].is_evicting = True
                await self._wait_for_release()
            await self.unload(unused)
        finally:
            evictable[0].is_evicting = False

    async def _wait_for_release(self) -> None:
        self._released.clear()
        await self._released.wait()

    def _in_use(self) -> MemoryUse:
        """Return the memory of the models that the server loaded."""
        return {each.entry.name: each.loaded.memory for each in self._models if each.loaded and each.loaded.memory}

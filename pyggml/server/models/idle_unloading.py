"""Unloading of models that no request has used for some time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pyggml.server.models.model_state import ModelState


class IdleUnloading:
    """Timers that unload unused models, in one event loop."""

    def __init__(self, default_s: float | None, unload: Callable[[ModelState], None]) -> None:
        """Call ``unload`` for models that were unused for ``default_s`` seconds, unless requests say otherwise."""
        self._default_s = default_s
        self._unload = unload
        self._timers: dict[ModelState, asyncio.TimerHandle] = {}

    def used(self, model: ModelState) -> None:
        """Stop a model's timer: a request uses it."""
        model.expires = None
        if (timer := self._timers.pop(model, None)) is not None:
            timer.cancel()

    def unused(self, model: ModelState) -> None:
        """Start a model's timer, unless requests use it or it stays loaded."""
        self.used(model)
        keep_s = self._default_s if model.keep_loaded_s is None else model.keep_loaded_s
        if model.is_used or not model.is_evictable or keep_s is None or keep_s < 0:
            return
        keep_s = min(keep_s, _MAX_S)
        model.expires = time.time() + keep_s
        self._timers[model] = asyncio.get_running_loop().call_later(keep_s, self._expired, model)

    def _expired(self, model: ModelState) -> None:
        del self._timers[model]
        if not model.is_used and model.is_evictable:
            self._unload(model)


# Event loops accept no timers beyond some years.
_MAX_S = 365 * 24 * 3600.0

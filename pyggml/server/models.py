"""The models that a server offers, by name."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyggml
from pyggml.server.failures import Failure, RequestError
from pyggml.server.observer import Observer
from pyggml.server.settings import ModelSpec, Settings

#: Always means the first model.
DEFAULT = "default"

_SEEDS = 2**32 - 1


@dataclass(frozen=True)
class Served:
    """A model that is loaded, as requests see it.

    Attributes:
        name: what answers call it.
        llm: the model.
        defaults: the sampling parameters of requests that say nothing else.
        created: when it was loaded, in seconds since 1970.
    """

    name: str
    llm: pyggml.LLM
    defaults: pyggml.SamplingParams
    created: int = field(default_factory=lambda: int(time.time()))

    def choices(self, given: Mapping[str, Any], n: int, timeout_s: float | None) -> list[pyggml.SamplingParams]:
        """The sampling parameters of a request's choices, whose seeds count up from the given one.

        Args:
            given: the fields that the request sets.
            n: number of choices.
            timeout_s: the server's limit.

        Raises:
            InvalidParameterError: one of them is invalid.
        """
        params = replace(self.defaults, **given)
        limits = [limit for limit in (params.timeout_s, timeout_s) if limit is not None]
        params = replace(params, timeout_s=min(limits, default=None))
        if params.seed is None:
            return [params] * n
        return [replace(params, seed=(params.seed + index) % _SEEDS) for index in range(n)]


class Models:
    """The models of a server. Not yet more than one."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        """Loads nothing yet; ``observer`` hears of what is loaded."""
        self._settings = settings
        self._observer = observer
        self._served: Served | None = None

    @property
    def names(self) -> list[str]:
        """What requests may call them, the first model's first."""
        return [] if self._served is None else [self._served.name]

    @property
    def loaded(self) -> list[Served]:
        """The models that are loaded now."""
        return [] if self._served is None else [self._served]

    @property
    def first(self) -> pyggml.LLM | None:
        """The default model; None while it is not loaded."""
        return None if self._served is None else self._served.llm

    def why_not_ready(self) -> str | None:
        """Why a request for the default model would have to wait or be refused; None: it would not."""
        if self._served is None:
            return "the model is not loaded"
        stats, max_queue = self._served.llm.stats(), self._settings.load.get("max_queue")
        return "the queue is full" if max_queue is not None and stats.n_queued >= max_queue else None

    async def start(self) -> None:
        """Loads the models that are loaded from the start."""
        began_s = time.monotonic()
        spec = (*self._settings.models, ModelSpec())[0]
        llm = await asyncio.to_thread(pyggml.load, spec.source, **self._settings.load_options(spec))
        name = spec.name or Path(llm.model.path).stem
        defaults = replace(llm.recommended_sampling or pyggml.SamplingParams(), max_tokens=llm.n_ctx)
        self._served = Served(name, llm, replace(defaults, **self._settings.sampling_options(spec)))
        self._observer.model_loaded(name, time.monotonic() - began_s)

    @contextlib.asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Served]:
        """The model of that name, loaded if it is not, which stays loaded in the meantime.

        Raises:
            RequestError: 404, there is no such model.
            InferError: it cannot be loaded.
        """
        if self._served is None:
            await self.start()
        assert self._served is not None
        if name not in (DEFAULT, "", self._served.name):
            raise RequestError(Failure(404, "not_found", f"there is no model {name!r}", "model_not_found", "model"))
        yield self._served

    async def aclose(self) -> None:
        """Closes all models; running requests end with ClosedError."""
        if self._served is not None:
            self._served.llm.close()
            self._observer.model_unloaded(self._served.name)

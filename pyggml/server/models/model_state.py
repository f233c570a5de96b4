"""State of one model: the loaded model, its users, and its loading."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyggml
from pyggml.options import MemoryOptions, fields_of
from pyggml.options.chat_defaults import chosen, with_defaults
from pyggml.server.http.concurrency_limit import ConcurrencyLimit
from pyggml.server.keys.fair_queue import FairQueue
from pyggml.server.models.catalogue import CatalogueEntry
from pyggml.server.protocols.sampling_fields import N_SEEDS
from pyggml.server.settings.options import Settings

#: Progress of a model that is being loaded: it is downloaded, waits for other models to be loaded, waits for memory, or
#: is loaded; "": it is not being loaded.
Stage = Literal["", "download", "queue", "memory", "load"]


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model, as requests use it.

    Attributes:
        name: its name in responses.
        llm: the model.
        defaults: the default sampling parameters.
        concurrency: limit on the requests that use it without its engine, which has its own queue.
        turns: fair queueing of generations between API keys.
        memory: its memory estimate; None: it was opened before the server.
        created: time of loading, in seconds since 1970.
    """

    name: str
    llm: pyggml.LLM
    defaults: pyggml.SamplingParams
    concurrency: ConcurrencyLimit
    turns: FairQueue
    memory: pyggml.MemoryEstimate | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def create(
        cls,
        name: str,
        llm: pyggml.LLM,
        sampling: Mapping[str, Any],
        max_requests: int | None,
        memory: pyggml.MemoryEstimate | None = None,
    ) -> LoadedModel:
        """Wrap an open model; ``sampling`` are the operator's parameters, which override those of chats."""
        defaults = with_defaults(sampling, chosen(llm.chat_defaults))
        return cls(name, llm, defaults, ConcurrencyLimit(max_requests), FairQueue(llm.n_parallel), memory)

    def sampling_params(self, overrides: Mapping[str, Any], n: int, settings: Settings) -> list[pyggml.SamplingParams]:
        """Return the sampling parameters of a request's ``n`` choices; each choice has the next seed.

        ``overrides`` are the fields that the request sets; the settings limit max_tokens and timeout_s.

        Raises:
            InvalidParameterError: a field is invalid.
        """
        params = with_defaults(overrides, chosen(self.defaults))
        limits = [limit for limit in (params.timeout_s, settings.request_timeout) if limit is not None]
        max_tokens = params.max_tokens
        if settings.max_tokens_limit is not None and not 0 <= max_tokens <= settings.max_tokens_limit:
            max_tokens = settings.max_tokens_limit
        params = replace(params, timeout_s=min(limits, default=None), max_tokens=max_tokens)
        if params.seed is None:
            return [params] * n
        return [replace(params, seed=(params.seed + index) % N_SEEDS) for index in range(n)]

    def stats(self) -> pyggml.EngineStats | None:
        """Return the engine's counters; None: an embedding model has no engine, or it was just unloaded."""
        try:
            return self.llm.stats()
        except (pyggml.UnsupportedArchitectureError, pyggml.ClosedError):
            return None


@dataclass(eq=False)
class ModelState:
    """Loading state and users of one model.

    Attributes:
        entry: the model in the catalogue.
        options: options of :func:`pyggml.load`.
        sampling: fields of SamplingParams for requests that do not set them.
        waiting: limit on the requests that wait until it is loaded.
        loaded: the loaded model; None: it is not loaded.
        path: its file; None: not known yet.
        n_leases: number of requests that use it.
        last_use: time of the last use, by :func:`time.monotonic`; 0: never used.
        is_evicting: True if it will be unloaded as soon as no request uses it.
        is_lost: True if its engine or hosts are lost, and the server cannot load it again.
        stage: progress of its loading.
        needed: its memory estimate while it waits for memory.
        loading: the task that loads it.
        discarding: the task that unloads it once no request uses it; None: there is none.
        cancelled: set to stop its download or loading.
        keep_loaded_s: seconds for which it stays loaded while no request uses it, as the last request said; None: the
            server's default; negative: no limit.
        expires: time at which it will be unloaded if no request uses it, in seconds since 1970; None: never.
        failed: time, by :func:`time.monotonic`, and error of the last failed attempt to load it.
    """

    entry: CatalogueEntry
    options: dict[str, Any]
    sampling: dict[str, Any]
    waiting: ConcurrencyLimit
    loaded: LoadedModel | None = None
    path: Path | None = None
    n_leases: int = 0
    last_use: float = 0.0
    is_evicting: bool = False
    is_lost: bool = False
    stage: Stage = ""
    needed: pyggml.MemoryEstimate | None = None
    loading: asyncio.Task[Exception | None] | None = None
    discarding: asyncio.Task[None] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    keep_loaded_s: float | None = None
    expires: float | None = None
    failed: tuple[float, Exception] | None = None

    @classmethod
    def create(cls, entry: CatalogueEntry, settings: Settings) -> ModelState:
        """Return the initial state of a model. A model that was opened before the server is loaded."""
        options, sampling = settings.load_options(entry.spec), settings.sampling_options(entry.spec)
        state = cls(entry, options, sampling, ConcurrencyLimit(max_requests(options)))
        if isinstance(entry.spec.source, pyggml.LLM):
            state.loaded = LoadedModel.create(entry.name, entry.spec.source, sampling, max_requests(options))
        return state

    @property
    def is_evictable(self) -> bool:
        """True if the server loaded it, and so may unload it."""
        return self.loaded is not None and self.loaded.memory is not None

    @property
    def is_used(self) -> bool:
        """True if requests use it, or wait for it. Requests that arrive during its eviction do not count."""
        return self.n_leases > 0 or (self.waiting.n_taken > 0 and not self.is_evicting)


def max_requests(options: dict[str, Any]) -> int | None:
    """Return the maximum number of running and queued requests of a model with these options; None: no limit."""
    max_queue: int | None = options.get("max_queue")
    n_parallel: int = options.get("n_parallel", fields_of(MemoryOptions)["n_parallel"].default)
    return None if max_queue is None else max_queue + n_parallel

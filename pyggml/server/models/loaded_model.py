"""A loaded model, as requests use it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyggml
from pyggml.server.http.concurrency_limit import ConcurrencyLimit
from pyggml.server.protocols.sampling_fields import N_SEEDS
from pyggml.server.settings.options import Settings


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model, as requests use it.

    Attributes:
        name: its name in responses.
        llm: the model.
        defaults: the default sampling parameters.
        concurrency: limit on the requests that use it without its engine, which has its own queue.
        memory: its memory estimate; None: it was opened before the server.
        created: time of loading, in seconds since 1970.
    """

    name: str
    llm: pyggml.LLM
    defaults: pyggml.SamplingParams
    concurrency: ConcurrencyLimit
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
        """Wrap an open model.

        Args:
            name: its name in responses.
            llm: the model.
            sampling: fields of SamplingParams, which override those that the model's authors recommend.
            max_requests: limit on the requests that use it without its engine; None: no limit.
            memory: its memory estimate.
        """
        defaults = replace(llm.recommended_sampling or pyggml.SamplingParams(), max_tokens=llm.n_ctx)
        return cls(name, llm, replace(defaults, **sampling), ConcurrencyLimit(max_requests), memory)

    def sampling_params(self, overrides: Mapping[str, Any], n: int, settings: Settings) -> list[pyggml.SamplingParams]:
        """Return the sampling parameters of a request's choices; each choice has the next seed.

        Args:
            overrides: the fields that the request sets.
            n: number of choices.
            settings: the server's settings, which limit max_tokens and timeout_s.

        Raises:
            InvalidParameterError: a field is invalid.
        """
        params = replace(self.defaults, **overrides)
        limits = [limit for limit in (params.timeout_s, settings.request_timeout) if limit is not None]
        max_tokens = min(params.max_tokens, settings.max_tokens_limit or params.max_tokens)
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

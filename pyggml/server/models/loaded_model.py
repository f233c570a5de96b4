"""A model as requests see it, and how it is loaded for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyggml
from pyggml.server.http.concurrency_limit import Places
from pyggml.server.protocols.sampling_fields import N_SEEDS
from pyggml.server.settings.options import Settings


@dataclass(frozen=True)
class Served:
    """A model that is loaded, as requests see it.

    Attributes:
        name: what answers call it.
        llm: the model.
        defaults: the sampling parameters of requests that say nothing else.
        beside: for requests that use it without its engine, which has a queue of its own.
        memory: what it takes, as it was planned; None: others loaded it.
        created: when it was loaded, in seconds since 1970.
    """

    name: str
    llm: pyggml.LLM
    defaults: pyggml.SamplingParams
    beside: Places
    memory: pyggml.MemoryEstimate | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    def choices(self, given: Mapping[str, Any], n: int, settings: Settings) -> list[pyggml.SamplingParams]:
        """The sampling parameters of a request's choices, whose seeds count up from the given one.

        Args:
            given: the fields that the request sets.
            n: number of choices.
            settings: with the server's limits, which bound what a request asks for.

        Raises:
            InvalidParameterError: one of them is invalid.
        """
        params = replace(self.defaults, **given)
        limits = [limit for limit in (params.timeout_s, settings.request_timeout) if limit is not None]
        max_tokens = min(params.max_tokens, settings.max_tokens_limit or params.max_tokens)
        params = replace(params, timeout_s=min(limits, default=None), max_tokens=max_tokens)
        if params.seed is None:
            return [params] * n
        return [replace(params, seed=(params.seed + index) % N_SEEDS) for index in range(n)]

    def stats(self) -> pyggml.EngineStats | None:
        """The engine's counters; None: it has none, as it does not generate, or it was unloaded a moment ago."""
        try:
            return self.llm.stats()
        except (pyggml.UnsupportedArchitectureError, pyggml.ClosedError):
            return None


def served(
    name: str,
    llm: pyggml.LLM,
    sampling: Mapping[str, Any],
    n_places: int | None,
    memory: pyggml.MemoryEstimate | None = None,
) -> Served:
    """Offers an open model.

    Args:
        name: what answers call it.
        llm: the model.
        sampling: fields of SamplingParams, over those that the model's makers recommend.
        n_places: number of requests that may use it without its engine, or wait to; None: no limit.
        memory: what it takes.
    """
    defaults = replace(llm.recommended_sampling or pyggml.SamplingParams(), max_tokens=llm.n_ctx)
    return Served(name, llm, replace(defaults, **sampling), Places(n_places), memory)


def load(source: str | os.PathLike[str] | None, options: Mapping[str, Any], given_up: threading.Event) -> pyggml.LLM:
    """Loads a model, unless it is given up meanwhile, which another thread may say at any time.

    Raises:
        InferError: as :func:`pyggml.load`; ModelLoadError, if it is given up.
    """
    llm = pyggml.load(source, **options, progress=lambda _: not given_up.is_set())
    if given_up.is_set():
        llm.close()
        raise pyggml.ModelLoadError("nobody waits for the model any more")
    return llm

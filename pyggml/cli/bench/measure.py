"""Speed measurements of ``pyggml bench``, through the public API.

A case is measured with ordinary requests: prompts of random tokens, submitted together, from the call until the last
one has returned. The compared sides alternate, in reverse order in every other round, so that a drift in the machine's
speed affects all sides alike.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyggml
from pyggml.options import All, PlacementOptions, SplitMode, fields_of

Kind = Literal["prompt", "generate"]

_SEED = 1


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a model and its options of :func:`pyggml.load`."""

    model: str | None
    device: str = "auto"
    n_gpu_layers: int | None = None
    split_mode: SplitMode = "layer"
    tensor_split: str | None = None
    n_cpu_moe: int | All = 0
    n_threads: int | None = None
    cache_type: str = "f16"
    n_batch: int = 2048
    n_ubatch: int = 512

    @property
    def name(self) -> str:
        """The name of the model's file."""
        model = pyggml.SHIPPED_MODEL if self.model is None else self.model
        return Path(model).name or str(model)


@dataclass(frozen=True)
class Case:
    """A test.

    Attributes:
        kind: "prompt" for prefill, "generate" for decode steps.
        n_tokens: tokens of each request.
        n_depth: tokens in the KV cache at the start.
        n_parallel: concurrent requests.
    """

    kind: Kind
    n_tokens: int
    n_depth: int = 0
    n_parallel: int = 1

    @property
    def name(self) -> str:
        """Name such as "prompt 512", or "generate 64 @ 1024" for a depth of 1,024 tokens."""
        return f"{self.kind} {self.n_tokens}" + (f" @ {self.n_depth}" if self.n_depth else "")

    @property
    def n_cells(self) -> int:
        """KV cache cells that it needs."""
        return self.n_parallel * (self.n_depth + self.n_tokens + 2)

    def speed(self, seconds: float) -> float:
        """Return the tokens per second of all requests together."""
        return self.n_parallel * self.n_tokens / seconds


@dataclass(frozen=True)
class Result:
    """Measurements of one case on one side: the seconds of each repetition, and the engine's compute threads."""

    side: Side
    case: Case
    model_info: ModelInfo
    n_threads_used: int
    seconds: list[float]

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of all requests together, for each repetition."""
        return list(map(self.case.speed, self.seconds))

    @property
    def median(self) -> float:
        """The median of :attr:`speeds`."""
        return statistics.median(self.speeds)


@dataclass(frozen=True)
class ModelInfo:
    """Description of a model in a report."""

    description: str
    n_params: int
    size_bytes: int


class Bench(AbstractContextManager["Bench"]):
    """A benchmark of cases on sides: call :meth:`load`, :meth:`warm_up` and :meth:`run`, in this order.

    Attributes:
        load_average: the system's load average before the start; None if unknown.
    """

    def __init__(self, sides: Sequence[Side], cases: Sequence[Case]) -> None:
        self.load_average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self._sides = list(sides)
        self._pairs = [(case, side) for case in cases for side in sides]
        self._costs = dict.fromkeys(self._pairs, 1.0)
        self._models = _ModelCache(max(case.n_cells for case in cases), max(case.n_parallel for case in cases))
        self._random = random.Random(_SEED)
        self._measured: dict[tuple[Case, Side], Result] = {}
        self._warm: weakref.WeakSet[pyggml.LLM] = weakref.WeakSet()

    @property
    def results(self) -> list[Result]:
        """The results so far, even after an interrupt, by case and then by side."""
        return [self._measured[pair] for pair in self._pairs if pair in self._measured]

    def load(self, progress: Callable[[float], object] = lambda _part: None) -> None:
        """Load every side, so that load errors come before the measurements."""

        def report(n_loaded: int, part: float) -> None:
            progress((n_loaded + part) / len(self._sides))

        for n_loaded, side in enumerate(self._sides):
            self._models.llm(side, partial(report, n_loaded))
            report(n_loaded, 1.0)

    def warm_up(self) -> Iterator[float]:
        """Run every case on every side once without recording it, and yield the progress as a fraction."""
        for n_done, (case, side) in enumerate(self._pairs, 1):
            llm = self._models.llm(side)
            self._costs[case, side] = seconds_of(llm, case, self._random)
            self._warm.add(llm)
            yield n_done / len(self._pairs)

    def run(self, repetitions: int) -> Iterator[float]:
        """Measure every case on every side, ``repetitions`` times, and yield the progress as a fraction."""
        spent, total = 0.0, repetitions * sum(self._costs.values())
        for number in range(repetitions):
            for case, side in self._pairs if number % 2 == 0 else reversed(self._pairs):
                self._measure(case, side)
                spent += self._costs[case, side]
                yield min(spent / total, 1.0)

    def __exit__(self, *_: object) -> None:
        self._models.close()

    def _measure(self, case: Case, side: Side) -> None:
        llm = self._models.llm(side)
        if self._warm and llm not in self._warm:  # evicted and loaded again
            seconds_of(llm, case, self._random)
            self._warm.add(llm)
        seconds = seconds_of(llm, case, self._random)
        stats, earlier = llm.stats(), self._measured.get((case, side))
        self._measured[case, side] = Result(
            side,
            case,
            ModelInfo(llm.model.desc, llm.model.n_params, llm.model.size_bytes),
            stats.n_threads_batch if case.kind == "prompt" else stats.n_threads,
            [*(earlier.seconds if earlier else []), seconds],
        )


def seconds_of(llm: pyggml.LLM, case: Case, rng: random.Random) -> float:
    """Return the seconds from the call until the last request of ``case`` has returned.

    A case at a depth starts from a prefix that earlier requests have cached. Generating N tokens takes N forward
    passes: the first of them computes the last token of the prompt. The prefix cache is cleared.
    """
    n_prompt, n_generated = (case.n_tokens, 1) if case.kind == "prompt" else (1, case.n_tokens)
    prompts = random_prompts(llm.model.vocab, case.n_parallel, case.n_depth + n_prompt, rng)
    llm.reset()
    if case.n_depth:
        llm.generate_batch([prompt[: case.n_depth] for prompt in prompts], max_tokens=1, ignore_eos=True)
    start = time.perf_counter()
    done = llm.generate_batch(prompts, max_tokens=n_generated, ignore_eos=True)
    seconds = time.perf_counter() - start
    if any(completion.cached_tokens < case.n_depth for completion in done):
        raise pyggml.UnsupportedArchitectureError(
            f"{llm.model.desc} cannot continue from {case.n_depth} cached tokens, so it cannot be measured at "
            "a depth: leave out --depth"
        )
    return seconds


def random_prompts(vocab: pyggml.Vocab, n: int, n_tokens: int, rng: random.Random) -> list[list[int]]:
    """Return ``n`` prompts of ``n_tokens`` ordinary tokens each, with different first tokens if possible."""
    special = set(vocab.special_ids)
    ordinary = [token_id for token_id in range(len(vocab)) if token_id not in special]
    starts = rng.sample(ordinary, min(n, len(ordinary)))
    return [[starts[index % len(starts)], *rng.choices(ordinary, k=n_tokens - 1)] for index in range(n)]


def _placement(side: Side) -> dict[str, Any]:
    """Return the placement options of a side: sides with the same model and placement share its weights."""
    return {name: getattr(side, name) for name in fields_of(PlacementOptions) if hasattr(side, name)}


class _ModelCache:
    """LRU cache of models, within the memory budget, each with the engines that share its weights."""

    def __init__(self, n_ctx: int, n_parallel: int) -> None:
        self._options: dict[str, Any] = {"n_ctx": n_ctx, "n_parallel": n_parallel}
        self._models: dict[tuple[object, ...], dict[Side, pyggml.LLM]] = {}
        # Loading mapped weights beyond the free memory does not fail: the system would page them in again and again.
        free = {device.type: device.memory_free for device in reversed(pyggml.devices())}
        self._budget = math.inf if any("gpu" in type for type in free) else free.get("cpu", math.inf)

    def llm(self, side: Side, progress: Callable[[float], None] | None = None) -> pyggml.LLM:
        """Return the engine of a side, and evict the least recently used models to make it fit."""
        key = (side.model, *_placement(side).values())
        while True:
            try:
                llms = self._models.pop(key, {})
                self._load(llms, side, progress)
                self._models[key] = llms  # now the most recent
                while len(self._models) > 1 and self._size_bytes() > self._budget:
                    self._evict_oldest()
                return llms[side]
            except pyggml.OutOfMemoryError:
                if not self._models:
                    raise
                self._evict_oldest()

    def close(self) -> None:
        while self._models:
            self._evict_oldest()

    def _load(self, llms: dict[Side, pyggml.LLM], side: Side, progress: Callable[[float], None] | None) -> None:
        """Add the engine of a side to those of its model; after an error, close all of them."""
        names = ("n_threads", "cache_type", "n_batch", "n_ubatch")
        # Guesses would measure how much the text repeats itself.
        plain = {"speculative": "off"}
        engine: dict[str, Any] = {**{name: getattr(side, name) for name in names}, **plain, **self._options}
        first = next(iter(llms.values()), None)
        try:
            if first is None:
                llms[side] = pyggml.load(side.model, progress=progress, **_placement(side), **engine)
            elif side not in llms:
                llms[side] = pyggml.LLM(first.model, tokenizer=first.tokenizer, **engine)
        except BaseException:
            _close_all(llms)
            raise

    def _size_bytes(self) -> int:
        return sum(next(iter(llms.values())).model.size_bytes for llms in self._models.values())

    def _evict_oldest(self) -> None:
        _close_all(self._models.pop(next(iter(self._models))))


def _close_all(llms: dict[Side, pyggml.LLM]) -> None:
    for llm in llms.values():
        llm.close()

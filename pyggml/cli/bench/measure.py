"""Measures speed through the public API, so that ``pyggml bench`` shows what callers get.

A case is measured with ordinary requests: prompts of random tokens, all submitted at once, from the call until the last
one has returned. The sides that are compared take turns, in reverse order in every other round, so that a machine whose
speed drifts affects all of them alike.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyggml
from pyggml.options import All, PlacementOptions, SplitMode, fields_of
from pyggml.units import size_label

if TYPE_CHECKING:
    from typing_extensions import Self

Kind = Literal["prompt", "generate"]

_SEED = 1


@dataclass(frozen=True)
class Side:
    """A model and how it is loaded, by the parameters of :func:`pyggml.load`."""

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
    """What is measured.

    Attributes:
        kind: "prompt": computing the tokens of a prompt; "generate": generating tokens.
        n_tokens: of each request.
        n_depth: tokens that were computed before it begins.
        n_parallel: requests at the same time.
    """

    kind: Kind
    n_tokens: int
    n_depth: int = 0
    n_parallel: int = 1

    @property
    def name(self) -> str:
        """As "prompt 512" or "generate 64 @ 1024": after 1,024 tokens."""
        return f"{self.kind} {self.n_tokens}" + (f" @ {self.n_depth}" if self.n_depth else "")

    @property
    def n_cells(self) -> int:
        """Cells of the context that it needs."""
        return self.n_parallel * (self.n_depth + self.n_tokens + 2)

    def speed(self, seconds: float) -> float:
        """Tokens per second, of all requests together."""
        return self.n_parallel * self.n_tokens / seconds


@dataclass(frozen=True)
class Result:
    """Figures of one case on one side.

    Attributes:
        side: where it was measured.
        case: what.
        about: the model.
        n_threads_used: compute threads that the engine chose, or was given.
        seconds: of each repetition, until the last request returned.
    """

    side: Side
    case: Case
    about: About
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
class About:
    """A model, for the readers of the figures."""

    description: str
    n_params: int
    size_bytes: int


class Bench:
    """Measures cases on sides. :attr:`results` has what has been measured so far, even after an interrupt.

    Attributes:
        load_average: how many programs wanted a core before it began; None if the system does not say.
    """

    def __init__(self, sides: Sequence[Side], cases: Sequence[Case]) -> None:
        """Measures nothing yet: call :meth:`load`, :meth:`warm_up` and :meth:`run`, in this order."""
        self.load_average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self._sides = list(sides)
        self._pairs = [(case, side) for case in cases for side in sides]
        self._costs = dict.fromkeys(self._pairs, 1.0)
        self._memory = _Memory(max(case.n_cells for case in cases), max(case.n_parallel for case in cases))
        self._random = random.Random(_SEED)
        self._measured: dict[tuple[Case, Side], Result] = {}
        self._warm: weakref.WeakSet[pyggml.LLM] = weakref.WeakSet()

    @property
    def results(self) -> list[Result]:
        """What has been measured, by case and then by side."""
        return [self._measured[pair] for pair in self._pairs if pair in self._measured]

    def load(self, progress: Callable[[float], object] | None = None) -> None:
        """Loads every side, so that one that cannot be loaded fails before anything is measured.

        Args:
            progress: called with the part that is done, 0 to 1.

        Raises:
            As :func:`pyggml.load`.
        """
        for n_loaded, side in enumerate(self._sides):

            def tell(part: float, n_loaded: int = n_loaded) -> None:
                if progress is not None:
                    progress((n_loaded + part) / len(self._sides))

            self._memory.llm(side, tell)
            tell(1.0)

    def warm_up(self) -> Iterator[float]:
        """Measures everything once without counting it.

        Yields:
            After each measurement, the part that is done, 0 to 1.

        Raises:
            As :meth:`run`.
        """
        for n_done, (case, side) in enumerate(self._pairs, 1):
            llm = self._memory.llm(side)
            self._costs[case, side] = seconds_of(llm, case, self._random)
            self._warm.add(llm)
            yield n_done / len(self._pairs)

    def run(self, repetitions: int) -> Iterator[float]:
        """Measures every case on every side, ``repetitions`` times.

        Yields:
            After each measurement, the part that is done, 0 to 1: of the time, if a warm-up measured it.

        Raises:
            As :func:`pyggml.load` and :meth:`pyggml.LLM.generate_batch`.
        """
        spent, total = 0.0, repetitions * sum(self._costs.values())
        for number in range(repetitions):
            for case, side in self._pairs if number % 2 == 0 else reversed(self._pairs):
                self._measure(case, side)
                spent += self._costs[case, side]
                yield min(spent / total, 1.0)

    def close(self) -> None:
        """Closes what is loaded."""
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measure(self, case: Case, side: Side) -> None:
        llm = self._memory.llm(side)
        if self._warm and llm not in self._warm:  # it was closed to make room, and is loaded again
            seconds_of(llm, case, self._random)
            self._warm.add(llm)
        seconds = seconds_of(llm, case, self._random)
        stats, earlier = llm.stats(), self._measured.get((case, side))
        self._measured[case, side] = Result(
            side,
            case,
            About(_description(llm.model), llm.model.n_params, llm.model.size_bytes),
            stats.n_threads_batch if case.kind == "prompt" else stats.n_threads,
            [*(earlier.seconds if earlier else []), seconds],
        )


def seconds_of(llm: pyggml.LLM, case: Case, rng: random.Random) -> float:
    """Seconds from the call until the last request of ``case`` has returned.

    A case at a depth starts from tokens that other requests computed before. Generating N tokens after D takes N
    forward passes: the first of them computes the last token of the prompt.

    Args:
        llm: with room for the case, and with its ``prefix_cache``, which is emptied.
        case: what to do.
        rng: chooses the prompts.

    Raises:
        UnsupportedArchitectureError: there is a depth, and the model cannot start from what was computed before.
        InferError: as :meth:`pyggml.LLM.generate_batch`.
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
            f"{_description(llm.model)} cannot go on from {case.n_depth} tokens that it computed before, so nothing "
            "can be measured at a depth: leave --depth out"
        )
    return seconds


def _description(model: pyggml.Model) -> str:
    """As "llama 135M Q8_0". Upstream's own size is only a guess from the number of layers."""
    architecture, _, type = model.desc.split(" ", 2)
    return f"{architecture} {size_label(model.n_params)} {type}"


def random_prompts(vocab: pyggml.Vocab, n: int, n_tokens: int, rng: random.Random) -> list[list[int]]:
    """``n`` prompts of ``n_tokens`` ordinary tokens each, different from the first token on if there are enough."""
    special = set(vocab.special_ids)
    ordinary = [token_id for token_id in range(len(vocab)) if token_id not in special]
    starts = rng.sample(ordinary, min(n, len(ordinary)))
    return [[starts[index % len(starts)], *rng.choices(ordinary, k=n_tokens - 1)] for index in range(n)]


@dataclass
class _Model:
    """One model in memory, and the engines that run on it, by their settings."""

    first: pyggml.LLM
    llms: dict[Side, pyggml.LLM]

    def close(self) -> None:
        for llm in self.llms.values():
            llm.close()


def _place(side: Side) -> dict[str, Any]:
    """The options that say where a model goes: sides that agree on them share its weights."""
    return {name: getattr(side, name) for name in fields_of(PlacementOptions) if hasattr(side, name)}


class _Memory:
    """The sides in memory: the most recently used models, as many as fit, each with engines that share its weights."""

    def __init__(self, n_ctx: int, n_parallel: int) -> None:
        self._options: dict[str, Any] = {"n_ctx": n_ctx, "n_parallel": n_parallel}
        self._models: dict[tuple[object, ...], _Model] = {}
        cpus = [device for device in pyggml.devices() if device.type == "cpu"]
        # Mapped weights are never refused for lack of memory: they would be read from the disk again and again.
        has_gpu = any("gpu" in device.type for device in pyggml.devices())
        self._room = math.inf if has_gpu or not cpus else cpus[0].memory_free

    def llm(self, side: Side, progress: Callable[[float], None] | None = None) -> pyggml.LLM:
        """The engine of a side; the least recently used models make room for it."""
        key = (side.model, *_place(side).values())
        while True:
            try:
                self._models[key] = self._with(self._models.pop(key, None), side, progress)  # now the most recent
                self._make_room()
                return self._models[key].llms[side]
            except pyggml.OutOfMemoryError:
                if not self._models:
                    raise
                self._close_oldest()

    def close(self) -> None:
        while self._models:
            self._close_oldest()

    def _with(self, model: _Model | None, side: Side, progress: Callable[[float], None] | None) -> _Model:
        engine: dict[str, Any] = {
            "n_threads": side.n_threads,
            "cache_type": side.cache_type,
            "n_batch": side.n_batch,
            "n_ubatch": side.n_ubatch,
            **self._options,
        }
        if model is None:
            llm = pyggml.load(side.model, progress=progress, **_place(side), **engine)
            return _Model(llm, {side: llm})
        if side not in model.llms:
            try:
                model.llms[side] = pyggml.LLM(model.first.model, tokenizer=model.first.tokenizer, **engine)
            except BaseException:
                model.close()
                raise
        return model

    def _make_room(self) -> None:
        while len(self._models) > 1 and sum(m.first.model.size_bytes for m in self._models.values()) > self._room:
            self._close_oldest()

    def _close_oldest(self) -> None:
        self._models.pop(next(iter(self._models))).close()

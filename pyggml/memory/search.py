"""What is asked about memory, what is answered, and the search for what would fit. Knows no model and no device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pyggml.errors import InvalidParameterError

#: The part of what is available that stays free where something is chosen or suggested.
HEADROOM = 0.1

#: Contexts are rounded up to a multiple of it.
CELL_PAD = 256

#: Cache types that are worth trying, from exact to small.
CACHE_TYPES = ("f16", "q8_0", "q5_0", "q4_0")

#: Quantisations that need no importance matrix, from exact to small.
OUTTYPES = ("bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")

_T = TypeVar("_T")


@dataclass(frozen=True)
class DeviceMemory:
    """What a model and its context take in one memory.

    Attributes:
        name: of the device, as in :func:`pyggml.devices`: "CPU" for main memory, "CUDA0" ...
        weights_bytes: weights, also those mapped from the file.
        cache_bytes: keys and values, recurrent states, and the engine's account of the cells.
        compute_bytes: scratch of a forward pass, and rows of output.
        vocabulary_bytes: the vocabulary, which is always in main memory.
        repacked_bytes: of the weights, copies in a layout that the CPU computes faster with. Their originals stay
            mapped beside them, and count as resident, until the system wants the room for something else.
        available_bytes: what is left, other programs aside.
    """

    name: str
    weights_bytes: int
    cache_bytes: int
    compute_bytes: int
    vocabulary_bytes: int
    repacked_bytes: int
    available_bytes: int

    @property
    def total_bytes(self) -> int:
        """All that has to fit."""
        return self.weights_bytes + self.cache_bytes + self.compute_bytes + self.vocabulary_bytes

    @property
    def fits(self) -> bool:
        """Whether it is there."""
        return self.total_bytes <= self.available_bytes

    @property
    def leaves_room(self) -> bool:
        """Whether it is there with a tenth to spare."""
        return self.total_bytes <= (1 - HEADROOM) * self.available_bytes


@dataclass(frozen=True)
class Settings:
    """How a model would be loaded.

    Attributes:
        n_ctx: cells.
        n_parallel: requests computed together.
        n_batch: tokens in one forward pass.
        n_ubatch: of these, computed at once.
        cache_type: element type of the cache.
        n_gpu_layers: -1: all of them.
        outtype: what the weights are made into first; "auto": they stay.
    """

    n_ctx: int
    n_parallel: int
    n_batch: int
    n_ubatch: int
    cache_type: str
    n_gpu_layers: int
    outtype: str


#: What settings would take, main memory first.
Plan = Callable[[Settings], Sequence[DeviceMemory]]


@dataclass(frozen=True)
class Limits:
    """How far a search may go.

    Attributes:
        n_ctx: cells that a request can make use of.
        n_layers: that can be put on a GPU, with the output.
        outtypes: what the weights could be made into, from exact to small; () where nothing can be done.
    """

    n_ctx: int
    n_layers: int
    outtypes: Sequence[str]


@dataclass(frozen=True)
class Suggestions:
    """What would fit with a tenth of the memory to spare, each with everything else left as it is.

    Attributes:
        n_ctx: the most cells, up to what the model was trained on; None: not even the smallest context fits.
        cache_type: the most exact cache that makes it fit. None: it fits, or no cache makes it.
        outtype: the most exact quantisation of the weights that makes it fit. None: it fits, or none makes it.
        n_gpu_layers: the most layers that fit on the GPUs. None: there is no GPU.
    """

    n_ctx: int | None
    cache_type: str | None
    outtype: str | None
    n_gpu_layers: int | None


def fits_well(memories: Sequence[DeviceMemory]) -> bool:
    """Whether each of them leaves room."""
    return all(memory.leaves_room for memory in memories)


def tightest(memories: Sequence[DeviceMemory]) -> DeviceMemory:
    """The one that lacks most, or has least to spare."""
    return max(memories, key=lambda memory: memory.total_bytes - memory.available_bytes)


def suggest(settings: Settings, plan: Plan, limits: Limits) -> Suggestions:
    """What would fit, found by planning it."""
    memories = plan(settings)
    is_fine = all(memory.fits for memory in memories)
    return Suggestions(
        n_ctx=largest_n_ctx(settings, plan, max(limits.n_ctx, settings.n_ctx if is_fine else 0)),
        cache_type=None if is_fine else _first(CACHE_TYPES, lambda type: _fits(settings, plan, cache_type=type)),
        outtype=None if is_fine else _first(limits.outtypes, lambda type: _fits(settings, plan, outtype=type)),
        n_gpu_layers=None if len(memories) == 1 else most_gpu_layers(settings, plan, limits.n_layers),
    )


def largest_n_ctx(settings: Settings, plan: Plan, limit: int) -> int | None:
    """The most cells that fit, up to a limit; None when not even the fewest do."""
    # Files may say what they like: no list of all sizes up to a limit in the billions.
    pads = _first(range(-(-limit // CELL_PAD), 0, -1), lambda n: _fits(settings, plan, n_ctx=min(n * CELL_PAD, limit)))
    return None if pads is None else min(pads * CELL_PAD, limit)


def most_gpu_layers(settings: Settings, plan: Plan, n_layers: int) -> int:
    """The most layers that fit on the GPUs, whatever becomes of main memory; at least 0."""

    def fit(n_gpu_layers: int) -> bool:
        return fits_well(plan(dataclasses.replace(settings, n_gpu_layers=n_gpu_layers))[1:])

    return _first(range(n_layers, 0, -1), fit) or 0


def _fits(settings: Settings, plan: Plan, **change: Any) -> bool:
    try:
        return fits_well(plan(dataclasses.replace(settings, **change)))
    except InvalidParameterError:
        return False  # the engine cannot quantise every model's cache


def _first(candidates: Sequence[_T], is_good: Callable[[_T], bool]) -> _T | None:
    """The first good one of candidates that need less and less: once one is good, so are all after it."""
    if not candidates or not is_good(candidates[-1]):
        return None  # most often none is good, or all are: looked at first
    if is_good(candidates[0]):
        return candidates[0]
    bad, good = 0, len(candidates) - 1
    while good - bad > 1:
        middle = (bad + good) // 2
        if is_good(candidates[middle]):
            good = middle
        else:
            bad = middle
    return candidates[good]

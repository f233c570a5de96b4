"""Search for options that fit into memory. Independent of models and devices."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pyggml._core.fields import option_class
from pyggml.errors import InvalidParameterError
from pyggml.options import MemoryOptions

#: The fraction of the available memory to leave free when choosing or suggesting options.
HEADROOM = 0.1

#: Context sizes are rounded up to a multiple of this.
CELL_PAD = 256

#: Cache types to try, from most exact to smallest.
SMALLER_CACHES = ("f16", "q8_0", "q5_0", "q4_0")

_T = TypeVar("_T")


@dataclass(frozen=True)
class DeviceMemory:
    """The memory that a model and its context need on one device.

    Attributes:
        name: the device, as in :func:`pyggml.devices`: "CPU" for main memory, "CUDA0" ...
        weights_bytes: weights, including those mapped from the file.
        cache_bytes: KV cache, recurrent states and their metadata.
        compute_bytes: compute buffers and outputs.
        vocabulary_bytes: the vocabulary, which is always in main memory.
        repacked_bytes: weights copied to a layout that is faster on the CPU, part of ``weights_bytes``.
        originals_bytes: originals of such copies that stay mapped, and count as resident until the kernel evicts
            them. pyggml's own layout unmaps them.
        available_bytes: memory not used by other programs.
    """

    name: str
    weights_bytes: int
    cache_bytes: int
    compute_bytes: int
    vocabulary_bytes: int
    repacked_bytes: int
    originals_bytes: int
    available_bytes: int

    @property
    def total_bytes(self) -> int:
        """Required memory."""
        return self.weights_bytes + self.cache_bytes + self.compute_bytes + self.vocabulary_bytes

    @property
    def fits(self) -> bool:
        """True if there is enough memory."""
        return self.total_bytes <= self.available_bytes

    @property
    def has_headroom(self) -> bool:
        """True if there is enough memory, and a tenth of it stays free."""
        return self.total_bytes <= (1 - HEADROOM) * self.available_bytes

    leaves_room = has_headroom  # its name in earlier versions


def memory_of_both(memories: Sequence[DeviceMemory], others: Sequence[DeviceMemory]) -> tuple[DeviceMemory, ...]:
    """Return the memory of two models on each device that one of them uses, main memory first."""
    found = {memory.name: memory for memory in memories}
    for memory in others:
        found[memory.name] = _sum(found[memory.name], memory) if memory.name in found else memory
    return tuple(found.values())


def _sum(memory: DeviceMemory, other: DeviceMemory) -> DeviceMemory:
    sizes = [name for name in DeviceMemory.__dataclass_fields__ if name not in ("name", "available_bytes")]
    return dataclasses.replace(memory, **{name: getattr(memory, name) + getattr(other, name) for name in sizes})


@option_class
@dataclass(frozen=True, kw_only=True)
class ResolvedOptions(MemoryOptions):
    """Options for loading a model, with "auto" and defaults resolved.

    Attributes:
        n_ctx: context size in tokens.
        n_gpu_layers: number of layers on the GPU; -1: all of them.
        n_cpu_moe: number of layers whose experts stay in main memory.
        outtype: type to convert the weights to first; "auto": no conversion.
    """

    n_ctx: int
    n_gpu_layers: int = -1
    n_cpu_moe: int = 0
    outtype: str = "auto"


#: Returns the memory that options need, main memory first.
MemoryOf = Callable[[ResolvedOptions], Sequence[DeviceMemory]]


@dataclass(frozen=True)
class Limits:
    """Limits of a search.

    Attributes:
        n_ctx: the maximum context size of a request.
        n_layers: number of layers that can go on a GPU, including the output.
        outtypes: types to try for the weights, from most exact to smallest.
    """

    n_ctx: int
    n_layers: int
    outtypes: Sequence[str]


@dataclass(frozen=True)
class Suggestions:
    """Alternative changes, each of which makes the model fit with a tenth of the memory to spare.

    Attributes:
        n_ctx: the largest context, up to the training length. None: no context fits.
        cache_type: the most exact type for the cache, for both K and V. None: it fits already, or none would.
        outtype: the most exact type for the weights. None: it fits already, or none would.
        n_gpu_layers: the largest number of layers that fit on the GPUs. None: there is no GPU.
        n_cpu_moe: the smallest number of layers with their experts in main memory, if all layers then fit on the GPUs.
            None: there is no GPU, the model has no experts, it fits already, or no number is enough.
    """

    n_ctx: int | None
    cache_type: str | None
    outtype: str | None
    n_gpu_layers: int | None
    n_cpu_moe: int | None = None


def all_have_headroom(memories: Sequence[DeviceMemory]) -> bool:
    """Return True if every device has enough memory, with a tenth to spare."""
    return all(memory.has_headroom for memory in memories)


def tightest(memories: Sequence[DeviceMemory]) -> DeviceMemory:
    """Return the device that lacks the most memory, or has the least to spare."""
    return max(memories, key=lambda memory: memory.total_bytes - memory.available_bytes)


def suggest(settings: ResolvedOptions, memory_of: MemoryOf, limits: Limits) -> Suggestions:
    """Search for changes that make the model fit."""
    memories = memory_of(settings)
    is_fine = all(memory.fits for memory in memories)
    caches, outtypes = ((), ()) if is_fine else (SMALLER_CACHES, limits.outtypes)
    return Suggestions(
        n_ctx=largest_n_ctx(settings, memory_of, limits.n_ctx),
        cache_type=_first(caches, lambda type: _fits(settings, memory_of, cache_type=type, type_k=None, type_v=None)),
        outtype=_first(outtypes, lambda type: _fits(settings, memory_of, outtype=type)),
        n_gpu_layers=None if len(memories) == 1 else most_gpu_layers(settings, memory_of, limits.n_layers),
        n_cpu_moe=None if is_fine or len(memories) == 1 else fewest_cpu_experts(settings, memory_of, limits.n_layers),
    )


def largest_n_ctx(settings: ResolvedOptions, memory_of: MemoryOf, limit: int) -> int | None:
    """Return the largest context that fits, up to a limit; None: no context fits."""
    # A file may claim any training length, so the candidates are a lazy range.
    pads = _first(
        range(-(-limit // CELL_PAD), 0, -1), lambda n: _fits(settings, memory_of, n_ctx=min(n * CELL_PAD, limit))
    )
    return None if pads is None else min(pads * CELL_PAD, limit)


def most_gpu_layers(settings: ResolvedOptions, memory_of: MemoryOf, n_layers: int) -> int:
    """Return the largest number of layers that fit on the GPUs, even if the others do not fit in main memory."""

    def fit(n_gpu_layers: int) -> bool:
        return all_have_headroom(memory_of(dataclasses.replace(settings, n_gpu_layers=n_gpu_layers))[1:])

    return _first(range(n_layers, 0, -1), fit) or 0


def fewest_cpu_experts(settings: ResolvedOptions, memory_of: MemoryOf, n_layers: int) -> int | None:
    """Return the smallest number of layers whose experts must stay in main memory for the rest to fit on the GPUs.

    None: no number is enough, there is no GPU, or the model has no experts there.
    """

    def gpus(n_cpu_moe: int) -> Sequence[DeviceMemory]:
        return memory_of(dataclasses.replace(settings, n_gpu_layers=-1, n_cpu_moe=n_cpu_moe))[1:]

    if sum(gpu.weights_bytes for gpu in gpus(n_layers)) == sum(gpu.weights_bytes for gpu in gpus(0)):
        return None
    return _first(range(n_layers + 1), lambda n_cpu_moe: all_have_headroom(gpus(n_cpu_moe)))


def place_layers(
    settings: ResolvedOptions, memory_of: MemoryOf, n_layers: int, *, move_experts: bool
) -> ResolvedOptions:
    """Place as many layers on the GPUs as fit.

    With ``move_experts``, move experts to main memory before whole layers: a token uses few of a layer's experts, so
    the CPU computes little.
    """
    if len(memory_of(settings)) == 1:
        return settings  # there is no GPU
    most = most_gpu_layers(settings, memory_of, n_layers)
    if most < n_layers and move_experts:
        n_cpu_moe = fewest_cpu_experts(settings, memory_of, n_layers)
        if n_cpu_moe is not None:
            return dataclasses.replace(settings, n_gpu_layers=-1, n_cpu_moe=n_cpu_moe)
    return dataclasses.replace(settings, n_gpu_layers=most)


def _fits(settings: ResolvedOptions, memory_of: MemoryOf, **change: Any) -> bool:
    try:
        return all_have_headroom(memory_of(dataclasses.replace(settings, **change)))
    except InvalidParameterError:
        return False  # not every model's cache can be quantised


def _first(candidates: Sequence[_T], is_good: Callable[[_T], bool]) -> _T | None:
    """Return the first good candidate by binary search. Each needs less memory than the one before."""
    if not candidates or not is_good(candidates[-1]):
        return None  # the most frequent results are none and all, so they are checked first
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

"""Will it fit? How much memory a model takes, and what to change if that is too much."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyggml._core.fields import option_class, shared, takes
from pyggml._core.json_forms import JSONReady
from pyggml._native.placement import ALL, placed
from pyggml.cache import shown_name
from pyggml.errors import OutOfMemoryError
from pyggml.memory.llm_context import checked_n_ctx, generates
from pyggml.memory.planner import Planner
from pyggml.memory.search import (
    CELL_PAD,
    DeviceMemory,
    Settings,
    Suggestions,
    largest_n_ctx,
    place_layers,
    suggest,
    tightest,
)
from pyggml.options import EstimateOptions, MemoryOptions
from pyggml.remote import connected
from pyggml.source import identify
from pyggml.units import bytes_text

__all__ = [
    "DeviceMemory",
    "MemoryEstimate",
    "Planner",
    "Settings",
    "Suggestions",
    "estimate",
    "require_room",
    "resolve",
]


@option_class
@dataclass(frozen=True, kw_only=True)
class MemoryEstimate(Settings, JSONReady):
    """How much memory a model and its context would take, as planned by the engine without loading the weights.

    Attributes:
        device: where the model would go.
        n_gpu_layers: number of layers on the GPU; -1: all of them.
        n_cpu_moe: number of layers whose experts stay in main memory.
        n_ctx: context size in tokens.
        n_parallel: number of requests computed together.
        n_batch: maximum number of tokens in a forward pass.
        n_ubatch: maximum number of tokens in a micro-batch; n_parallel, if that is more.
        cache_type: element type of the KV cache.
        outtype: type that the weights would be converted to; "auto": they are not converted.
        devices: main memory first, then the GPUs.
        suggestions: what would fit.
    """

    devices: tuple[DeviceMemory, ...]
    suggestions: Suggestions

    _derived = ("weights_bytes", "cache_bytes", "compute_bytes", "total_bytes", "available_bytes", "fits")

    @property
    def weights_bytes(self) -> int:
        """Weights, summed over all devices like the properties below."""
        return sum(device.weights_bytes for device in self.devices)

    @property
    def cache_bytes(self) -> int:
        """Keys and values, recurrent states, and the engine's bookkeeping for them."""
        return sum(device.cache_bytes for device in self.devices)

    @property
    def compute_bytes(self) -> int:
        """Scratch space of a forward pass, and its output."""
        return sum(device.compute_bytes for device in self.devices)

    @property
    def total_bytes(self) -> int:
        """Everything that has to fit, including the vocabulary."""
        return sum(device.total_bytes for device in self.devices)

    @property
    def available_bytes(self) -> int:
        """Memory available on all devices."""
        return sum(device.available_bytes for device in self.devices)

    @property
    def resident_bytes(self) -> int:
        """Growth of the process's resident memory: main memory's share, and originals of repacked weights that stay."""
        return self.devices[0].total_bytes + self.devices[0].originals_bytes

    @property
    def fits(self) -> bool:
        """Whether every device has room for its share."""
        return all(device.fits for device in self.devices)

    @property
    def advice(self) -> str:
        """The suggestions as text, which says so if nothing would fit."""
        return _advice(self.suggestions)


@takes(EstimateOptions)
def estimate(options: EstimateOptions) -> MemoryEstimate:  # noqa: D417
    """Estimate the memory that :func:`pyggml.load` with these arguments would use.

    Args:
        source: ... A directory is not imported. None: the model that ships with pyggml.
        n_ctx: ... None: as for :func:`pyggml.load`.
        outtype: ... "auto": no conversion.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory cannot be loaded.
        DeviceError: there is no such device, or a host cannot be used.
        HostLostError: a host went away.
        InvalidParameterError: an argument is out of range.
        OutOfMemoryError: with ``n_ctx="auto"``, not even the smallest context fits.
    """
    with (
        connected(options.rpc, options.rpc_key) as devices_of_hosts,
        Planner(identify(options.source), placed(options, devices_of_hosts)) as planner,
    ):
        settings = resolve(planner, options, options.outtype)
        return MemoryEstimate(
            **vars(settings),
            devices=planner.memory_of(settings),
            suggestions=suggest(settings, planner.memory_of, planner.limits(settings)),
        )


def resolve(planner: Planner, options: MemoryOptions, outtype: str = "auto") -> Settings:
    """Resolves options to settings for a model.

    If n_ctx and n_gpu_layers are both "auto", layers are placed on the GPU first, assuming a context of the default
    size, which is then made as large as fits. n_gpu_layers="auto" chooses n_cpu_moe too, unless that is given.

    Raises:
        As :func:`estimate`.
    """
    n_ctx, n_gpu_layers, n_cpu_moe = options.n_ctx, options.n_gpu_layers, options.n_cpu_moe
    model = planner.model(outtype=outtype)
    decided = {
        "n_ctx": checked_n_ctx(model, None if n_ctx == "auto" else n_ctx),
        "n_gpu_layers": ALL if n_gpu_layers is None or n_gpu_layers == "auto" else n_gpu_layers,
        "n_cpu_moe": model.n_layer if n_cpu_moe == "all" else min(n_cpu_moe or 0, model.n_layer),
        "outtype": outtype,
    }
    settings = Settings(**{**shared(options, Settings), **decided})
    if n_gpu_layers == "auto":
        n_layers = planner.limits(settings).n_layers
        settings = place_layers(settings, planner.memory_of, n_layers, move_experts=n_cpu_moe is None)
    if n_ctx == "auto":
        settings = replace(settings, n_ctx=_largest_n_ctx(planner, settings))
    return settings


def require_room(planner: Planner, settings: Settings) -> None:
    """Refuses a model so large that the kernel would kill the process.

    Weights that are mapped from the file and not repacked do not count: the system can drop and reread their pages.

    Raises:
        OutOfMemoryError: names required and available bytes, and what would fit.
    """
    model = planner.model(settings)
    if not model.placement.devices and not generates(model):
        return  # its contexts are created on demand, no larger than needed
    memories = planner.memory_of(settings)
    lasting = _lasting_bytes(memories) if generates(model) else [0, *(gpu.weights_bytes for gpu in memories[1:])]
    for memory, required in zip(memories, lasting, strict=True):
        if required > memory.available_bytes:
            how = " besides its mapped weights" if memory is memories[0] else ""
            raise _out_of_memory(planner, settings, memory, required, how)


def _lasting_bytes(memories: Sequence[DeviceMemory]) -> list[int]:
    main, *gpus = memories
    mapped = main.weights_bytes - main.repacked_bytes
    return [main.total_bytes - mapped, *(gpu.total_bytes for gpu in gpus)]


def _largest_n_ctx(planner: Planner, settings: Settings) -> int:
    limit = planner.limits(settings).n_ctx
    n_ctx = largest_n_ctx(settings, planner.memory_of, limit)
    if n_ctx is None:
        smallest = replace(settings, n_ctx=min(CELL_PAD, limit))
        memory = tightest(planner.memory_of(smallest))
        raise _out_of_memory(planner, smallest, memory, memory.total_bytes, " with a tenth to spare")
    return n_ctx


def _out_of_memory(
    planner: Planner, settings: Settings, memory: DeviceMemory, required: int, how: str
) -> OutOfMemoryError:
    place = "" if memory.name == "CPU" else f" on {memory.name}"
    advice = _advice(suggest(settings, planner.memory_of, planner.limits(settings)))
    return OutOfMemoryError(
        f"{shown_name(planner.path)} with n_ctx={settings.n_ctx} needs {bytes_text(required)}{place}{how}, but "
        f"{bytes_text(memory.available_bytes)} is available; {advice}",
        required,
        memory.available_bytes,
    )


def _advice(suggestions: Suggestions) -> str:
    ways = [
        "" if suggestions.n_ctx is None else f"n_ctx={suggestions.n_ctx}",
        "" if suggestions.cache_type is None else f'cache_type="{suggestions.cache_type}"',
        "" if suggestions.outtype is None else f"weights quantised as {suggestions.outtype}",
        "" if suggestions.n_gpu_layers is None else f'n_gpu_layers={suggestions.n_gpu_layers} (or "auto")',
        "" if suggestions.n_cpu_moe is None else f"n_cpu_moe={suggestions.n_cpu_moe}",
    ]
    found = [way for way in ways if way]
    if not found:
        return "no smaller context, cache or quantisation would fit either"
    return f"what fits: {', or '.join(found)}"

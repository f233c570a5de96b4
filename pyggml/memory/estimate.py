"""Estimates of the memory that a model needs, and suggestions if it does not fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyggml._core.fields import option_class, shared, takes
from pyggml._core.html_forms import HTMLReady, Section
from pyggml._core.json_forms import JSONReady
from pyggml._native.placement import ALL, resolve_placement
from pyggml._native.rope_effect import require_rope_effect
from pyggml.cache import display_name
from pyggml.errors import OutOfMemoryError
from pyggml.generation.engine import default_prefix_cache_bytes
from pyggml.memory.draft import draft_planner
from pyggml.memory.llm_context import checked_n_ctx, generates
from pyggml.memory.planner import Planner
from pyggml.memory.search import (
    CELL_PAD,
    DeviceMemory,
    ResolvedOptions,
    Suggestions,
    largest_n_ctx,
    place_layers,
    suggest,
    tightest,
)
from pyggml.options import EstimateOptions, MemoryOptions
from pyggml.remote import connected
from pyggml.source import identify
from pyggml.units import bytes_text, counted

__all__ = ["DeviceMemory", "MemoryEstimate", "Suggestions", "estimate", "require_memory", "resolve"]


@option_class
@dataclass(frozen=True, kw_only=True)
class MemoryEstimate(HTMLReady, ResolvedOptions, JSONReady):
    """The memory that a model and its context need, as planned by the engine without loading the weights.

    ``print`` and notebooks show a table with a column for each device, and whether the model fits.

    Its other attributes are those of :class:`~pyggml.memory.search.ResolvedOptions`.

    Attributes:
        devices: main memory first, then the GPUs.
        suggestions: changes that would make the model fit.
        prefix_cache_bytes: the option of :func:`pyggml.load`.
        prefix_cache_limit_bytes: most bytes of main memory for evicted cells and checkpoints of the prefix cache, in
            addition to the sizes of the devices. It grows with use, so it does not count for ``fits``. Without
            ``prefix_cache_bytes``, it depends on the memory available when the model is loaded.
    """

    devices: tuple[DeviceMemory, ...]
    suggestions: Suggestions
    prefix_cache_bytes: int | None = None
    prefix_cache_limit_bytes: int = 0

    _derived = ("weights_bytes", "cache_bytes", "compute_bytes", "total_bytes", "available_bytes", "fits")

    @property
    def weights_bytes(self) -> int:
        """Size of the weights, summed over all devices like the properties below."""
        return sum(device.weights_bytes for device in self.devices)

    @property
    def cache_bytes(self) -> int:
        """Size of the KV cache, the recurrent states and their metadata."""
        return sum(device.cache_bytes for device in self.devices)

    @property
    def compute_bytes(self) -> int:
        """Size of the compute buffers and outputs."""
        return sum(device.compute_bytes for device in self.devices)

    @property
    def total_bytes(self) -> int:
        """Required memory, including the vocabulary."""
        return sum(device.total_bytes for device in self.devices)

    @property
    def available_bytes(self) -> int:
        """Memory available on all devices."""
        return sum(device.available_bytes for device in self.devices)

    @property
    def resident_bytes(self) -> int:
        """Growth of the process's resident memory, including mapped originals of repacked weights."""
        return self.devices[0].total_bytes + self.devices[0].originals_bytes

    @property
    def fits(self) -> bool:
        """True if every device has enough memory."""
        return all(device.fits for device in self.devices)

    @property
    def advice(self) -> str:
        """The suggestions as text."""
        return _advice(self.suggestions)

    @property
    def title(self) -> str:
        """The weights' type, if they are converted, the cache's size and type, and the number of requests."""
        weights = "" if self.outtype == "auto" else f" as {self.outtype}"
        types = dict.fromkeys((self.type_k or self.cache_type, self.type_v or self.cache_type))
        requests = counted(self.n_parallel, "request")
        return f"Memory{weights}, {self.n_ctx:,} cells of {'/'.join(types)} for {requests}"

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The table as text: names of sizes, each with the sizes of all devices."""
        names = ("weights", "cache", "compute", "vocabulary", "total", "available")
        return tuple(
            (name, *(bytes_text(getattr(device, f"{name}_bytes")) for device in self.devices)) for name in names
        )

    @property
    def verdict(self) -> str:
        """The text "yes" if the model fits, else "no" with the missing memory of each device."""
        lacking = [
            f"{bytes_text(each.total_bytes - each.available_bytes)} on {each.name}"
            for each in self.devices
            if not each.fits
        ]
        return f"no: {', '.join(lacking)} too little" if lacking else "yes"

    def _html_sections(self) -> Iterator[Section]:
        yield Section(self.title, rows=self.rows, columns=tuple(device.name for device in self.devices))
        yield Section(rows=self._facts())

    @property
    def prefix_cache_limit(self) -> str:
        """The limit of the prefix cache as text."""
        n_bytes = self.prefix_cache_limit_bytes
        return f"up to {bytes_text(n_bytes)} more, with use" if n_bytes else "none"

    def _facts(self) -> tuple[tuple[str, str], ...]:
        facts = ("prefix cache", self.prefix_cache_limit), ("fits", self.verdict)
        return (*facts, *(() if self.fits else (("to fit", self.advice),)))

    def __str__(self) -> str:
        rows = [("", *(device.name for device in self.devices)), *self.rows]
        table = [f"  {name:12}" + "".join(f"{size:>12}" for size in sizes) for name, *sizes in rows]
        return "\n".join([self.title, *table, *(f"  {name:12}  {text}" for name, text in self._facts())])


@takes(EstimateOptions)
def estimate(options: EstimateOptions) -> MemoryEstimate:  # noqa: D417
    """Estimate the memory that :func:`pyggml.load` needs with these arguments.

    Args:
        source: ... A directory is not imported. None: the model that ships with pyggml.
        n_ctx: ... None: as for :func:`pyggml.load`.
        outtype: ... "auto": no conversion.

    Raises:
        ModelNotFoundError, ModelLoadError, UnsupportedArchitectureError: the file or directory cannot be loaded.
        DeviceError: there is no such device, or a host cannot be used.
        HostLostError: the connection to a host was lost.
        InvalidParameterError: an argument is out of range.
        OutOfMemoryError: with ``n_ctx="auto"``, not even the smallest context fits.
    """
    with (
        connected(options.rpc, options.rpc_key) as devices_of_hosts,
        Planner(
            identify(options.source),
            resolve_placement(options, devices_of_hosts),
            draft_planner(options, devices_of_hosts),
        ) as planner,
    ):
        settings = resolve(planner, options, options.outtype)
        devices = planner.memory_of(settings)
        limit = options.prefix_cache_bytes
        if not generates(planner.model(settings)):
            limit = 0
        elif limit is None:
            limit = default_prefix_cache_bytes(devices[0].available_bytes)
        return MemoryEstimate(
            **vars(settings),
            devices=devices,
            suggestions=suggest(settings, planner.memory_of, planner.limits(settings)),
            prefix_cache_bytes=options.prefix_cache_bytes,
            prefix_cache_limit_bytes=limit,
        )


def resolve(planner: Planner, options: MemoryOptions, outtype: str = "auto") -> ResolvedOptions:
    """Resolve "auto" and defaults for a model.

    If n_ctx and n_gpu_layers are both "auto", layers are placed first, assuming the default n_ctx, and n_ctx is then
    maximised. n_gpu_layers="auto" also chooses n_cpu_moe, unless that is given.

    Args:
        planner: plans the model's memory.
        options: the options, perhaps "auto".
        outtype: type that the weights are converted to; "auto": none.

    Raises:
        InferError: as :func:`estimate`.
    """
    n_ctx, n_gpu_layers, n_cpu_moe = options.n_ctx, options.n_gpu_layers, options.n_cpu_moe
    model = planner.model(outtype=outtype)
    require_rope_effect(model, options)
    decided = {
        "n_ctx": checked_n_ctx(model, None if n_ctx == "auto" else n_ctx),
        "n_gpu_layers": n_gpu_layers if isinstance(n_gpu_layers, int) else ALL,
        "n_cpu_moe": model.n_layer if n_cpu_moe == "all" else min(n_cpu_moe or 0, model.n_layer),
        "outtype": outtype,
    }
    settings = ResolvedOptions(**{**shared(options, ResolvedOptions), **decided})
    if n_gpu_layers == "auto":
        n_layers = planner.limits(settings).n_layers
        settings = place_layers(settings, planner.memory_of, n_layers, move_experts=n_cpu_moe is None)
    if n_ctx == "auto":
        settings = replace(settings, n_ctx=_largest_n_ctx(planner, settings))
    return settings


def require_memory(planner: Planner, settings: ResolvedOptions) -> None:
    """Check that a model fits, so that the kernel does not kill the process.

    Weights that are mapped from the file and not repacked do not count, because the kernel can evict their pages.

    Args:
        planner: plans the model's memory.
        settings: the options, without "auto".

    Raises:
        OutOfMemoryError: it does not fit; the message contains the sizes and suggestions.
    """
    model = planner.model(settings)
    if not model.placement.devices and not generates(model):
        return  # its contexts are created on demand, as small as possible
    memories = planner.memory_of(settings)
    main, *gpus = memories
    if generates(model):
        mapped = main.weights_bytes - main.repacked_bytes
        needed = [main.total_bytes - mapped, *(gpu.total_bytes for gpu in gpus)]
    else:
        needed = [0, *(gpu.weights_bytes for gpu in gpus)]
    for memory, required in zip(memories, needed, strict=True):
        if required > memory.available_bytes:
            detail = " besides its mapped weights" if memory is main else ""
            raise _out_of_memory(planner, settings, memory, required, detail)


def _largest_n_ctx(planner: Planner, settings: ResolvedOptions) -> int:
    limit = planner.limits(settings).n_ctx
    n_ctx = largest_n_ctx(settings, planner.memory_of, limit)
    if n_ctx is None:
        smallest = replace(settings, n_ctx=min(CELL_PAD, limit))
        memory = tightest(planner.memory_of(smallest))
        raise _out_of_memory(planner, smallest, memory, memory.total_bytes, " plus 10% headroom")
    return n_ctx


def _out_of_memory(
    planner: Planner, settings: ResolvedOptions, memory: DeviceMemory, required: int, detail: str
) -> OutOfMemoryError:
    where = "" if memory.name == "CPU" else f" on {memory.name}"
    advice = _advice(suggest(settings, planner.memory_of, planner.limits(settings)))
    return OutOfMemoryError(
        f"{display_name(planner.path)} with n_ctx={settings.n_ctx} needs {bytes_text(required)}{where}{detail}, but "
        f"{bytes_text(memory.available_bytes)} is available; {advice}",
        required,
        memory.available_bytes,
    )


def _advice(suggestions: Suggestions) -> str:
    forms = {
        "n_ctx": "n_ctx={}",
        "cache_type": 'cache_type="{}"',
        "outtype": "weights quantised to {}",
        "n_gpu_layers": 'n_gpu_layers={} (or "auto")',
        "n_cpu_moe": "n_cpu_moe={}",
    }
    changes = {form: getattr(suggestions, name) for name, form in forms.items()}
    found = ", or ".join(form.format(value) for form, value in changes.items() if value is not None)
    return f"use {found}" if found else "no smaller context, cache or quantisation would fit either"

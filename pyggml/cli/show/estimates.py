"""An estimate of a model's memory, for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pyggml.cli.show.tables import columns, facts, heading, print_all
from pyggml.units import bytes_text, counted

if TYPE_CHECKING:
    from pyggml import DeviceMemory, MemoryEstimate


def show(estimate: MemoryEstimate, console: Console) -> None:
    """Prints all of it."""
    print_all(console, _parts(estimate))


def _parts(estimate: MemoryEstimate) -> Iterator[RenderableType]:
    weights = "" if estimate.outtype == "auto" else f" as {estimate.outtype}"
    requests = counted(estimate.n_parallel, "request")
    yield heading(f"Memory{weights}, {estimate.n_ctx:,} cells of {estimate.cache_type} for {requests}")
    yield columns([device.name for device in estimate.devices], list(_memory(estimate.devices)))
    yield facts([("fits", _verdict(estimate)), *_suggestions(estimate)])


def _memory(devices: tuple[DeviceMemory, ...]) -> Iterator[tuple[str, list[str]]]:
    yield "weights", [bytes_text(device.weights_bytes) for device in devices]
    yield "cache", [bytes_text(device.cache_bytes) for device in devices]
    yield "compute", [bytes_text(device.compute_bytes) for device in devices]
    yield "vocabulary", [bytes_text(device.vocabulary_bytes) for device in devices]
    yield "total", [bytes_text(device.total_bytes) for device in devices]
    yield "available", [bytes_text(device.available_bytes) for device in devices]


def _verdict(estimate: MemoryEstimate) -> Text:
    lacking = [device for device in estimate.devices if not device.fits]
    if not lacking:
        return Text("yes", style="green")
    missing = ", ".join(f"{bytes_text(each.total_bytes - each.available_bytes)} on {each.name}" for each in lacking)
    return Text(f"no: {missing} too little", style="bold red")


def _suggestions(estimate: MemoryEstimate) -> Iterator[tuple[str, str]]:
    """What would fit if only that were changed, with a tenth of the memory to spare."""
    found = estimate.suggestions
    yield "longest context", "none" if found.n_ctx is None else f"{found.n_ctx:,} cells (--n-ctx {found.n_ctx})"
    if found.cache_type is not None:
        yield "smaller cache", f"fits with --cache-type {found.cache_type}"
    if found.outtype is not None:
        yield "smaller weights", f"fit with --outtype {found.outtype}"
    if found.n_gpu_layers is not None:
        yield "on the GPU", f"{counted(found.n_gpu_layers, 'layer')} (--n-gpu-layers {found.n_gpu_layers})"
    if not estimate.fits and (found.n_ctx, found.cache_type, found.outtype) == (None, None, None):
        yield "otherwise", "no smaller context, cache or weights would fit either"

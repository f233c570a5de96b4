"""Model reports and memory estimates on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pyggml.cli.program import with_option_names
from pyggml.cli.show.tables import bars, columns, facts, heading, print_all
from pyggml.units import bytes_text, counted

if TYPE_CHECKING:
    from pyggml import DeviceMemory, MemoryEstimate, ModelReport, ReportSection

_STYLES = {"error": "bold red", "warning": "yellow", "No problems found.": "green"}


def print_report(report: ModelReport, console: Console) -> None:
    """Print a model report: the library's sections, with bars and colours."""
    first, *others = report.sections()
    colours = itertools.cycle(("cyan", "magenta"))
    print_all(
        console, [*_section(first, colours), *(part for each in others for part in ("", *_section(each, colours)))]
    )


def _section(section: ReportSection, colours: Iterator[str]) -> Iterator[RenderableType]:
    yield Text(section.title, style=_STYLES.get(section.title, "bold"))
    if section.shares:
        yield bars([(share.name, share.n_bytes) for share in section.shares], next(colours))
    if section.facts:
        yield facts((Text(name, _STYLES.get(name, "dim")), _with_dim_code(text)) for name, text in section.facts)


def _with_dim_code(text: str) -> Text:
    """Dim the error code at the end of a problem's message."""
    shown = Text(with_option_names(text))
    shown.highlight_regex(r" \[[a-z-]+\]$", "dim")
    return shown


def print_estimate(estimate: MemoryEstimate, console: Console) -> None:
    """Print a memory estimate: a table with a column per device, the verdict and suggestions."""
    weights = "" if estimate.outtype == "auto" else f" as {estimate.outtype}"
    requests = counted(estimate.n_parallel, "request")
    print_all(
        console,
        [
            heading(f"Memory{weights}, {estimate.n_ctx:,} cells of {estimate.cache_type} for {requests}"),
            columns([device.name for device in estimate.devices], list(_memory(estimate.devices))),
            facts([("fits", _verdict(estimate)), *_suggestions(estimate)]),
        ],
    )


def _memory(devices: tuple[DeviceMemory, ...]) -> Iterator[tuple[str, list[str]]]:
    for name in ("weights", "cache", "compute", "vocabulary", "total", "available"):
        yield name, [bytes_text(getattr(device, f"{name}_bytes")) for device in devices]


def _verdict(estimate: MemoryEstimate) -> Text:
    lacking = [device for device in estimate.devices if not device.fits]
    if not lacking:
        return Text("yes", style="green")
    missing = ", ".join(f"{bytes_text(each.total_bytes - each.available_bytes)} on {each.name}" for each in lacking)
    return Text(f"no: {missing} too little", style="bold red")


def _suggestions(estimate: MemoryEstimate) -> Iterator[tuple[str, str]]:
    """Suggest single changes that would fit, with a tenth of the memory to spare."""
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

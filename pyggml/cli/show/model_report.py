"""Model reports and memory estimates on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pyggml.cli.program import with_option_names
from pyggml.cli.show.tables import bars, columns, facts, print_all
from pyggml.units import bytes_text, counted

if TYPE_CHECKING:
    from pyggml import MemoryEstimate, ModelReport, ReportSection

_STYLES = {"error": "bold red", "warning": "yellow", "No problems found.": "green"}


def print_report(report: ModelReport, console: Console) -> None:
    """Print a model report: the library's sections, with bars and colours."""
    colours = itertools.cycle(("cyan", "magenta"))
    _, *parts = [part for each in report.sections() for part in ("", *_section(each, colours))]
    print_all(console, parts)


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
    types = dict.fromkeys((estimate.type_k or estimate.cache_type, estimate.type_v or estimate.cache_type))
    names = ("weights", "cache", "compute", "vocabulary", "total", "available")
    memory = [(name, [bytes_text(getattr(each, f"{name}_bytes")) for each in estimate.devices]) for name in names]
    print_all(
        console,
        [
            Text(f"\nMemory{weights}, {estimate.n_ctx:,} cells of {'/'.join(types)} for {requests}", "bold"),
            columns([device.name for device in estimate.devices], memory),
            facts([("fits", _verdict(estimate)), *_suggestions(estimate)]),
        ],
    )


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

"""Model reports and memory estimates on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pyggml.cli.program import with_option_names
from pyggml.cli.show.tables import bars, columns, facts, print_all
from pyggml.units import counted

if TYPE_CHECKING:
    from pyggml import AdapterReport, MemoryEstimate, ModelReport, ReportSection

_STYLES = {"error": "bold red", "warning": "yellow", "No problems found.": "green"}


def print_report(report: ModelReport, console: Console) -> None:
    """Print a model report: the library's sections, with bars and colours."""
    colours = itertools.cycle(("cyan", "magenta"))
    _, *parts = [part for each in report.sections() for part in ("", *_section(each, colours))]
    print_all(console, parts)


def print_adapter(report: AdapterReport, console: Console) -> None:
    """Print the report on an adapter."""
    rows = facts((Text(name, "dim"), Text(text)) for name, text in report.facts)
    print_all(console, [Text(report.title, "bold"), rows])


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
    verdict = Text(estimate.verdict, "green" if estimate.fits else "bold red")
    print_all(
        console,
        [
            Text(f"\n{estimate.title}", "bold"),
            columns([device.name for device in estimate.devices], ((name, sizes) for name, *sizes in estimate.rows)),
            facts([("prefix cache", estimate.prefix_cache_limit), ("fits", verdict), *_suggestions(estimate)]),
        ],
    )


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

"""A model report on a terminal: the library's own sections, with bars and colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pyggml.cli.program import in_words
from pyggml.cli.show.tables import bars, facts, print_all

if TYPE_CHECKING:
    from pyggml import ModelReport, ReportSection

_STYLES = {"error": "bold red", "warning": "yellow", "No problems found.": "green"}


def show(report: ModelReport, console: Console) -> None:
    """Prints all of it."""
    first, *others = report.sections()
    colours = itertools.cycle(("cyan", "magenta"))
    print_all(console, [*_parts(first, colours), *(part for each in others for part in ("", *_parts(each, colours)))])


def _parts(section: ReportSection, colours: Iterator[str]) -> Iterator[RenderableType]:
    yield Text(section.title, style=_STYLES.get(section.title, "bold"))
    if section.shares:
        yield bars([(share.name, share.n_bytes) for share in section.shares], next(colours))
    if section.facts:
        yield facts((Text(name, _STYLES.get(name, "dim")), _with_dim_code(text)) for name, text in section.facts)


def _with_dim_code(text: str) -> Text:
    """The text; the code that ends the message of a problem does not stand out."""
    shown = Text(in_words(text))
    shown.highlight_regex(r" \[[a-z-]+\]$", "dim")
    return shown

"""Tables, headings and bars of any width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pyggml.units import bytes_text, percent_text

_BAR_WIDTH = 48


def print_all(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print parts without the trailing spaces that rich adds to lines."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def facts(rows: Iterable[tuple[str | Text, str | Text]]) -> RenderableType:
    """Return a table of names and values."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return _indented(table)


def bars(rows: Sequence[tuple[str, int]], colour: str) -> RenderableType:
    """Return a bar chart of named sizes in bytes, with their shares of the total."""
    total = sum(n_bytes for _, n_bytes in rows) or 1
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1)
    for name, n_bytes in rows:
        bar = Bar(total, 0, max(n_bytes, total / (8 * _BAR_WIDTH)) if n_bytes else 0, color=colour, width=_BAR_WIDTH)
        table.add_row(name, percent_text(n_bytes / total), bytes_text(n_bytes), bar)
    return _indented(table)


def columns(names: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> RenderableType:
    """Return a table of a few columns of short texts."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    for _ in names:
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", *(Text(name, style="bold") for name in names))
    for name, texts in rows:
        table.add_row(name, *texts)
    return _indented(table)


def _indented(table: Table) -> RenderableType:
    return Padding(table, (0, 0, 0, 2))

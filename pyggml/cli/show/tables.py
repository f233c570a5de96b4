"""What tables are made of, at any width and from any text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_BAR_WIDTH = 48


def plain(text: object) -> str:
    """Text out of a file, which may hold what a terminal would obey or colour: as letters."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(text))


def ranges(numbers: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` is "0-2, 5"; ascending."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def print_all(console: Console, parts: Iterable[RenderableType]) -> None:
    """Prints these, without the spaces that rich fills lines with."""
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def heading(text: str) -> Text:
    """Stands above a table."""
    return Text(f"\n{text}", style="bold")


def facts(rows: Iterable[tuple[str | Text, str | Text]]) -> RenderableType:
    """A name and what there is to say about it, in each row; rows about which there is nothing are left out."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, Text(plain(value)) if isinstance(value, str) else value)
    return _indented(table)


def bars(rows: Sequence[tuple[str, float, str]], colour: str) -> RenderableType:
    """A bar for each of several parts of a whole.

    Args:
        rows: name, size, and the size in words.
        colour: of the bars.
    """
    total = sum(size for _, size, _ in rows) or 1
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1)
    for name, size, words in rows:
        bar = Bar(total, 0, max(size, total / (8 * _BAR_WIDTH)) if size else 0, color=colour, width=_BAR_WIDTH)
        table.add_row(plain(name), _percent(size / total), words, bar)
    return _indented(table)


def columns(names: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> RenderableType:
    """A table of a few columns of short texts."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    for _ in names:
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", *(Text(plain(name), style="bold") for name in names))
    for name, texts in rows:
        table.add_row(name, *texts)
    return _indented(table)


def _percent(share: float) -> str:
    if 0 < share < 0.005:
        return "<1%"
    return f"{100 * share:.0f}%"


def _indented(table: Table) -> RenderableType:
    return Padding(table, (0, 0, 0, 2))

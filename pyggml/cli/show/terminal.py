"""What commands show to a person: tables and progress on a terminal, plain text anywhere else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pyggml.units import scaled

_ENDLESS = 10_000  # columns

if TYPE_CHECKING:
    from rich.console import Console

#: Prints what a program may read in place of what a person may.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def console(*, stderr: bool = False) -> Console:
    """Where tables go. It has colours on a terminal only, and none with NO_COLOR; elsewhere no line is ever cut."""
    from rich.console import Console

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, width=None if is_terminal or "COLUMNS" in os.environ else _ENDLESS)


def print_json(value: Any) -> None:
    """Prints what ``json`` can write; paths and the like as their text."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


@contextmanager
def progress(what: str, n_units: float | None = None, unit: str = "B") -> Iterator[Callable[[float], None]]:
    """A bar with rate and time left on one line of standard error where that is a terminal, else nothing.

    Args:
        what: is done; stands before the bar.
        n_units: that all of it is, for the rate; None: the rate is not shown.
        unit: of which.

    Yields:
        What is to be called with the part that is done, 0 to 1.
    """
    if not _has_bars():
        yield lambda _part: None
        return
    from rich.constrain import Constrain
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    terminal = console(stderr=True)

    class Line(Progress):
        # The terminal echoes ^C behind it, which without room there would begin a new line and leave this one.
        def get_renderable(self) -> Constrain:
            return Constrain(super().get_renderable(), terminal.width - len("^C"))

    columns = [
        TextColumn("{task.description}", markup=False),  # it may be the name of a file
        BarColumn(table_column=Column(ratio=1, max_width=40)),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    ]
    with Line(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task(what, total=1.0, rate="")

        def report(part: float) -> None:
            speed = bar.tasks[task].speed
            bar.update(task, completed=part, rate=f"{scaled(speed * n_units)}{unit}/s" if speed and n_units else "")

        yield report


def _has_bars() -> bool:
    """Whether standard error is a terminal that can erase a line again."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")

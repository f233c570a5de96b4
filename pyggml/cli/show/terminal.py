"""Console, JSON output and progress bars."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pyggml.units import scaled

#: Console width at which no line is cut.
ENDLESS = 10_000

if TYPE_CHECKING:
    from rich.console import Console

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def console(*, stderr: bool = False) -> Console:
    """Return a console for tables: with colours on a terminal unless NO_COLOR is set, else without cutting lines."""
    from rich.console import Console

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, width=None if is_terminal or "COLUMNS" in os.environ else ENDLESS)


def print_json(value: Any) -> None:
    """Print a value as JSON, with other types such as paths as strings."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


@contextmanager
def progress(what: str, n_units: float | None = None, unit: str = "B") -> Iterator[Callable[[float], None]]:
    """Show a progress bar with time left on standard error, if that is a terminal that can erase a line.

    With ``n_units`` of work in total, it also shows the rate. Yields a function that reports progress as a fraction.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        yield lambda _part: None
        return
    from rich.constrain import Constrain
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    terminal = console(stderr=True)

    class Line(Progress):
        # Leave space for the ^C that the terminal echoes: a wrapped line could not be erased.
        def get_renderable(self) -> Constrain:
            return Constrain(super().get_renderable(), terminal.width - len("^C"))

    columns = [
        TextColumn("{task.description}", markup=False),  # may contain a file name
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

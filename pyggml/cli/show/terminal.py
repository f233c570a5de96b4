"""How commands show things: tables and progress on a terminal, plain text anywhere else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pyggml.units import scaled

#: Columns, where no line is to be cut.
ENDLESS = 10_000

if TYPE_CHECKING:
    from rich.console import Console

#: Prints for a program instead of a person.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def console(*, stderr: bool = False) -> Console:
    """Where tables go. Only a terminal gets colours, unless NO_COLOR is set; anywhere else lines are never cut."""
    from rich.console import Console

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, width=None if is_terminal or "COLUMNS" in os.environ else ENDLESS)


def print_json(value: Any) -> None:
    """Prints a value as JSON; paths and the like become texts."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


@contextmanager
def progress(what: str, n_units: float | None = None, unit: str = "B") -> Iterator[Callable[[float], None]]:
    """A bar with rate and time left, on one line of standard error; nothing if that is not a terminal.

    Args:
        what: the name of the work, which stands before the bar.
        n_units: how much there is to do, for the rate; None: no rate is shown.
        unit: of ``n_units``.

    Yields:
        A function to call with the part that is done, 0 to 1.
    """
    if not _has_bars():
        yield lambda _part: None
        return
    from rich.constrain import Constrain
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    terminal = console(stderr=True)

    class Line(Progress):
        # The terminal echoes ^C after it, which would begin a new line if there were no room, and leave this one there.
        def get_renderable(self) -> Constrain:
            return Constrain(super().get_renderable(), terminal.width - len("^C"))

    columns = [
        TextColumn("{task.description}", markup=False),  # it may contain the name of a file
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

"""What commands show to a person: tables and progress on a terminal, plain text anywhere else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

#: Prints what a program may read in place of what a person may.
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def console(*, stderr: bool = False) -> Console:
    """Where tables go. It has colours on a terminal only, and none with NO_COLOR."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def print_json(value: Any) -> None:
    """Prints what ``json`` can write; paths and the like as their text."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


@contextmanager
def progress(what: str, n_bytes: int | None = None) -> Iterator[Callable[[float], None]]:
    """A bar with rate and time left, on standard error where that is a terminal, else nothing.

    Args:
        what: is done; stands before the bar.
        n_bytes: that all of it is, if known: the rate is then in bytes per second.

    Yields:
        What is to be called with the part that is done, 0 to 1.
    """
    if not _has_bars():
        yield lambda _part: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    rate = [DownloadColumn(), TransferSpeedColumn()] if n_bytes else [TaskProgressColumn(show_speed=True)]
    columns = [TextColumn("{task.description}"), BarColumn(), *rate, TimeRemainingColumn()]
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=n_bytes or 1.0)
        yield lambda part: bar.update(task, completed=part * (n_bytes or 1.0))


def _has_bars() -> bool:
    """Whether standard error is a terminal that can erase a line again."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")

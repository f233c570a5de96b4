"""Progress bar and summary of commands that write a model file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from pyggml.cli.show.terminal import print_json, progress
from pyggml.units import bytes_text, count_text, seconds_text

if TYPE_CHECKING:
    from pyggml import Conversion


def write_with_progress(
    what: str,
    n_bytes: int | None,
    write: Callable[[Callable[[float], None]], Conversion],
    *,
    as_json: bool,
    dry_run: bool = False,
) -> None:
    """Write a file with a progress bar for ``n_bytes`` of input, and print a summary.

    ``write`` is called with a function that reports progress as a fraction; in a dry run it writes no file.
    """
    start_s = time.monotonic()
    with progress(what, n_bytes) as report:
        done = write(report)
    if as_json:
        print_json(done.to_dict())
        return
    ending = "nothing was written" if dry_run else f"in {seconds_text(time.monotonic() - start_s)}"
    weights = f"{count_text(done.n_params)} weights of {done.bits_per_weight:.3g} bits each"
    click.echo(f"{done.path}: {done.architecture}, {weights}, {bytes_text(done.n_bytes)}, {ending}")
    click.echo(f"tensors: {', '.join(f'{n} {name}' for name, n in done.types.items())}")
    for note in done.notes:
        click.echo(f"note: {note}")

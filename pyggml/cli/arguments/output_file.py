"""Output files of commands: checked before the work starts, and not overwritten by default."""

from __future__ import annotations

import os
from pathlib import Path

import click

force_option = click.option("--force", is_flag=True, help="Replace OUT if it exists.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be written, without writing it.")


def output_file(out: str, *sources: str | None, force: bool) -> Path:
    """Check that a command may write a file, and return its path.

    Input files, the ``sources``, are never overwritten, and other files only with ``force``.
    """
    path = Path(out)
    if path.is_dir():
        raise click.ClickException(f"{path} is a directory: name a file in it")
    if not path.parent.is_dir():
        raise click.ClickException(f"there is no directory {path.parent} to write {path.name} in")
    if not os.access(path.parent, os.W_OK):
        raise click.ClickException(f"no permission to write in {path.parent}")
    if any(_is_same(path, source) for source in sources if source is not None):
        raise click.ClickException(f"{path} is also an input: name another output file")
    if os.path.exists(path) and not force:  # noqa: PTH110 - a name that is too long does not exist
        raise click.ClickException(f"{path} exists: --force replaces it")
    return path


def _is_same(path: Path, source: str) -> bool:
    try:
        return path.samefile(source)
    except OSError:
        return False

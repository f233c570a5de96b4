"""Files that commands write: checked before the work begins, and never replaced by accident."""

from __future__ import annotations

import os
from pathlib import Path

import click

#: Allows a command to replace an existing file.
force_option = click.option("--force", is_flag=True, help="Replace OUT if it exists.")

#: Makes a command only say what it would write.
dry_run_option = click.option("--dry-run", is_flag=True, help="Write nothing, and show what would be written.")


def output_file(out: str, *sources: str | None, force: bool) -> Path:
    """The path of the file to write, if the command may write it.

    Args:
        out: the path that the user gave.
        sources: files that the command reads, which it must not overwrite.
        force: whether it may overwrite any other file.

    Raises:
        click.ClickException: the file cannot or must not be written.
    """
    path = Path(out)
    if path.is_dir():
        raise click.ClickException(f"{path} is a directory: name the file to write in it")
    if not path.parent.is_dir():
        raise click.ClickException(f"there is no directory {path.parent} to write {path.name} in")
    if not os.access(path.parent, os.W_OK):
        raise click.ClickException(f"no permission to write in {path.parent}")
    if any(_is_same(path, source) for source in sources if source is not None):
        raise click.ClickException(f"{path} is also an input: name another file to write")
    if os.path.exists(path) and not force:  # noqa: PTH110 - a name that is too long does not exist
        raise click.ClickException(f"{path} exists: --force replaces it")
    return path


def _is_same(path: Path, source: str) -> bool:
    try:
        return path.samefile(source)
    except OSError:
        return False

"""``pyggml cache``: the folder of imported models."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

import pyggml
from pyggml.cli.program import Command, CommandGroup
from pyggml.cli.show.terminal import json_option, print_json
from pyggml.units import ago_text, bytes_text, counted

if TYPE_CHECKING:
    from pyggml.importer import CacheEntry


@click.group("cache", cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show the folder in which imported Hugging Face directories are kept.

    PYGGML_CACHE names another folder, PYGGML_CACHE_GB how large it may grow.
    """
    if ctx.invoked_subcommand is None:
        (_print_json if as_json else _print)(pyggml.importer.cache_entries())
    elif as_json:
        raise click.UsageError(f"{ctx.invoked_subcommand} has no --json", ctx)


@command.command("clear", cls=Command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def clear(yes: bool) -> None:
    """Remove all of it. What is needed again is imported again."""
    entries = pyggml.importer.cache_entries()
    if entries and not yes:
        _confirm(entries)
    click.echo(f"{bytes_text(pyggml.importer.clear_cache())} freed")


@command.command("remove", cls=Command, short_help="Remove one model.")
@click.argument("name")
def remove(name: str) -> None:
    """Remove what was imported from directories of that NAME, or the file of that NAME."""
    entries = [entry for entry in pyggml.importer.cache_entries() if name in (entry.model, entry.path.name)]
    if not entries:
        raise click.ClickException(f"nothing called {name} is in {pyggml.importer.cache_dir()}")
    click.echo(f"{bytes_text(sum(map(pyggml.importer.remove_entry, entries)))} freed")


def _confirm(entries: list[CacheEntry]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: --yes removes them", click.get_current_context())
    total = bytes_text(sum(entry.n_bytes for entry in entries))
    if not click.confirm(f"Remove {counted(len(entries), 'model')}, {total}, from {pyggml.importer.cache_dir()}?"):
        raise click.ClickException("nothing was removed")


def _print(entries: list[CacheEntry]) -> None:
    for entry in entries:
        state = "" if entry.is_complete else ", unfinished"
        used = ago_text(time.time() - entry.used)
        click.echo(f"{entry.model}, {entry.outtype or 'GGUF'}, {bytes_text(entry.n_bytes)}, used {used}{state}")
        click.echo(f"  {entry.path.name}")
    total = bytes_text(sum(entry.n_bytes for entry in entries))
    limit = bytes_text(pyggml.importer.cache_limit())
    click.echo(f"{counted(len(entries), 'model')}, {total} of at most {limit}, in {pyggml.importer.cache_dir()}")


def _print_json(entries: list[CacheEntry]) -> None:
    print_json(
        {
            "path": pyggml.importer.cache_dir(),
            "limit_bytes": pyggml.importer.cache_limit(),
            "n_bytes": sum(entry.n_bytes for entry in entries),
            "models": [
                {
                    "path": entry.path,
                    "model": entry.model,
                    "outtype": entry.outtype,
                    "n_bytes": entry.n_bytes,
                    "used": entry.used,
                    "is_complete": entry.is_complete,
                }
                for entry in entries
            ],
        }
    )

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
    from pyggml.cache import CacheEntry


@click.group("cache", cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show the folder in which imported Hugging Face directories are kept.

    PYGGML_CACHE names another folder; PYGGML_CACHE_GB says how many gigabytes it may hold.
    """
    if ctx.invoked_subcommand is None:
        (_print_json if as_json else _print)(pyggml.cache.cache_entries())
    elif as_json:
        raise click.UsageError(f"{ctx.invoked_subcommand} has no --json", ctx)


@command.command("clear", cls=Command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def clear(yes: bool) -> None:
    """Remove all imported models. Those that are needed again are imported again."""
    entries = pyggml.cache.cache_entries()
    if entries and not yes:
        _confirm(entries)
    click.echo(f"{bytes_text(pyggml.cache.clear_cache())} freed")


@command.command("remove", cls=Command, short_help="Remove one model.")
@click.argument("name")
def remove(name: str) -> None:
    """Remove the models imported from directories called NAME, or the file called NAME."""
    entries = [entry for entry in pyggml.cache.cache_entries() if name in (entry.model, entry.path.name)]
    if not entries:
        raise click.ClickException(f"nothing called {name} is in {pyggml.cache.cache_dir()}")
    click.echo(f"{bytes_text(sum(map(pyggml.cache.remove_entry, entries)))} freed")


def _confirm(entries: list[CacheEntry]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(
            "there is nobody to ask: add --yes to remove them",
            click.get_current_context(),
        )
    total = bytes_text(sum(entry.n_bytes for entry in entries))
    if not click.confirm(f"Remove {counted(len(entries), 'model')}, {total}, from {pyggml.cache.cache_dir()}?"):
        raise click.ClickException("nothing was removed")


def _print(entries: list[CacheEntry]) -> None:
    for entry in entries:
        state = "" if entry.is_complete else ", unfinished"
        used = ago_text(time.time() - entry.used)
        click.echo(f"{entry.model}, {entry.outtype or 'GGUF'}, {bytes_text(entry.n_bytes)}, used {used}{state}")
        click.echo(f"  {entry.path.name}")
    total = bytes_text(sum(entry.n_bytes for entry in entries))
    limit = bytes_text(pyggml.cache.cache_limit())
    click.echo(f"{counted(len(entries), 'model')}, {total} of at most {limit}, in {pyggml.cache.cache_dir()}")


def _print_json(entries: list[CacheEntry]) -> None:
    print_json(
        {
            "path": pyggml.cache.cache_dir(),
            "limit_bytes": pyggml.cache.cache_limit(),
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

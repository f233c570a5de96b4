"""``pyggml cache``: the imported and downloaded models on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

import pyggml
from pyggml.cli.command import Command, CommandGroup
from pyggml.cli.show.terminal import json_option, print_json, progress
from pyggml.units import ago_text, bytes_text, counted

if TYPE_CHECKING:
    from pyggml.cache import CacheEntry
    from pyggml.hub import Download


@click.group("cache", cls=CommandGroup, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show, download or remove models on this machine.

    References (hf:org/repo) are downloaded to the shared cache of the Hugging Face hub. Hugging Face directories are
    imported to the folder PYGGML_CACHE, which holds at most PYGGML_CACHE_GB gigabytes.
    """
    if ctx.invoked_subcommand is None:
        _show(as_json)
    elif as_json:
        raise click.UsageError("--json comes after the subcommand: type 'pyggml cache list --json'", ctx)


@command.command("list", cls=Command)
@json_option
def list_models(as_json: bool) -> None:
    """List the models with name, size and last use."""
    _show(as_json)


@command.command("get", cls=Command)
@click.argument("reference", metavar="HF:ORG/REPO[:FILE]")
def get(reference: str) -> None:
    """Download a model from the hub, and print its path.

    Files that are already in the cache are not downloaded again.
    """
    found = reference if pyggml.hub.is_reference(reference) else pyggml.hub.guess_reference(reference)
    if found is None:
        raise click.UsageError(f"{reference} is not a reference to the Hugging Face hub: use hf:org/repo[:file]")
    with progress("downloading") as show:
        path = pyggml.hub.fetch(found, show)
    click.echo(path)


@command.command("rm", cls=Command, short_help="Remove a model.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Remove models. NAME is a name in the list, a repository with all its files, or a file name."""
    freed = 0
    for name in names:
        imports = [entry for entry in pyggml.cache.cache_entries() if name in (entry.model, entry.path.name)]
        downloads = [download for download in pyggml.hub.downloads() if download.matches(name)]
        if not imports and not downloads:
            raise click.ClickException(f"there is no model {name} in the cache: 'pyggml cache list' shows the models")
        freed += sum(map(pyggml.cache.remove_entry, imports)) + sum(map(pyggml.hub.remove_download, downloads))
    click.echo(f"{bytes_text(freed)} freed")


@command.command("clear", cls=Command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def clear(yes: bool) -> None:
    """Remove all imported models, but no downloads. Models are imported again on their next use."""
    entries = pyggml.cache.cache_entries()
    if entries and not yes:
        if not sys.stdin.isatty():
            click.get_current_context().fail("cannot ask for confirmation without a terminal: add --yes")
        if not click.confirm(
            f"Remove {counted(len(entries), 'model')}, {_total(entries)}, from {pyggml.cache.cache_dir()}?"
        ):
            raise click.ClickException("nothing was removed")
    click.echo(f"{bytes_text(pyggml.cache.clear_cache())} freed")


def _show(as_json: bool) -> None:
    entries, downloads = pyggml.cache.cache_entries(), pyggml.hub.downloads()
    folder, limit, shared = pyggml.cache.cache_dir(), pyggml.cache.cache_limit(), pyggml.hub.downloads_dir()
    if as_json:
        imports = _as_json(entries, ("path", "model", "outtype", "n_bytes", "used", "is_complete"))
        others = _as_json(downloads, ("reference", "path", "n_bytes", "used"))
        print_json({"path": folder, "limit_bytes": limit, **imports, "downloads": {"path": shared, **others}})
        return
    for download in downloads:
        click.echo(f"{download.reference}, {_size_and_use(download)}\n  {download.path}")
    if downloads:
        click.echo(f"{counted(len(downloads), 'download')}, {_total(downloads)}, in {shared}\n")
    for entry in entries:
        state = "" if entry.is_complete else ", unfinished"
        click.echo(f"{entry.model}, {entry.outtype or 'GGUF'}, {_size_and_use(entry)}{state}\n  {entry.path.name}")
    click.echo(f"{counted(len(entries), 'import')}, {_total(entries)} of at most {bytes_text(limit)}, in {folder}")


def _size_and_use(model: CacheEntry | Download) -> str:
    return f"{bytes_text(model.n_bytes)}, used {ago_text(time.time() - model.used)}"


def _total(models: Sequence[CacheEntry | Download]) -> str:
    return bytes_text(sum(model.n_bytes for model in models))


def _as_json(models: Sequence[CacheEntry | Download], names: Sequence[str]) -> dict[str, Any]:
    return {
        "n_bytes": sum(model.n_bytes for model in models),
        "models": [{name: getattr(model, name) for name in names} for model in models],
    }

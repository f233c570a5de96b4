"""``pyggml cache``: the models on this machine, imported and downloaded."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

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

    References (hf:org/repo) are downloaded to the cache that all tools of the Hugging Face hub share; Hugging Face
    directories are imported to a folder of pyggml's own, which PYGGML_CACHE names, and which may hold PYGGML_CACHE_GB
    gigabytes.
    """
    if ctx.invoked_subcommand is None:
        _show(as_json)
    elif as_json:
        raise click.UsageError("--json comes after the name: type 'pyggml cache list --json'", ctx)


@command.command("list", cls=Command)
@json_option
def list_models(as_json: bool) -> None:
    """Show what is there: size, last use, and what to type for it."""
    _show(as_json)


@command.command("get", cls=Command)
@click.argument("reference", metavar="HF:ORG/REPO[:FILE]")
def get(reference: str) -> None:
    """Download a model from the hub, and print where it is.

    What is there already is not downloaded again.
    """
    meant = reference if pyggml.hub.is_reference(reference) else pyggml.hub.guess_reference(reference)
    if meant is None:
        raise click.UsageError(f"{reference} is no model of the Hugging Face hub: those are called hf:org/repo[:file]")
    with progress("downloading") as show:
        path = pyggml.hub.fetch(meant, show)
    click.echo(path)


@command.command("rm", cls=Command, short_help="Remove a model.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Remove models: NAME is what the list calls one, a repository with all its files, or the name of a file."""
    freed = 0
    for name in names:
        imports = [entry for entry in pyggml.cache.cache_entries() if name in (entry.model, entry.path.name)]
        downloads = [download for download in pyggml.hub.downloads() if download.matches(name)]
        if not imports and not downloads:
            raise click.ClickException(f"nothing called {name} is there: 'pyggml cache list' shows what is")
        freed += sum(map(pyggml.cache.remove_entry, imports)) + sum(map(pyggml.hub.remove_download, downloads))
    click.echo(f"{bytes_text(freed)} freed")


@command.command("clear", cls=Command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def clear(yes: bool) -> None:
    """Remove all imported models. Those that are needed again are imported again. Downloads stay."""
    entries = pyggml.cache.cache_entries()
    if entries and not yes:
        _confirm(entries)
    click.echo(f"{bytes_text(pyggml.cache.clear_cache())} freed")


def _confirm(entries: list[CacheEntry]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(
            "there is nobody to ask: add --yes to remove them",
            click.get_current_context(),
        )
    total = bytes_text(sum(entry.n_bytes for entry in entries))
    if not click.confirm(f"Remove {counted(len(entries), 'model')}, {total}, from {pyggml.cache.cache_dir()}?"):
        raise click.ClickException("nothing was removed")


def _show(as_json: bool) -> None:
    entries, downloads = pyggml.cache.cache_entries(), pyggml.hub.downloads()
    if as_json:
        print_json(_imports_as_json(entries) | {"downloads": _downloads_as_json(downloads)})
        return
    if downloads:
        _print_downloads(downloads)
    _print_imports(entries)


def _print_downloads(downloads: list[Download]) -> None:
    for download in downloads:
        click.echo(
            f"{download.reference}, {bytes_text(download.n_bytes)}, used {ago_text(time.time() - download.used)}"
        )
        click.echo(f"  {download.path}")
    total = bytes_text(sum(download.n_bytes for download in downloads))
    click.echo(f"{counted(len(downloads), 'download')}, {total}, in {pyggml.hub.downloads_dir()}\n")


def _print_imports(entries: list[CacheEntry]) -> None:
    for entry in entries:
        state = "" if entry.is_complete else ", unfinished"
        used = ago_text(time.time() - entry.used)
        click.echo(f"{entry.model}, {entry.outtype or 'GGUF'}, {bytes_text(entry.n_bytes)}, used {used}{state}")
        click.echo(f"  {entry.path.name}")
    total = bytes_text(sum(entry.n_bytes for entry in entries))
    limit = bytes_text(pyggml.cache.cache_limit())
    click.echo(f"{counted(len(entries), 'import')}, {total} of at most {limit}, in {pyggml.cache.cache_dir()}")


def _imports_as_json(entries: list[CacheEntry]) -> dict[str, object]:
    return {
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


def _downloads_as_json(downloads: list[Download]) -> dict[str, object]:
    return {
        "path": pyggml.hub.downloads_dir(),
        "n_bytes": sum(download.n_bytes for download in downloads),
        "models": [
            {
                "reference": download.reference,
                "path": download.path,
                "n_bytes": download.n_bytes,
                "used": download.used,
            }
            for download in downloads
        ],
    }

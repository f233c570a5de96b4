"""``pyggml quantize``: quantisation of a GGUF file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click

import pyggml
from pyggml.cli.arguments.file_types import TYPES_EPILOG, FileType, imatrix_option, type_override_options
from pyggml.cli.arguments.options import threads_option
from pyggml.cli.arguments.output_file import dry_run_option, force_option, output_file
from pyggml.cli.command import Command
from pyggml.cli.show.conversion import write_with_progress
from pyggml.cli.show.terminal import json_option
from pyggml.options.file_types import FILE_TYPES

_TYPE = FileType(FILE_TYPES)


@click.command("quantize", cls=Command, epilog=TYPES_EPILOG)
@click.argument("source", type=click.Path())
@click.argument("out", metavar="OUT", required=False, type=click.Path())
@click.argument("type", metavar="TYPE", required=False, shell_complete=_TYPE.shell_complete)
@click.option("--outtype", type=_TYPE, metavar="TYPE", help="The same as TYPE.")
@imatrix_option
@type_override_options
@click.option("--requantize", is_flag=True, help="Accept a SOURCE that is already quantised, which loses accuracy.")
@click.option(
    "--merge",
    multiple=True,
    type=click.Path(),
    metavar="ADAPTER",
    help="LoRA adapter to merge into the weights: a GGUF file, a PEFT directory or a reference. May be repeated.",
)
@click.option(
    "--merge-scaled",
    multiple=True,
    type=(click.Path(), float),
    metavar="ADAPTER FACTOR",
    help="The same, with a factor of its change. May be repeated.",
)
@threads_option("Threads that quantise weights.")
@force_option
@dry_run_option
@json_option
def command(
    source: str,
    out: str | None,
    type: str | None,
    *,
    outtype: str | None,
    imatrix: str | None,
    merge: tuple[str, ...],
    merge_scaled: tuple[tuple[str, float], ...],
    force: bool,
    dry_run: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Quantise the weights of the GGUF file SOURCE to TYPE, and write the file OUT.

    SOURCE should have float weights, as `pyggml convert` writes them. OUT appears only when it is complete: an
    interrupted command leaves no file.
    """
    if type is not None and outtype is not None:
        raise click.UsageError("TYPE and --outtype were both given: choose one")
    type = type or outtype
    if dry_run and type is None and out is not None:  # OUT is optional: nothing is written
        out, type = f"{Path(source).stem}-{out.lower()}.gguf", out
    out, type = _out_and_type(source, out, type)
    adapters = [*((adapter, 1.0) for adapter in merge), *merge_scaled]
    target = output_file(out, source, imatrix, *(adapter for adapter, _ in adapters), force=force or dry_run)
    settings |= {"imatrix": imatrix, "merge": _scales(adapters), "dry_run": dry_run}
    write_with_progress(
        "quantising",
        _source_bytes(Path(source)),
        lambda report: pyggml.quantize(source, target, type, progress=report, **settings),
        as_json=as_json,
        dry_run=dry_run,
    )


def _scales(adapters: list[tuple[str, float]]) -> dict[str, float] | None:
    scales = dict(adapters)
    if len(scales) < len(adapters):
        raise click.UsageError("an adapter was given twice: --merge-scaled ADAPTER 2 merges it with twice its strength")
    return scales or None


def _out_and_type(source: str, out: str | None, type: str | None) -> tuple[str, str]:
    """Check the last two arguments. In llama-quantize OUT is optional, and in other tools the type comes first."""
    if out is not None and out.lower() in FILE_TYPES and (type is None or type.lower() not in FILE_TYPES):
        file = type or f"{Path(source).stem}-{out.lower()}.gguf"
        line = shlex.join(["pyggml", "quantize", source, file, out])
        raise click.UsageError(f"{'OUT is missing' if type is None else 'TYPE comes last'}: type '{line}'")
    context = click.get_current_context()
    if out is None or type is None:
        missing, message = ("out", None) if out is None else ("type", TYPES_EPILOG)
        param = next(each for each in context.command.params if each.name == missing)
        raise click.MissingParameter(message, context, param)
    return out, _TYPE.convert(type, None, context)


def _source_bytes(source: Path) -> int | None:
    """Return the size of a file or, if it is the first of a split set, of all files of the set."""
    others = re.sub(r"-00001-of-(\d{5})\.gguf$", r"-*-of-\1.gguf", source.name)
    files = [source] if others == source.name else source.parent.glob(others)
    return sum(file.stat().st_size for file in files if file.is_file()) or None

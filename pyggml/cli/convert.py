"""``pyggml convert``: conversion of a Hugging Face directory to a GGUF file."""

from __future__ import annotations

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
from pyggml.options.file_types import OUTTYPES


@click.command("convert", cls=Command, epilog=TYPES_EPILOG)
@click.argument("directory", type=click.Path())
@click.argument("out", type=click.Path())
@click.argument("type", type=FileType(OUTTYPES), metavar="[TYPE]", required=False)
@click.option(
    "--outtype",
    type=FileType(OUTTYPES),
    metavar="TYPE",
    help="The same as TYPE: type of the weights in OUT; auto keeps their precision.  [default: auto]",
)
@click.option("--lora", is_flag=True, help="DIRECTORY must be that of a LoRA adapter, as peft saves it.")
@click.option(
    "--base",
    type=click.Path(),
    metavar="MODEL",
    help="Model that the adapter was made for: a GGUF file, a directory or a reference. Only its headers are read."
    "  [default: the one that adapter_config.json names]",
)
@imatrix_option
@type_override_options
@threads_option("Threads that quantise weights.")
@force_option
@dry_run_option
@json_option
def command(
    directory: str,
    out: str,
    type: str | None,
    outtype: str | None,
    lora: bool,
    imatrix: str | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Convert the model in a Hugging Face DIRECTORY to the GGUF file OUT.

    DIRECTORY contains config.json, safetensors and a tokenizer, or is a reference to the hub: hf:org/repo. With
    adapter_config.json and adapter_model.safetensors it is a LoRA adapter. OUT appears only when it is complete: an
    interrupted command leaves no file.
    """
    if type is not None and outtype is not None:
        raise click.UsageError("TYPE and --outtype were both given: choose one")
    if lora and not directory.startswith("hf:") and not pyggml.is_adapter(directory):
        raise click.UsageError(f"{directory} is not a LoRA adapter: it has no adapter_config.json")
    name = type or outtype or "auto"
    target = output_file(out, directory, imatrix, force=force or dry_run)
    write_with_progress(
        "converting",
        sum(file.stat().st_size for file in Path(directory).glob("*.safetensors")) or None,
        lambda report: pyggml.convert(directory, target, name, report, imatrix=imatrix, dry_run=dry_run, **settings),
        as_json=as_json,
        dry_run=dry_run,
    )

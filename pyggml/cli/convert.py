"""``pyggml convert``: converts a Hugging Face directory to a GGUF file."""

from __future__ import annotations

from pathlib import Path

import click

import pyggml
from pyggml.cli.arguments.file_types import OUTTYPES, TYPES_EPILOG, imatrix_option, threads_option, type_choice
from pyggml.cli.arguments.output_file import force_option, output_file
from pyggml.cli.command import Command
from pyggml.cli.show.conversion import write_and_show
from pyggml.cli.show.terminal import json_option


@click.command("convert", cls=Command, epilog=TYPES_EPILOG)
@click.argument("directory", type=click.Path())
@click.argument("out", type=click.Path())
@click.option(
    "--outtype",
    type=type_choice(OUTTYPES),
    metavar="TYPE",
    default="auto",
    show_default=True,
    help="Type of the weights in OUT; auto keeps their precision.",
)
@imatrix_option
@threads_option
@force_option
@json_option
def command(
    directory: str, out: str, outtype: str, imatrix: str | None, n_threads: int | None, force: bool, as_json: bool
) -> None:
    """Convert the model in a Hugging Face DIRECTORY to the GGUF file OUT.

    DIRECTORY has config.json, safetensors and a tokenizer, or is a reference to the hub: hf:org/repo. OUT appears only
    when it is complete: if the command is interrupted, it leaves nothing behind.
    """
    target = output_file(out, directory, imatrix, force=force)
    write_and_show(
        "converting",
        _checkpoint_bytes(Path(directory)),
        lambda report: pyggml.convert(directory, target, outtype, report, imatrix=imatrix, n_threads=n_threads),
        as_json=as_json,
    )


def _checkpoint_bytes(directory: Path) -> int | None:
    return sum(file.stat().st_size for file in directory.glob("*.safetensors")) or None

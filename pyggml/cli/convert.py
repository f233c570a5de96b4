"""``pyggml convert``: a Hugging Face directory becomes a GGUF file."""

from __future__ import annotations

from pathlib import Path

import click

import pyggml
from pyggml.cli.arguments.file_types import OUTTYPES, TYPES_EPILOG, type_choice
from pyggml.cli.arguments.output_file import force_option, output_file
from pyggml.cli.program import Command
from pyggml.cli.show.conversion import run_and_tell
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
    help="What the weights become; auto keeps their precision.",
)
@click.option("--imatrix", type=click.Path(), metavar="FILE", help="What matters in the weights: `pyggml imatrix`.")
@click.option("-t", "--n-threads", type=click.IntRange(1, 512), help="Threads that encode. Without it: one per core.")
@force_option
@json_option
def command(
    directory: str, out: str, outtype: str, imatrix: str | None, n_threads: int | None, force: bool, as_json: bool
) -> None:
    """Write the model of a Hugging Face DIRECTORY as the GGUF file OUT.

    DIRECTORY has config.json, safetensors and a tokenizer, or is a reference to the hub: hf:org/repo. OUT appears when
    it is whole: interrupted, the command leaves nothing behind.
    """
    target = output_file(out, directory, imatrix, force=force)
    run_and_tell(
        "converting",
        _checkpoint_bytes(Path(directory)),
        lambda report: pyggml.convert(directory, target, outtype, report, imatrix=imatrix, n_threads=n_threads),
        as_json=as_json,
    )


def _checkpoint_bytes(directory: Path) -> int | None:
    return sum(file.stat().st_size for file in directory.glob("*.safetensors")) or None

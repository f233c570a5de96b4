"""``pyggml imatrix``: importance matrices for ``pyggml quantize``."""

from __future__ import annotations

import time
from typing import Any

import click

import pyggml
from pyggml.cli.arguments.model import model_option
from pyggml.cli.arguments.output_file import force_option, output_file
from pyggml.cli.arguments.text_file import chunk_options, chunk_progress, text_argument, text_source
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import json_option, print_json
from pyggml.units import counted, seconds_text


@click.command("imatrix", cls=Command)
@text_argument
@click.argument("out", type=click.Path())
@model_option
@chunk_options
@click.option("--process-output", is_flag=True, help="Include the output matrix, which most types do not use.")
@click.option(
    "--merge", type=click.Path(), multiple=True, metavar="FILE", help="Add another importance matrix. May be repeated."
)
@force_option
@json_option
def command(
    text: str, out: str, model: str | None, *, merge: tuple[str, ...], force: bool, as_json: bool, **settings: Any
) -> None:
    """Run a model on the file TEXT, and write an importance matrix to OUT.

    `pyggml quantize --imatrix OUT` uses it to make more accurate files, and some types need it. TEXT should be a few
    hundred kilobytes of text that is typical of your use of the model. For standard input, use -.
    """
    source = text_source(text)
    target = output_file(out, text, model, *merge, force=force)
    others = [pyggml.ImportanceMatrix.load(each) for each in merge]
    start_s = time.monotonic()
    with chunk_progress(model, source, **settings) as report:
        matrix = pyggml.compute_imatrix(model, source, progress=report, **settings)
    matrix = pyggml.ImportanceMatrix.merged([*others, matrix]) if others else matrix
    matrix.save(target)
    if as_json:
        sizes = {"n_tensors": len(matrix.entries), "n_chunks": matrix.n_chunks, "chunk_size": matrix.chunk_size}
        print_json({"path": target, **sizes, "datasets": matrix.datasets})
    else:
        read = f"{counted(matrix.n_chunks, 'chunk')} of {matrix.chunk_size} tokens"
        click.echo(
            f"{target}: importances of {counted(len(matrix.entries), 'tensor')}, from {read}, "
            f"in {seconds_text(time.monotonic() - start_s)}"
        )

"""``pyggml imatrix``: importance matrices for ``pyggml quantize``."""

from __future__ import annotations

import time

import click

import pyggml
from pyggml.cli.arguments.model import model_option, print_default_model_notice, print_unused_gpu_notice
from pyggml.cli.arguments.output_file import force_option, output_file
from pyggml.cli.arguments.text_file import chunk_options, progress_total, text_argument, text_source
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import json_option, print_json, progress
from pyggml.units import counted, seconds_text


@click.command("imatrix", cls=Command)
@text_argument
@click.argument("out", type=click.Path())
@model_option
@chunk_options
@click.option("--process-output", is_flag=True, help="Include the output matrix, which most types do not use.")
@click.option(
    "--merge",
    type=click.Path(),
    multiple=True,
    metavar="FILE",
    help="Add the data of another importance matrix. May be repeated.",
)
@force_option
@json_option
def command(
    text: str,
    out: str,
    model: str | None,
    n_ctx: int,
    n_chunks: int | None,
    device: str,
    n_threads: int | None,
    process_output: bool,
    merge: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Run a model on the file TEXT, and write an importance matrix to OUT.

    `pyggml quantize --imatrix OUT` uses it to make more accurate files, and some types need it. TEXT should be a few
    hundred kilobytes of text that is typical of your use of the model. For standard input, use -.
    """
    source = text_source(text)
    target = output_file(out, text, model, *merge, force=force)
    others = [pyggml.ImportanceMatrix.load(each) for each in merge]
    print_default_model_notice(model)
    print_unused_gpu_notice(device)
    start_s = time.monotonic()
    with progress("reading", *progress_total(source, n_chunks, n_ctx)) as report:
        matrix = pyggml.compute_imatrix(
            model,
            source,
            n_ctx=n_ctx,
            n_chunks=n_chunks,
            process_output=process_output,
            device=device,
            n_threads=n_threads,
            progress=report,
        )
    matrix = pyggml.ImportanceMatrix.merged([*others, matrix]) if others else matrix
    matrix.save(target)
    facts = {"n_tensors": len(matrix.entries), "n_chunks": matrix.n_chunks, "chunk_size": matrix.chunk_size}
    if as_json:
        print_json({"path": target, **facts, "datasets": matrix.datasets})
    else:
        read = f"{counted(matrix.n_chunks, 'chunk')} of {matrix.chunk_size} tokens"
        click.echo(
            f"{target}: importances of {counted(len(matrix.entries), 'tensor')}, from {read}, "
            f"in {seconds_text(time.monotonic() - start_s)}"
        )

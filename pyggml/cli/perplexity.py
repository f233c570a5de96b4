"""``pyggml perplexity``: perplexity of a model on a text."""

from __future__ import annotations

import time

import click

import pyggml
from pyggml.cli.arguments.model import model_option, print_default_model_notice, print_unused_gpu_notice
from pyggml.cli.arguments.text_file import chunk_options, progress_total, text_argument, text_source
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import json_option, print_json, progress
from pyggml.units import counted, seconds_text


@click.command("perplexity", cls=Command)
@text_argument
@model_option
@chunk_options
@json_option
def command(
    text: str,
    model: str | None,
    n_ctx: int,
    n_chunks: int | None,
    device: str,
    n_threads: int | None,
    as_json: bool,
) -> None:
    """Measure how well a model predicts the file TEXT. Lower is better, and 1 is perfect.

    The text is split into chunks, and the second half of each chunk is scored, as in llama-perplexity, so that results
    are comparable. Compare only models with the same vocabulary. For standard input, use - as TEXT.
    """
    source = text_source(text)
    print_default_model_notice(model)
    print_unused_gpu_notice(device)
    start_s = time.monotonic()
    with progress("reading", *progress_total(source, n_chunks, n_ctx)) as report:
        found = pyggml.perplexity(
            model, source, n_ctx=n_ctx, n_chunks=n_chunks, device=device, n_threads=n_threads, progress=report
        )
    if as_json:
        print_json(found.to_dict())
    else:
        read = f"{counted(found.n_tokens, 'token')} in {counted(found.n_chunks, 'chunk')} of {found.n_ctx}"
        click.echo(f"{found.value:.4f} ± {found.stderr:.4f}")
        click.echo(f"{read}, in {seconds_text(time.monotonic() - start_s)}", err=True)

"""``pyggml perplexity``: perplexity of a model on a text."""

from __future__ import annotations

import time
from typing import Any

import click

import pyggml
from pyggml.cli.arguments.model import model_option
from pyggml.cli.arguments.text_file import chunk_options, chunk_progress, text_argument, text_source
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import json_option, print_json
from pyggml.units import counted, seconds_text


@click.command("perplexity", cls=Command)
@text_argument
@model_option
@chunk_options
@json_option
def command(text: str, model: str | None, *, as_json: bool, **settings: Any) -> None:
    """Measure how well a model predicts the file TEXT. Lower is better, and 1 is perfect.

    The text is split into chunks, and the second half of each chunk is scored, as in llama-perplexity, so that results
    are comparable. Compare only models with the same vocabulary. For standard input, use - as TEXT.
    """
    source = text_source(text)
    start_s = time.monotonic()
    with chunk_progress(model, source, **settings) as report:
        found = pyggml.perplexity(model, source, progress=report, **settings)
    if as_json:
        print_json(found.to_dict())
    else:
        read = f"{counted(found.n_tokens, 'token')} in {counted(found.n_chunks, 'chunk')} of {found.n_ctx}"
        click.echo(f"{found.value:.4f} ± {found.stderr:.4f}")
        click.echo(f"{read}, in {seconds_text(time.monotonic() - start_s)}", err=True)

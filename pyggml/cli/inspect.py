"""``pyggml inspect``: what a model is."""

from __future__ import annotations

import click

import pyggml
from pyggml.cli.options import say_which
from pyggml.cli.program import Command
from pyggml.cli.terminal import console, json_option, print_json


@click.command("inspect", cls=Command)
@click.argument("model", required=False, type=click.Path())
@json_option
@click.pass_context
def command(ctx: click.Context, model: str | None, as_json: bool) -> None:
    """Show what MODEL is, where its bytes are, and what is wrong with it.

    MODEL is a .gguf file or a Hugging Face directory; only its metadata is read. The exit code is 1 when it cannot be
    used.
    """
    say_which(model)
    report = pyggml.inspect(model)
    if as_json:
        print_json(report.to_dict())
    else:
        from pyggml.cli._report import show

        show(report, console())
    ctx.exit(0 if report.ok else 1)

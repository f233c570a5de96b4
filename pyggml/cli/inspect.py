"""``pyggml inspect``: model report and memory estimate."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

import pyggml
from pyggml.cli.arguments.file_types import TYPES_EPILOG
from pyggml.cli.arguments.model import model_option, print_default_model_notice, single_model
from pyggml.cli.arguments.options import estimate_options
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import console, json_option, print_json, progress


@click.command("inspect", cls=Command, epilog=TYPES_EPILOG)
@click.argument("source", metavar="[MODEL]", required=False, type=click.Path())
@model_option
@click.option(
    "--base",
    type=click.Path(),
    metavar="MODEL",
    help="For a LoRA adapter: check it against the model that it is for.",
)
@click.option("--estimate", is_flag=True, help="Also estimate the memory it needs. Implied by the options below.")
@estimate_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str | None,
    model: str | None,
    base: str | None,
    estimate: bool,
    outtype: tuple[str, ...],
    as_json: bool,
    **settings: Any,
) -> None:
    """Show a report on MODEL: its architecture, size and problems, and whether it fits in memory.

    MODEL is a .gguf file or a Hugging Face directory, of which only the metadata is read, or a reference to the hub
    (hf:org/repo), which is downloaded first. The default is the small model that ships with pyggml. The exit code is
    1 if the model cannot be loaded.

    MODEL may also be a LoRA adapter, a GGUF file or a PEFT directory, all of which is read.
    """
    settings = {name: value for name, value in settings.items() if value is not None}
    model = single_model(source, model)
    if model is not None and pyggml.is_adapter(model):
        _inspect_adapter(model, base, as_json=as_json)
        return
    if base is not None:
        raise click.UsageError("--base is for LoRA adapters, and MODEL is not one")
    print_default_model_notice(model, "MODEL")
    with progress("downloading") if str(model).startswith("hf:") else nullcontext() as show:
        report = pyggml.inspect(model, show)
    wants_estimate = estimate or bool(settings) or bool(outtype)
    outtypes = outtype or ("auto",) if wants_estimate and report.plan.loads else ()
    estimates = [report.estimate(outtype=each, **settings) for each in outtypes]
    if as_json:
        print_json(report.to_dict() | ({"estimates": [each.to_dict() for each in estimates]} if wants_estimate else {}))
    else:
        from pyggml.cli.show.model_report import print_estimate, print_report

        terminal = console()
        print_report(report, terminal)
        for each in estimates:
            print_estimate(each, terminal)
    ctx.exit(0 if report.ok and report.plan.loads else 1)


def _inspect_adapter(adapter: str, base: str | None, *, as_json: bool) -> None:
    report = pyggml.inspect_adapter(adapter, base)
    if as_json:
        print_json(report.to_dict())
    else:
        from pyggml.cli.show.model_report import print_adapter

        print_adapter(report, console())

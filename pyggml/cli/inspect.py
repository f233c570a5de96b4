"""``pyggml inspect``: what a model is, and whether it fits."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

import pyggml
from pyggml.cli.arguments.file_types import TYPES_EPILOG
from pyggml.cli.arguments.model import model_option, one_model, say_which
from pyggml.cli.arguments.options import estimate_options
from pyggml.cli.command import Command
from pyggml.cli.show.terminal import console, json_option, print_json, progress

if TYPE_CHECKING:
    from pyggml import MemoryEstimate, ModelReport


@click.command("inspect", cls=Command, epilog=TYPES_EPILOG)
@click.argument("source", metavar="[MODEL]", required=False, type=click.Path())
@model_option
@click.option("--estimate", is_flag=True, help="Also show how much memory it takes; implied by the options below.")
@estimate_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str | None,
    model: str | None,
    estimate: bool,
    outtype: tuple[str, ...],
    as_json: bool,
    **settings: Any,
) -> None:
    """Show what MODEL is, where its bytes are, what is wrong with it, and whether it fits.

    MODEL is a .gguf file or a Hugging Face directory (only its metadata is read), or a reference to the hub
    (hf:org/repo), which is downloaded first. The default is the small model that ships with pyggml. The exit code is
    1 if the model cannot be used.
    """
    settings = {name: value for name, value in settings.items() if value is not None}
    model = one_model(source, model)
    say_which(model, "MODEL")
    with progress("downloading") if str(model).startswith("hf:") else nullcontext() as show:
        report = pyggml.inspect(model, show)
    is_asked = estimate or bool(settings) or bool(outtype)
    outtypes = outtype or ("auto",) if is_asked and report.plan.loads else ()
    estimates = [report.estimate(outtype=each, **settings) for each in outtypes]
    if as_json:
        print_json(report.to_dict() | ({"estimates": [each.to_dict() for each in estimates]} if is_asked else {}))
    else:
        _show(report, estimates)
    ctx.exit(0 if report.ok and report.plan.loads else 1)


def _show(report: ModelReport, estimates: list[MemoryEstimate]) -> None:
    from pyggml.cli.show import estimates as _estimates
    from pyggml.cli.show import report as _report

    terminal = console()
    _report.show(report, terminal)
    for each in estimates:
        _estimates.show(each, terminal)

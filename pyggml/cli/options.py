"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])

model_option = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    type=click.Path(),  # for the completion of file names; what is there is said when it is loaded
    help="A .gguf file, a Hugging Face directory, or a reference to the hub: hf:org/repo[@revision][:file]. "
    "Without it: the small model that ships with pyggml.",
)


def load_options(function: _Function) -> _Function:
    """Adds the options that say how to load a model, named as the parameters of :func:`pyggml.load`."""
    for option in reversed(_LOAD_OPTIONS):
        function = option(function)
    return function


_LOAD_OPTIONS = [
    click.option(
        "--tokenizer",
        type=click.Path(),
        metavar="PATH",
        help="tokenizer.json, tokenizer.model, or a directory with one.",
    ),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        shell_complete=lambda _ctx, _param, begun: [name for name in ("auto", "cpu", "cuda") if name.startswith(begun)],
        help="auto, cpu, cuda, cuda:1 ...",
    ),
    click.option("-c", "--n-ctx", type=click.IntRange(1), help="Cells of the context, each for one token."),
    click.option("-t", "--n-threads", type=click.IntRange(1), help="Compute threads. Without it they adapt."),
    click.option("--n-gpu-layers", type=click.IntRange(0), help="Layers on the GPU. Without it: all of them."),
    click.option(
        "--cache-type",
        type=click.Choice(["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]),
        default="f16",
        show_default=True,
        help="Element type of the key-value cache.",
    ),
]


def say_which(model: str | None) -> None:
    """Tells on standard error that the shipped model answers, when none was named."""
    if model is None:
        click.echo("pyggml: no --model given: this is the small demonstration model that ships with pyggml", err=True)

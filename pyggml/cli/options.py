"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # which became generic after the version that will do

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


#: Element types that the key-value cache can have.
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


class _CountOrAuto(ParamType):
    """A number, or "auto" for as many as fit into memory."""

    name = "n|auto"

    def __init__(self, least: int, most: int) -> None:
        self._count = click.IntRange(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or "auto"."""
        if value == "auto":
            return value
        if not str(value).removeprefix("-").isdecimal():
            self.fail(f"{value!r} is neither a number nor auto.", param, ctx)
        return self._count.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """The one word."""
        return [CompletionItem("auto")] if "auto".startswith(incomplete) else []


n_ctx_type = _CountOrAuto(1, 2**32 - 1)
n_gpu_layers_type = _CountOrAuto(0, 2**31 - 1)

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
    click.option(
        "-c",
        "--n-ctx",
        type=n_ctx_type,
        metavar="N|auto",
        help="Cells of the context, each for one token; auto: what fits.",
    ),
    click.option(
        "-t", "--n-threads", type=click.IntRange(1), metavar="N", help="Compute threads. Without it they adapt."
    ),
    click.option(
        "--n-gpu-layers",
        type=n_gpu_layers_type,
        metavar="N|auto",
        help="Layers on the GPU; auto: what fits. Without it: all of them.",
    ),
    click.option(
        "--cache-type",
        type=click.Choice(CACHE_TYPES),
        default="f16",
        show_default=True,
        help="Element type of the key-value cache.",
    ),
]


def say_which(model: str | None, parameter: str = "--model") -> None:
    """Tells on standard error that the shipped model is used, when none was named by that parameter."""
    if model is None:
        click.echo(
            f"pyggml: no {parameter} given: this is the small demonstration model that ships with pyggml", err=True
        )

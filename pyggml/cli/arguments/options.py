"""Options that several commands share."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pyggml.cli.arguments.file_types import OUTTYPES, type_choice
from pyggml.options import EstimateOptions, Field, LoadOptions, fields_of

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
    """Adds options for what :func:`pyggml.load` takes; the command gets None for those that are not given."""
    fields = fields_of(LoadOptions).values()
    return _with_options(function, [field for field in fields if field.name != "source" and not field.hidden])


def estimate_options(function: _Function) -> _Function:
    """The same for what a model's ``estimate`` takes, with any number of output types."""
    fields = fields_of(EstimateOptions).values()
    return _with_options(function, [field for field in fields if field.name != "source"])


def _with_options(function: _Function, fields: Sequence[Field]) -> _Function:
    for field in reversed(fields):
        function = field_option(field, **_SPECIAL.get(field.name, {}))(function)
    return function


def field_option(
    field: Field, *, help: str | None = None, default: object = None, **settings: Any
) -> Callable[[_Function], _Function]:
    """The option for a field, as a decorator. Unless it is given its value is None, or no value.

    Args:
        field: what it is for.
        help: in place of the first sentence about the field.
        default: what its help shows as the default; None: the field's.
        **settings: of click's option, in place of those that follow from the field.
    """
    name = field.name.replace("_", "-")
    if bool in field.types:
        settings = {"is_flag": True, "default": None, **settings}
        name = f"{name}/--no-{name}" if field.default else name
    elif "type" not in settings:
        settings |= {"type": field_type(field), "metavar": _metavar(field)}
    shown = default_text(field.default if default is None else default)
    text = (help or sentence(field.help)) + (f"  [default: {shown}]" if shown else "")
    letters = [f"-{field.letter}"] if field.letter else []
    return click.option(*letters, f"--{name}", field.name, help=text, **settings)


def field_type(field: Field) -> ParamType:
    """What an option for a field accepts."""
    low, high = _bound(field.low), _bound(field.high)
    if int in field.types:
        return _CountOrAuto(low, high) if field.words else click.IntRange(low, high)
    if float in field.types:
        return click.FLOAT if low is high is None else click.FloatRange(low, high, min_open=field.above_low)
    if bool in field.types:
        return click.BOOL
    return click.Choice(field.words) if field.words else click.STRING


def sentence(help: str) -> str:
    """The first sentence about a field, and what None means, as commands show it."""
    sentences = re.split(r"(?<=\.) ", help)
    unset = [f" Without it: {text.removeprefix('None: ')}" for text in sentences if text.startswith("None: ")]
    first = "".join([sentences[0], *unset])
    first = re.sub(r"``(\w+)``", lambda name: "--" + name[1].replace("_", "-"), first)
    return first[:1].upper() + first[1:]


def default_text(default: object) -> str:
    """A default as help shows it; "" for those that say nothing."""
    if isinstance(default, (bool, type(None))) or default == ():
        return ""
    return " ".join(json.dumps(item) for item in default) if isinstance(default, tuple) else str(default)


def _metavar(field: Field) -> str | None:
    if int in field.types:
        return "N|auto" if field.words else "N"
    return "X" if float in field.types else None


def _bound(number: float) -> Any:
    """A bound as click wants it; the largest numbers of C say nothing to those who type."""
    return None if math.isinf(number) or number in (2**31 - 1, 2**32 - 1) else number


class _CountOrAuto(ParamType):
    """A number, or "auto" for as many as fit into memory."""

    name = "n|auto"

    def __init__(self, least: int | None, most: int | None) -> None:
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


# What does not follow from the fields: how files and several values are typed.
_SPECIAL: dict[str, dict[str, Any]] = {
    "tokenizer": {"type": click.Path(), "metavar": "PATH"},
    "n_gpu_layers": {"type": _CountOrAuto(0, None), "metavar": "N|auto"},  # -1 is for programs
    "device": {
        "shell_complete": lambda _ctx, _param, begun: [
            name for name in ("auto", "cpu", "cuda") if name.startswith(begun)
        ]
    },
    "outtype": {
        "type": type_choice(OUTTYPES),
        "multiple": True,
        "metavar": "TYPE",
        "help": "As if the weights were made into this type first. May be repeated.",
    },
}


def say_which(model: str | None, parameter: str = "--model") -> None:
    """Tells on standard error that the shipped model is used, when none was named by that parameter."""
    if model is None:
        click.echo(
            f"pyggml: no {parameter} given: this is the small demonstration model that ships with pyggml", err=True
        )

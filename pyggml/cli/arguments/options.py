"""Options that several commands share."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pyggml.cli.arguments.file_types import FileType
from pyggml.cli.command import Option
from pyggml.options import EstimateOptions, Field, LoadOptions, fields_of
from pyggml.options.file_types import OUTTYPES

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # which became generic after the version that will do

_Function = TypeVar("_Function", bound=Callable[..., Any])


#: The options of :func:`pyggml.load` that commands have under their own names; the model is named in many ways.
LOADING = {name: field for name, field in fields_of(LoadOptions).items() if name != "source" and not field.hidden}


def names_of(field: Field) -> list[str]:
    """The names of the field's option, as they are typed."""
    return [*([f"-{field.letter}"] if field.letter else []), f"--{field.name.replace('_', '-')}"]


def other_names_of(field: Field) -> list[str]:
    """What other tools call the field's option, as it is typed."""
    return [f"--{name.replace('_', '-')}" for name in field.other_names]


def load_options(function: _Function) -> _Function:
    """Adds the options of :func:`pyggml.load`; the command gets None for those not given."""
    return _with_options(function, [*LOADING.values()])


def estimate_options(function: _Function) -> _Function:
    """Adds the options of a model's ``estimate``, with any number of output types."""
    fields = fields_of(EstimateOptions).values()
    return _with_options(function, [field for field in fields if field.name != "source"])


def named_like(name: str, *, own: str = "", **settings: Any) -> Callable[[_Function], _Function]:
    """A decorator that adds an option with the names of a loading option, and everything else its own.

    Args:
        name: of the loading option.
        own: replaces its long name, which then works too.
        **settings: for click's option.
    """
    field = fields_of(LoadOptions)[name]
    *letters, long = names_of(field)
    return click.option(*letters, own or long, name, cls=Option, other_names=[long, *other_names_of(field)], **settings)


def _with_options(function: _Function, fields: Sequence[Field]) -> _Function:
    for field in reversed(fields):
        function = field_option(field, **_SPECIAL.get(field.name, {}))(function)
    return function


def field_option(
    field: Field, *, help: str | None = None, default: object = None, **settings: Any
) -> Callable[[_Function], _Function]:
    """A decorator that adds the option for a field. If it is not given, the command gets None, or () if it repeats.

    Args:
        field: the field.
        help: replaces the first sentence of the field's help.
        default: the default shown in the help; None: the field's.
        **settings: for click's option; they override those derived from the field.
    """
    *letters, name = names_of(field)
    if bool in field.types:
        settings = {"is_flag": True, "default": None, **settings}
        name = f"{name}/--no-{name[2:]}" if field.default else name
    else:
        settings = {"metavar": _metavar(field), "type": field_type(field), **settings}
    shown = default_text(field.default if default is None else default)
    text = (help or sentence(field.help)) + (f"  [default: {shown}]" if shown else "")
    settings = {"cls": Option, "other_names": other_names_of(field), **settings}
    option = click.option(*letters, name, field.name, help=text, **settings)
    flag = _FLAGS.get(field.name)
    return option if flag is None else lambda function: option(flag(function))


def field_type(field: Field) -> ParamType:
    """The click type for a field's values."""
    low, high = _bound(field.low), _bound(field.high)
    if int in field.types:
        return _CountOrWord(low, high, field.words) if field.words else click.IntRange(low, high)
    if float in field.types:
        return click.FLOAT if low is high is None else click.FloatRange(low, high, min_open=field.above_low)
    if bool in field.types:
        return click.BOOL
    return click.Choice(field.words) if field.words else click.STRING


def sentence(help: str) -> str:
    """The first sentence of a field's help and what its None means, as commands show them."""
    sentences = re.split(r"(?<=\.) ", help)
    unset = [f" Default: {text.removeprefix('None: ')}" for text in sentences if text.startswith("None: ")]
    first = "".join([sentences[0], *unset])
    first = re.sub(r"``(\w+)``", lambda name: "--" + name[1].replace("_", "-"), first)
    return first[:1].upper() + first[1:]


def default_text(default: object) -> str:
    """A default as help shows it; "" for one that tells users nothing."""
    if isinstance(default, (bool, type(None))) or default == ():
        return ""
    return " ".join(json.dumps(item) for item in default) if isinstance(default, tuple) else str(default)


# Of fields whose texts have a form.
_METAVARS = {"rpc": "HOST:PORT,...", "tensor_split": "N,N...", "override_tensor": "PATTERN=DEVICE,..."}


def _metavar(field: Field) -> str | None:
    if field.name in _METAVARS:
        return _METAVARS[field.name]
    if int in field.types:
        return "|".join(("N", *field.words))
    return "X" if float in field.types else None


def _bound(number: float) -> Any:
    """A bound for click; None for infinity and the limits of C integers, which tell users nothing."""
    return None if math.isinf(number) or number in (2**31 - 1, 2**32 - 1) else number


class _CountOrWord(ParamType):
    """A number, or a word for one, such as "auto" for as many as fit in memory."""

    def __init__(self, least: int | None, most: int | None, words: Sequence[str]) -> None:
        self.name = "|".join(("n", *words))
        self._count = click.IntRange(least, most)
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or the word."""
        if value in self._words:
            return value
        if not str(value).removeprefix("-").isdecimal():
            self.fail(f"{value!r} is neither a number nor {' or '.join(self._words)}.", param, ctx)
        return self._count.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Completes the words."""
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


# Options without a value that stand for a word of a field.
_FLAGS = {
    "n_cpu_moe": click.option(
        "-cmoe",
        "--cpu-moe",
        "n_cpu_moe",
        flag_value="all",
        default=None,
        help="The experts of all layers stay in main memory: --n-cpu-moe all.",
    )
}

# What cannot be derived from the fields: files, repeated values, ranges that differ.
_SPECIAL: dict[str, dict[str, Any]] = {
    "tokenizer": {"type": click.Path(), "metavar": "PATH"},
    "rpc_key": {"type": click.Path(), "metavar": "FILE"},
    "device": {
        "shell_complete": lambda _ctx, _param, begun: [
            name for name in ("auto", "cpu", "gpu", "cuda", "metal", "vulkan") if name.startswith(begun)
        ]
    },
    "outtype": {
        "type": FileType(OUTTYPES),
        "multiple": True,
        "metavar": "TYPE",
        "help": "Estimate for weights converted to this type. May be repeated.",
    },
}

"""Click options generated from option fields."""

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
    ParamType = click.ParamType  # not generic in older versions of click

_Function = TypeVar("_Function", bound=Callable[..., Any])


#: The options of :func:`pyggml.load` that commands have, except for the model.
LOADING = {name: field for name, field in fields_of(LoadOptions).items() if name != "source" and not field.hidden}


def option_names(field: Field) -> list[str]:
    """Return the names of a field's option, as they are typed."""
    return [*([f"-{field.letter}"] if field.letter else []), f"--{field.name.replace('_', '-')}"]


def aliases_of(field: Field) -> list[str]:
    """Return the names of a field's option in other tools, as they are typed."""
    return [f"--{name.replace('_', '-')}" for name in field.other_names]


def load_options(function: _Function) -> _Function:
    """Add the options of :func:`pyggml.load`; the command gets None for those not given."""
    return _add_options(function, [*LOADING.values()])


def hidden_load_options(**defaults: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds options of :func:`pyggml.load` that most commands lack.

    ``defaults`` has the name of each and its default in the help, "" for that of the field.
    """
    fields = [fields_of(LoadOptions)[name] for name in defaults]
    settings = {name: {"default": default} for name, default in defaults.items() if default}
    return lambda function: _add_options(function, fields, **settings)


def estimate_options(function: _Function) -> _Function:
    """Add the options of a model's ``estimate``, with any number of output types."""
    fields = fields_of(EstimateOptions).values()
    help = "Estimate for weights converted to this type. May be repeated."
    outtype = {"multiple": True, "help": help}
    return _add_options(function, [field for field in fields if field.name != "source"], outtype=outtype)


def option_like(name: str, *, long_name: str = "", **settings: Any) -> Callable[[_Function], _Function]:
    """Return a decorator that adds an option with the names of a loading option, and click's settings.

    A ``long_name`` replaces the loading option's own, which becomes an alias.
    """
    field = fields_of(LoadOptions)[name]
    *letters, own = option_names(field)
    return click.option(*letters, long_name or own, name, cls=Option, other_names=[own, *aliases_of(field)], **settings)


def threads_option(help: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the option for a number of threads."""
    return option_like("n_threads", type=click.IntRange(1, 512), metavar="N", help=f"{help} Default: one per core.")


def _add_options(function: _Function, fields: Sequence[Field], **settings: dict[str, Any]) -> _Function:
    """Add the options for fields; ``settings`` override those of a field by its name."""
    for field in reversed(fields):
        function = field_option(field, **{**_FIELD_SETTINGS.get(field.name, {}), **settings.get(field.name, {})})(
            function
        )
    return function


def field_option(
    field: Field, *, help: str | None = None, default: object = None, **settings: Any
) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the option for a field. Without it, the command gets None, or () if it repeats.

    The arguments override the first sentence of the field's help, the default in the help and click's settings.
    """
    *letters, name = option_names(field)
    if bool in field.types:
        settings = {"is_flag": True, "default": None, **settings}
        name = name if field.default is False else f"{name}/--no-{name[2:]}"
    else:
        settings = {"metavar": _metavar(field), "type": field_type(field), **settings}
    shown = default_text(field.default if default is None else default)
    text = (help or short_help(field.help)) + (f"  [default: {shown}]" if shown else "")
    settings = {"cls": Option, "other_names": aliases_of(field), **settings}
    option = click.option(*letters, name, field.name, help=text, **settings)
    flag = _FLAGS.get(field.name)
    return option if flag is None else lambda function: option(flag(function))


def field_type(field: Field) -> ParamType:
    """Return the click type for a field's values."""
    low, high = _bound(field.low), _bound(field.high)
    if int in field.types:
        return _IntegerOrWord(low, high, field.words) if field.words else click.IntRange(low, high)
    if float in field.types:
        return click.FLOAT if low is high is None else click.FloatRange(low, high, min_open=field.above_low)
    if bool in field.types:
        return click.BOOL
    return click.Choice(field.words, case_sensitive=False) if field.words else click.STRING


def short_help(help: str) -> str:
    """Return the first sentence of a field's help, and the meaning of None as its default."""
    sentences = re.split(r"(?<=\.) ", help)
    unset = [f" Default: {text.removeprefix('None: ')}" for text in sentences if text.startswith("None: ")]
    first = "".join([sentences[0], *unset])
    first = re.sub(r'``(\w+)(?:="(\w+)")?``', lambda found: _as_typed(found[1], found[2]), first)
    return first[:1].upper() + first[1:]


def _as_typed(name: str, value: str | None) -> str:
    return " ".join(["--" + name.replace("_", "-"), *([value] if value else [])])


def default_text(default: object) -> str:
    """Return a default as help shows it; "" for one that is obvious."""
    if isinstance(default, (bool, type(None))) or default == ():
        return ""
    return " ".join(json.dumps(item) for item in default) if isinstance(default, tuple) else str(default)


# Metavars of fields with a syntax.
_METAVARS = {
    "rpc": "HOST:PORT,...",
    "tensor_split": "N,N...",
    "override_tensor": "PATTERN=DEVICE,...",
    "lora": "[NAME=]FILE[:SCALE],...",
    "stop_token_ids": "IDS",
    "allowed_token_ids": "IDS",
    "regex": "PATTERN",
    "samplers": "NAMES",
    "logit_bias": "ID=NUMBER",
}


def _metavar(field: Field) -> str | None:
    if field.name in _METAVARS:
        return _METAVARS[field.name]
    if int in field.types:
        return "|".join(("N", *field.words))
    return "X" if float in field.types else None


def _bound(number: float) -> Any:
    """Return a bound for click; None for infinity and the limits of C integers."""
    return None if math.isinf(number) or number in (2**31 - 1, 2**32 - 1) else number


class _IntegerOrWord(ParamType):
    """An integer or a word, such as "auto"."""

    def __init__(self, low: int | None, high: int | None, words: Sequence[str]) -> None:
        self.name = "|".join(("n", *words))
        self._integer = click.IntRange(low, high)
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the integer or word."""
        if value in self._words:
            return value
        if not str(value).removeprefix("-").isdecimal():
            self.fail(f"{value!r} is neither a number nor {' or '.join(self._words)}.", param, ctx)
        return self._integer.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Complete the words."""
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


# Flags that set a field to one of its words.
_FLAGS = {
    "n_cpu_moe": click.option(
        "-cmoe",
        "--cpu-moe",
        "n_cpu_moe",
        flag_value="all",
        default=None,
        help="Keep the experts of all layers in main memory. The same as --n-cpu-moe all.",
    )
}

# Settings that cannot be derived from the fields.
_FIELD_SETTINGS: dict[str, dict[str, Any]] = {
    "tokenizer": {"type": click.Path(), "metavar": "PATH"},
    "chat_template": {"metavar": "TEMPLATE"},
    "lora": {"multiple": True, "callback": lambda _ctx, _param, given: given or None},
    "rpc_key": {"type": click.Path(), "metavar": "FILE"},
    "device": {
        "shell_complete": lambda _ctx, _param, prefix: [
            name for name in ("auto", "cpu", "gpu", "cuda", "metal", "vulkan") if name.startswith(prefix)
        ]
    },
    "outtype": {"type": FileType(OUTTYPES), "metavar": "TYPE"},
}

"""Sampling parameters as options of a command and of ``/set`` in a chat, from one table."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

import pyggml
from pyggml.cli.arguments.options import ParamType, field_option, field_type, other_names_of
from pyggml.cli.arguments.utf8 import text_of
from pyggml.options import Field, fields_of
from pyggml.sampling import SamplingParams

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: What ``max_tokens`` is where it has no limit but the end of the context.
NO_LIMIT = 2**31 - 1


class _List(ParamType):
    """Values separated by commas or, as in llama-cli, semicolons."""

    def __init__(self, name: str, item: ParamType) -> None:
        self.name = name
        self._item = item

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The values as a tuple."""
        return tuple(self._item.convert(item.strip(), param, ctx) for item in re.split("[,;]", value))


class _TokenLimit(ParamType):
    """A number of tokens; -1, as other tools have it, for no limit."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        return NO_LIMIT if str(value).strip() == "-1" else click.IntRange(0).convert(value, param, ctx)


class _Bias(ParamType):
    """A token id and the number to add to its logit."""

    name = "id=number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The pair."""
        parts = re.fullmatch(r"(\d+)(?:=|(?=[+-]))(.+)", value)  # 42=1.5, or 42+1.5 as in llama-cli
        if parts is None:
            self.fail(f"{value!r} is not TOKEN_ID=NUMBER, such as 42=-inf.", param, ctx)
        number: Any = parts[2]
        return int(parts[1]), click.FLOAT.convert(number, param, ctx)


class _Seed(click.IntRange):
    """A seed. The tool ``llm`` has the system message behind the same letter."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if not re.fullmatch(r"-?\d+", str(value)):
            self.fail(
                f"{value!r} is not an integer. (A system message is --system TEXT, for 'pyggml chat'.)", param, ctx
            )
        return super().convert(value, param, ctx)


class _TextOrFile(ParamType):
    """A text that has a certain form, or the name of a file with one. Gives what messages call it, and the text."""

    name = "text|file"

    def __init__(self, form: str) -> None:
        self._form = re.compile(form)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Where the text was, and the text."""
        if self._form.search(value):
            return "the text given", value
        _FILE.convert(value, param, ctx)
        return value, text_of(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Completes names of files."""
        return _FILE.shell_complete(ctx, param, incomplete)


@dataclass(frozen=True)
class SamplingOption:
    """A field of SamplingParams on a command line.

    Attributes:
        field: the field.
        type: type of the value, or of each value if the option may be repeated.
        many: whether the option may be repeated.
        value_of: turns what was given into the field's value.
        help: replaces the field's help.
        other_names: what other tools call the option, besides the names of the field.
    """

    field: Field
    type: ParamType
    many: bool = False
    value_of: Callable[[Any], Any] = lambda value: value
    help: str | None = None
    other_names: tuple[str, ...] = ()

    def option(self, default: object) -> Callable[[_Function], _Function]:
        """A decorator that adds the option; see :func:`field_option`."""
        own = {"type": self.type, "multiple": self.many} if self.field.name in _SPECIAL else {}
        others = [*other_names_of(self.field), *self.other_names]
        return field_option(self.field, help=self.help, default=default, other_names=others, **own)

    def parsed(self, text: str) -> Any:
        """The field's value, read from text.

        Raises:
            click.UsageError: the text is not a valid value.
        """
        value = self.type.convert(text, None, None)
        return self.value_of((value,) if self.many else value)


def sampling_options(defaults: Mapping[str, str] | None = None) -> Callable[[_Function], _Function]:
    """Adds the sampling options to a command, which gets those that were given as its argument ``sampling``.

    Args:
        defaults: what the help says of the defaults that are the command's own.
    """
    defaults = defaults or {}

    def add(function: _Function) -> _Function:
        @functools.wraps(function)
        def command(*args: Any, **options: Any) -> Any:
            values = {name: options.pop(name) for name in OPTIONS}
            given = {name: value for name, value in values.items() if value not in (None, ())}
            return function(*args, sampling=given, **options)

        for name, option in reversed(OPTIONS.items()):
            command = option.option(defaults.get(name))(command)
        return command  # type: ignore[return-value]

    return add


def sampling_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of SamplingParams that the options stand for.

    Raises:
        click.ClickException: a file cannot be read or is invalid.
    """
    return {name: OPTIONS[name].value_of(value) for name, value in given.items()}


def sampling_params(given: Mapping[str, Any]) -> SamplingParams:
    """The SamplingParams that the options stand for.

    Raises:
        click.UsageError: the options contradict each other.
        click.ClickException: a file cannot be read or is invalid.
    """
    values = sampling_values(given)
    try:
        return pyggml.SamplingParams(**values)
    except pyggml.InvalidParameterError as error:
        raise click.UsageError(str(error)) from None


def _schema_of(given: tuple[str, str]) -> Any:
    """A schema, checked before a model is loaded for it."""
    where, text = given
    try:
        schema = json.loads(text)
        pyggml.grammar_of(schema)
    except json.JSONDecodeError as error:
        raise click.ClickException(f"{where} is not valid JSON: {error}") from None
    except (pyggml.InvalidParameterError, pyggml.GrammarError) as error:
        raise click.ClickException(f"{where}: {error}") from None
    return schema


_FILE = click.Path(exists=True, dir_okay=False)

# What cannot be derived from the fields: files, lists and pairs.
_SPECIAL: dict[str, dict[str, Any]] = {
    "max_tokens": {
        "type": _TokenLimit(),
        "help": "Maximum number of tokens to generate; -1: until the context is full.",
    },
    "stop": {"type": click.STRING, "many": True, "help": "Text that ends the generation; may be repeated."},
    "seed": {
        "type": _Seed(-1, 2**32 - 2),
        "value_of": lambda n: None if n == -1 else n,
        "help": "Seed for random numbers. Default: a new one each time, as with -1.",
    },
    "json_schema": {
        "type": _TextOrFile(r"^\s*[{\[\"]|^\s*(true|false)\s*$"),
        "value_of": _schema_of,
        "other_names": ("-jf", "--json-schema-file"),
        "help": "JSON schema that the text must match, or a file with one.",
    },
    "grammar": {
        "type": _TextOrFile("::="),
        "value_of": lambda given: given[1],
        "other_names": ("--grammar-file",),
        "help": "GBNF grammar that the text must match, or a file with one.",
    },
    "stop_token_ids": {
        "type": _List("ids", click.INT),
        "help": "Token ids that end the generation, separated by commas.",
    },
    "logit_bias": {
        "type": _Bias(),
        "many": True,
        "value_of": dict,
        "help": "Number to add to a token's logit, such as 42=-inf; may be repeated.",
    },
    "dry_sequence_breakers": {
        "type": click.STRING,
        "many": True,
        "help": "Text at which DRY stops matching a repetition; may be repeated.",
    },
    "samplers": {
        "type": _List("names", click.STRING),
        "help": "Samplers in the order they run, separated by commas.",
    },
}

#: All fields of SamplingParams except logprobs, which only programs need.
OPTIONS = {
    field.name: SamplingOption(field, **{"type": field_type(field), **_SPECIAL.get(field.name, {})})
    for field in fields_of(SamplingParams).values()
    if not field.hidden
}

"""Sampling parameters as options of commands and of ``/set`` in a chat, from one table."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem
from click.types import FuncParamType

import pyggml
from pyggml.cli.arguments.options import ParamType, aliases_of, field_option, field_type
from pyggml.cli.arguments.text_file import read_text
from pyggml.options import Field, fields_of
from pyggml.options.chat_defaults import LIMITS, SAMPLING
from pyggml.sampling import SamplingParams

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Value of ``max_tokens`` for no limit other than the context.
NO_LIMIT = -1

#: Defaults of chats and of the server, for their help.
CHAT_DEFAULTS = {
    **{name: str(value) for name, value in LIMITS.items() if not isinstance(value, bool)},
    **{name: f"recommended by the model's makers, or {value}" for name, value in SAMPLING.items()},
}


def _names(text: str) -> tuple[str, ...]:
    """Parse values separated by commas or, as in llama-cli, by semicolons."""
    return tuple(item.strip() for item in re.split("[,;]", text))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(click.INT(item) for item in _names(text))


def _bias(text: str) -> tuple[int, float]:
    """Parse a token id and the number to add to its logit."""
    parts = re.fullmatch(r"(\d+)(?:=|(?=[+-]))(.+)", text)  # 42=1.5, or 42+1.5 as in llama-cli
    if parts is None:
        raise click.BadParameter(f"{text!r} is not TOKEN_ID=NUMBER, such as 42=-inf.")
    return int(parts[1]), click.FLOAT(parts[2])


class _Seed(click.IntRange):
    """A seed, with a hint for users of ``llm``, where -s is the system message."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the number."""
        if not re.fullmatch(r"-?\d+", str(value)):
            self.fail(
                f"{value!r} is not an integer. (A system message is --system TEXT, for 'pyggml chat'.)", param, ctx
            )
        return super().convert(value, param, ctx)


class _TextOrFile(ParamType):
    """A text in a certain syntax, or the name of a file with one. The value is the source's name and the text."""

    name = "text|file"

    def __init__(self, form: str) -> None:
        self._form = re.compile(form)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the source's name for messages, and the text."""
        if self._form.search(value):
            return "the text given", value
        _FILE.convert(value, param, ctx)
        return value, read_text(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete file names."""
        return _FILE.shell_complete(ctx, param, incomplete)


@dataclass(frozen=True)
class SamplingOption:
    """A field of SamplingParams on a command line.

    Attributes:
        type: type of the value, or of each value if there may be ``many``.
        value_of: converts the option's value to the field's.
        help: replaces the field's help.
        other_names: aliases of the option, in addition to those of the field.
    """

    field: Field
    type: ParamType
    many: bool = False
    value_of: Callable[[Any], Any] = lambda value: value
    help: str | None = None
    other_names: tuple[str, ...] = ()

    def option(self, default: object) -> Callable[[_Function], _Function]:
        """Return a decorator that adds the option; see :func:`field_option`."""
        own = {"type": self.type, "multiple": self.many} if self.field.name in _FIELD_SETTINGS else {}
        others = [*aliases_of(self.field), *self.other_names]
        return field_option(self.field, help=self.help, default=default, other_names=others, **own)

    def parse(self, text: str) -> Any:
        """Parse the field's value."""
        value = self.type.convert(text, None, None)
        return self.value_of((value,) if self.many else value)


def sampling_options(defaults: Mapping[str, str] | None = None) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the sampling options; the command gets those given as ``sampling``.

    Args:
        defaults: help texts of defaults that differ from the fields'.
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
    """Convert the options to fields of SamplingParams."""
    return {name: OPTIONS[name].value_of(value) for name, value in given.items()}


def sampling_params(given: Mapping[str, Any]) -> SamplingParams:
    """Convert the options to SamplingParams."""
    values = sampling_values(given)
    try:
        return pyggml.SamplingParams(**values)
    except pyggml.InvalidParameterError as error:
        raise click.UsageError(str(error)) from None


def _schema_of(given: tuple[str, str]) -> Any:
    """Parse and check a JSON schema, before a model is loaded."""
    source, text = given
    try:
        schema = json.loads(text)
        pyggml.grammar_of(schema)
    except json.JSONDecodeError as error:
        raise click.ClickException(f"{source} is not valid JSON: {error}") from None
    except (pyggml.InvalidParameterError, pyggml.GrammarError) as error:
        raise click.ClickException(f"{source}: {error}") from None
    return schema


_FILE = click.Path(exists=True, dir_okay=False)

# Settings that cannot be derived from the fields: files, lists and pairs.
_FIELD_SETTINGS: dict[str, dict[str, Any]] = {
    "max_tokens": {"help": "Maximum number of tokens to generate, or -1 for the rest of the context."},
    "stop": {"type": click.STRING, "many": True, "help": "Text that ends the generation; may be repeated."},
    "seed": {
        "type": _Seed(-1, 2**32 - 2),
        "value_of": lambda n: None if n == -1 else n,
        "help": "Random seed. Default, or -1: a new seed for each request.",
    },
    "json_schema": {
        "type": _TextOrFile(r"^\s*[{\[\"]|^\s*(true|false)\s*$"),
        "value_of": _schema_of,
        "other_names": ("-jf", "--json-schema-file"),
        "help": "JSON schema that constrains the text, or a file with one.",
    },
    "grammar": {
        "type": _TextOrFile("::="),
        "value_of": lambda given: given[1],
        "other_names": ("--grammar-file",),
        "help": "GBNF grammar that constrains the text, or a file with one.",
    },
    "choices": {"type": click.STRING, "many": True, "help": "A text that the output may be; may be repeated."},
    "bad_words": {"type": click.STRING, "many": True, "help": "Text to keep out of the output; may be repeated."},
    "allowed_token_ids": {
        "type": FuncParamType(_ids),
        "help": "The only token ids that may be generated, separated by commas.",
    },
    "stop_token_ids": {"type": FuncParamType(_ids), "help": "Token ids that end the generation, separated by commas."},
    "logit_bias": {
        "type": FuncParamType(_bias),
        "many": True,
        "value_of": dict,
        "help": "Bias that is added to a token's logit, such as 42=-inf; may be repeated.",
    },
    "dry_sequence_breakers": {
        "type": click.STRING,
        "many": True,
        "help": "Text that interrupts DRY's repetition matching; may be repeated.",
    },
    "samplers": {"type": FuncParamType(_names), "help": "Samplers in the order they run, separated by commas."},
}

#: All fields of SamplingParams except those of logprobs.
OPTIONS = {
    field.name: SamplingOption(field, **{"type": field_type(field), **_FIELD_SETTINGS.get(field.name, {})})
    for field in fields_of(SamplingParams).values()
    if not field.hidden
}

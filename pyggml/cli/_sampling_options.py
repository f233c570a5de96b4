"""How to sample, as options of a command and as what ``/set`` takes in a chat: one table for both."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import pyggml
from pyggml.cli.options import ParamType

if TYPE_CHECKING:
    from pyggml import SamplingParams

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: What a chat has for ``max_tokens``: an answer may go on until the context is full.
TO_THE_END = 2**31 - 1


class _List(ParamType):
    """Values with commas between them."""

    def __init__(self, name: str, item: ParamType) -> None:
        self.name = name
        self._item = item

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The values as a tuple."""
        return tuple(self._item.convert(item.strip(), param, ctx) for item in value.split(","))


class _Bias(ParamType):
    """A token id and what is added to its logit."""

    name = "id=number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Both as a tuple."""
        token_id, equals, bias = value.partition("=")
        if not equals:
            self.fail(f"{value!r} is not TOKEN_ID=NUMBER, such as 42=-inf.", param, ctx)
        return click.INT.convert(token_id, param, ctx), click.FLOAT.convert(bias, param, ctx)


_COUNT = click.IntRange(0)
_UP_FROM_0 = click.FloatRange(0)
_SHARE = click.FloatRange(0, 1)
_FILE = click.Path(exists=True, dir_okay=False)


@dataclass(frozen=True)
class SamplingOption:
    """A field of SamplingParams on a command line.

    Attributes:
        name: of the field; with dashes, of the option.
        type: of its value, or of each of them.
        default: of the field.
        help: what it does.
        many: the option may be repeated.
        is_flag: it takes no value.
        field: makes the field's value of what was given.
    """

    name: str
    type: ParamType
    default: object
    help: str
    many: bool = False
    is_flag: bool = False
    field: Callable[[Any], Any] = lambda value: value

    def option(self, default: str) -> Callable[[_Function], _Function]:
        """The option, as a decorator; unless it is given its value is None, or no value."""
        given: dict[str, Any] = (
            {"is_flag": True, "default": None} if self.is_flag else {"type": self.type, "multiple": self.many}
        )
        if isinstance(self.type, (click.types.IntParamType, click.types.FloatParamType)):
            given["metavar"] = "N" if isinstance(self.type, click.types.IntParamType) else "X"
        text = f"{self.help}  [default: {default}]" if default else self.help
        return click.option(f"--{self.name.replace('_', '-')}", self.name, **given, help=text)

    def value(self, text: str) -> Any:
        """The field's value of a text.

        Raises:
            click.UsageError: the text is none.
        """
        value = self.type.convert(text, None, None)
        return self.field((value,) if self.many else value)


def sampling_options(*, max_tokens: int | None = None) -> Callable[[_Function], _Function]:
    """Adds the options of this module to a command, which gets those that were given as its argument ``sampling``.

    Args:
        max_tokens: in place of the default.
    """
    defaults = {} if max_tokens is None else {"max_tokens": max_tokens}

    def add(function: _Function) -> _Function:
        @functools.wraps(function)
        def command(*args: Any, **options: Any) -> Any:
            values = {name: options.pop(name) for name in OPTIONS}
            given = {name: value for name, value in values.items() if value not in (None, ())}
            return function(*args, sampling=defaults | given, **options)

        for option in reversed(OPTIONS.values()):
            command = option.option(_shown(defaults.get(option.name, option.default)))(command)
        return command  # type: ignore[return-value]

    return add


def sampling_params(given: Mapping[str, Any]) -> SamplingParams:
    """What the options mean.

    Raises:
        click.UsageError: they do not go together.
        click.ClickException: a file among them is not what it should be.
    """
    values = {name: OPTIONS[name].field(value) for name, value in given.items()}
    try:
        return pyggml.SamplingParams(**values)
    except pyggml.InvalidParameterError as error:
        raise click.UsageError(str(error)) from None


def changed(params: SamplingParams, name: str, text: str) -> SamplingParams:
    """The same with one field as a text says; "default" makes it what it is without a say.

    Raises:
        click.ClickException: no such field, or not a value that it can have.
        InvalidParameterError: it does not go together with the others.
    """
    name = name.replace("-", "_")
    if name not in OPTIONS:
        raise click.ClickException(f"there is no sampling parameter {name}; there are {', '.join(OPTIONS)}")
    option = OPTIONS[name]
    try:
        value: Any = option.default if text == "default" else option.value(text)
        return replace(params, **{name: value})
    except click.UsageError as error:
        raise click.ClickException(f"{name}: {error.message}") from None


def differing(params: SamplingParams) -> dict[str, object]:
    """The fields that are not what they are without a say."""
    defaults = pyggml.SamplingParams()
    names = [field.name for field in fields(params)]
    return {name: getattr(params, name) for name in names if getattr(params, name) != getattr(defaults, name)}


def _shown(default: object) -> str:
    if default == TO_THE_END:
        return "the context's end"
    if isinstance(default, (bool, type(None))) or default == ():
        return ""
    return " ".join(json.dumps(item) for item in default) if isinstance(default, tuple) else str(default)


def _text_of(path: str) -> str:
    try:
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _schema_of(path: str) -> Any:
    """The schema in a file, looked at before a model is loaded for it."""
    try:
        schema = json.loads(_text_of(path))
        pyggml.grammar_of(schema)
    except json.JSONDecodeError as error:
        raise click.ClickException(f"{path} is no JSON: {error}") from None
    except (pyggml.InvalidParameterError, pyggml.GrammarError) as error:
        raise click.ClickException(f"{path}: {error}") from None
    return schema


def _option(name: str, kind: ParamType, default: object, text: str, **more: Any) -> SamplingOption:
    return SamplingOption(name, kind, default, text, **more)


#: All fields of SamplingParams but logprobs, which are for programs.
OPTIONS = {
    option.name: option
    for option in (
        _option("max_tokens", _COUNT, 256, "Tokens to generate at most."),
        _option("temperature", _UP_FROM_0, 0.0, "0 takes the likeliest token; more makes it livelier."),
        _option("top_k", _COUNT, 0, "Sample among the k likeliest tokens; 0: off."),
        _option("top_p", _SHARE, 1.0, "Sample among the likeliest tokens of this probability; 1: off."),
        _option("min_p", _SHARE, 0.0, "Drop tokens less likely than this part of the likeliest; 0: off."),
        _option("typical_p", _SHARE, 1.0, "Locally typical sampling; 1: off."),
        _option("seed", click.IntRange(0, 2**32 - 2), None, "Of the random numbers.  [default: another each time]"),
        _option("stop", click.STRING, (), "Text that ends the generation; may be repeated.", many=True),
        _option("repeat_penalty", click.FloatRange(0, min_open=True), 1.0, "Divides recent tokens' logits; 1: off."),
        _option("frequency_penalty", click.FLOAT, 0.0, "Off each recent occurrence of a token."),
        _option("presence_penalty", click.FLOAT, 0.0, "Off each token that occurred recently."),
        _option("penalty_last_n", _COUNT, 64, "How many tokens the penalties look back."),
        _option("json_schema", _FILE, None, "A file with the JSON schema that the text must match.", field=_schema_of),
        _option("grammar", _FILE, None, "A file with the GBNF grammar that the text must match.", field=_text_of),
        _option("ignore_eos", click.BOOL, False, "Go on where the model would end.", is_flag=True),
        _option("stop_token_ids", _List("ids", click.INT), (), "Token ids that end it, with commas between them."),
        _option("logit_bias", _Bias(), None, "Is added to a token's logit; may be repeated.", many=True, field=dict),
        _option("timeout_s", _UP_FROM_0, None, "Seconds after which it ends."),
        _option("dynatemp_range", _UP_FROM_0, 0.0, "Lets the temperature go so far to either side."),
        _option("dynatemp_exponent", _UP_FROM_0, 1.0, "Bends the curve between the two."),
        _option("top_n_sigma", _UP_FROM_0, 0.0, "Keep tokens within so many deviations of the best; 0: off."),
        _option("xtc_probability", _SHARE, 0.0, "How often to drop the likeliest tokens; 0: off."),
        _option("xtc_threshold", _SHARE, 0.1, "Above this they are dropped, but for the last."),
        _option("dry_multiplier", _UP_FROM_0, 0.0, "Strength of the DRY penalty on repetitions; 0: off."),
        _option("dry_base", click.FloatRange(1), 1.75, "It grows by this factor with each token."),
        _option("dry_allowed_length", _COUNT, 2, "Repetitions up to this length are free."),
        _option("dry_penalty_last_n", _COUNT, 64, "How many tokens it looks back."),
        _option(
            "dry_sequence_breakers",
            click.STRING,
            ("\n", ":", '"', "*"),
            "No repetition reaches across this text; may be repeated.",
            many=True,
        ),
        _option("mirostat", click.IntRange(0, 2), 0, "1 or 2 keeps the surprise at --mirostat-tau; 0: off."),
        _option("mirostat_tau", _UP_FROM_0, 5.0, "The surprise aimed at, in bits."),
        _option("mirostat_eta", _UP_FROM_0, 0.1, "How fast it is corrected."),
        _option("adaptive_target", _SHARE, None, "Choose tokens near this probability."),
        _option("adaptive_decay", click.FloatRange(0, 0.99), 0.9, "How slowly that adapts."),
        _option("min_keep", _COUNT, 0, "Samplers that drop tokens leave so many."),
        _option("samplers", _List("names", click.STRING), None, "Their order, names with commas between them."),
    )
}

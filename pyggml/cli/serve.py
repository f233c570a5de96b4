"""``pyggml serve``: serves models over HTTP."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_origin

import click

import pyggml
from pyggml.cli.arguments.model import of_the_hub, say_which
from pyggml.cli.arguments.options import ParamType, field_option, other_names_of
from pyggml.cli.arguments.sampling import sampling_options, sampling_values
from pyggml.cli.command import Command, Option
from pyggml.options import Field, LoadOptions, fields_of
from pyggml.server import (
    LOAD_DEFAULTS,
    LOADING,
    SERVING,
    ModelSpec,
    PartialSettings,
    Settings,
    foreign_variable_hints,
    is_loopback,
    parse_text,
    read_settings,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

_SHOWN_DEFAULTS = {
    "max_tokens": "what the context has room for",
    "temperature": "what the model's makers recommend, or 0.0",
}

# What help says of fields that servers use in their own way.
_HELP = {"max_queue": "Maximum number of waiting requests, of each model. More are told to come again."}
_PATHS = ("tokenizer", "rpc_key")


class _Text(ParamType):
    """A text that stands for a field's value, as in the environment: none, 12GB, or several separated by commas."""

    name = "text"

    def __init__(self, field: Field) -> None:
        self._field = field

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; for None, what stands for it until the options have been told from those not given."""
        try:
            converted = self._field.checked(parse_text(self._field, value))
        except pyggml.InvalidParameterError as error:
            self.fail(str(error), param, ctx)
        return _NONE if converted is None else converted


_NONE = object()


def _server_options(function: _Function) -> _Function:
    """Adds the server's own options, and those of loading and sampling; the command gets what they say as ``given``."""

    @functools.wraps(function)
    def command(*args: Any, sampling: dict[str, Any], **options: Any) -> Any:
        server, load = (_given(options, table) for table in (SERVING, LOADING))
        return function(*args, given=PartialSettings("", server, load, sampling_values(sampling)), **options)

    command = sampling_options(_SHOWN_DEFAULTS)(command)
    for field in reversed([*SERVING.values(), *LOADING.values()]):
        command = _server_option(field)(command)
    return command  # type: ignore[return-value]


def _server_option(field: Field) -> Callable[[_Function], _Function]:
    default = LOAD_DEFAULTS.get(field.name, field.default)
    own: dict[str, Any] = {}
    if field.is_size:
        own = {"type": _Text(field), "metavar": "SIZE"}
    elif any(get_origin(each) is tuple for each in field.types):
        own = {"type": _Text(field), "metavar": "TEXT[,TEXT]..."}
    elif types.NoneType in field.types and default is not None:
        own = {"type": _Text(field), "metavar": "N|none" if int in field.types else "X|none"}
    elif Path in field.types or field.name in _PATHS:
        own = {"type": click.Path(), "metavar": "FILE"}
    return field_option(field, default=default, help=_HELP.get(field.name), **own)


def _given(options: dict[str, Any], table: Iterable[str]) -> dict[str, Any]:
    """The options of a table that were given; takes all of its options out."""
    values = {name: options.pop(name) for name in table}
    return {name: None if value is _NONE else value for name, value in values.items() if value is not None}


@click.command("serve", cls=Command)
@click.argument("arguments", metavar="[MODEL]...", nargs=-1)
@click.option(
    "-m",
    "--model",
    "options",
    cls=Option,
    other_names=other_names_of(fields_of(LoadOptions)["source"]),
    metavar="MODEL",
    multiple=True,
    help="The same as MODEL.",
)
@click.option("-hf", "--hf-repo", "repositories", metavar="ORG/REPO", multiple=True, help="A model of the hub.")
@click.option(
    "-a",
    "--alias",
    "aliases",
    cls=Option,
    other_names=["--served-model-name", "--model-alias"],
    metavar="NAME[,NAME]...",
    multiple=True,
    help="What requests call the model. May be repeated: the second is for the second model.",
)
@click.option(
    "--config",
    cls=Option,
    other_names=["--config-file"],
    type=click.Path(),
    metavar="FILE",
    help="A TOML file with what the options say, and more about single models.",
)
@_server_options
def command(
    arguments: tuple[str, ...],
    options: tuple[str, ...],
    repositories: tuple[str, ...],
    aliases: tuple[str, ...],
    config: str | None,
    given: PartialSettings,
) -> None:
    r"""Serve models over HTTP, to clients of OpenAI's, Anthropic's and ollama's APIs and to browsers.

    MODEL is a .gguf file, a Hugging Face directory, or a reference to the hub: hf:org/repo[@revision][:file]. The first
    is the default. Without one, it is the small model that ships with pyggml.

    The server's options and those of loading hold for all models, and those of sampling for requests that say nothing
    else. What is not given comes from the environment (PYGGML_PORT, PYGGML_N_CTX ...), then from the file, and then it
    is the default. Ctrl-C and SIGTERM end the server when its running requests have ended; a second one ends it now.

    \b
    pyggml serve model.gguf
    pyggml serve hf:org/repo --port 8000 --n-parallel 16 --n-ctx 65536
    pyggml serve --config server.toml
    """
    models = [ModelSpec(source) for source in (*arguments, *options, *map(_of_the_hub, repositories))]
    names = [[name.strip() for name in each.split(",") if name.strip()] for each in aliases]
    try:
        settings = read_settings(replace(given, models=models, names=names), os.environ, config)
        keys = settings.read_api_keys()
    except pyggml.InvalidParameterError as error:
        raise click.UsageError(str(error)) from None
    _say_before(settings, is_open=not keys)
    from pyggml.server import create_app, run

    app = create_app(settings)
    run(app, settings, lambda url: _say_where(url, app.state.worker.models.names, settings))


def _of_the_hub(repository: str) -> str:
    reference = of_the_hub(repository)
    assert reference is not None
    return reference


def _say_before(settings: Settings, *, is_open: bool) -> None:
    """What is worth knowing while the model is loaded."""
    if all(model.source is None for model in settings.models):
        say_which(None, "MODEL")
    if is_open and not is_loopback(settings.host):
        click.echo(
            f"pyggml: warning: whoever reaches {settings.host} can use the server, which asks for no key; "
            "--api-key-file FILE or PYGGML_API_KEY sets one",
            err=True,
        )
    for hint in foreign_variable_hints(os.environ):
        click.echo(f"pyggml: {hint}", err=True)


def _say_where(url: str, names: Sequence[str], settings: Settings) -> None:
    page = "a page for chatting is there; " if settings.page else ""
    click.echo(f"pyggml: serving {', '.join(names)} at {url} ({page}OpenAI's clients take base_url={url}/v1)", err=True)

"""``pyggml serve``: the HTTP server."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_origin

import click
from click.types import FuncParamType

import pyggml
from pyggml.cli.arguments.model import hub_reference, print_default_model_notice
from pyggml.cli.arguments.options import ParamType, aliases_of, field_option
from pyggml.cli.arguments.sampling import CHAT_DEFAULTS, sampling_options, sampling_values
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

# Help of fields with another meaning in the server.
_HELP = {"max_queue": "Maximum number of waiting requests per model. Further requests are rejected with status 429."}
_PATHS = ("tokenizer", "rpc_key")


_NONE = object()  # stands for None, which click uses for options that are not given


def _text_type(field: Field) -> ParamType:
    """Return the type of a field's value as in an environment variable: none, 12GB, or values separated by commas."""

    def text(value: str) -> Any:
        try:
            converted = field.checked(parse_text(field, value))
        except pyggml.InvalidParameterError as error:
            raise click.BadParameter(str(error)) from None
        return _NONE if converted is None else converted

    return FuncParamType(text)


def _server_options(function: _Function) -> _Function:
    """Add the options of the server, of loading and of sampling, which the command gets as ``given``."""

    @functools.wraps(function)
    def command(*args: Any, sampling: dict[str, Any], **options: Any) -> Any:
        server, load = (_given(options, table) for table in (SERVING, LOADING))
        return function(*args, given=PartialSettings("", server, load, sampling_values(sampling)), **options)

    command = sampling_options(CHAT_DEFAULTS)(command)
    for field in reversed([*SERVING.values(), *LOADING.values()]):
        command = _server_option(field)(command)
    return command  # type: ignore[return-value]


def _server_option(field: Field) -> Callable[[_Function], _Function]:
    default = LOAD_DEFAULTS.get(field.name, field.default)
    own: dict[str, Any] = {}
    if field.is_size:
        own = {"type": _text_type(field), "metavar": "SIZE"}
    elif any(get_origin(each) is tuple for each in field.types):
        own = {"type": _text_type(field), "metavar": "TEXT[,TEXT]..."}
    elif types.NoneType in field.types and default is not None:
        own = {"type": _text_type(field), "metavar": "N|none" if int in field.types else "X|none"}
    elif Path in field.types or field.name in _PATHS:
        own = {"type": click.Path(), "metavar": "DIRECTORY" if field.name == "slot_save_path" else "FILE"}
    return field_option(field, default=default, help=_HELP.get(field.name), **own)


def _given(options: dict[str, Any], table: Iterable[str]) -> dict[str, Any]:
    """Remove the options of a table from ``options``, and return those that were given."""
    values = {name: options.pop(name) for name in table}
    return {name: None if value is _NONE else value for name, value in values.items() if value is not None}


@click.command("serve", cls=Command)
@click.argument("arguments", metavar="[MODEL]...", nargs=-1)
@click.option(
    "-m",
    "--model",
    "options",
    cls=Option,
    other_names=aliases_of(fields_of(LoadOptions)["source"]),
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
    help="Name of the model in requests. May be repeated: the second is for the second model.",
)
@click.option(
    "--config",
    cls=Option,
    other_names=["--config-file"],
    type=click.Path(),
    metavar="FILE",
    help="TOML configuration file, with the same options and settings of single models.",
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
    r"""Serve models over HTTP, with OpenAI's, Anthropic's and ollama's APIs and a chat page for browsers.

    MODEL is a .gguf file, a Hugging Face directory, or a reference to the hub: hf:org/repo[@revision][:file]. The first
    is the default model. Without any, the server uses the small model that ships with pyggml.

    Options of the server and of loading apply to all models. Sampling options are defaults, which requests override.
    An option that is not given is read from the environment (PYGGML_PORT, PYGGML_N_CTX ...), then from the
    configuration file. Ctrl-C and SIGTERM stop the server once its running requests are done; a second one stops it at
    once.

    \b
    pyggml serve model.gguf
    pyggml serve hf:org/repo --port 8000 --n-parallel 16 --n-ctx 65536
    pyggml serve --config server.toml
    """
    models = [ModelSpec(source) for source in (*arguments, *options, *map(hub_reference, repositories))]
    names = [[name.strip() for name in each.split(",") if name.strip()] for each in aliases]
    try:
        settings = read_settings(replace(given, models=models, names=names), os.environ, config)
        keys = settings.read_api_keys()
    except pyggml.InvalidParameterError as error:
        raise click.UsageError(str(error)) from None
    _print_notices(settings, requires_key=bool(keys))
    from pyggml.server import create_app, run

    app = create_app(settings)
    run(app, settings, lambda url: _print_address(url, app.state.worker.models.names, settings))


def _print_notices(settings: Settings, *, requires_key: bool) -> None:
    if all(model.source is None for model in settings.models):
        print_default_model_notice(None, "MODEL")
    if not requires_key and not is_loopback(settings.host):
        click.echo(
            f"pyggml: warning: the server accepts requests without a key from all hosts that can reach "
            f"{settings.host}. Set --api-key-file FILE or PYGGML_API_KEY.",
            err=True,
        )
    for hint in foreign_variable_hints(os.environ):
        click.echo(f"pyggml: {hint}", err=True)


def _print_address(url: str, names: Sequence[str], settings: Settings) -> None:
    page = "chat page at the same address; " if settings.page else ""
    networks = ", and at all other addresses of this machine" if settings.host in ("0.0.0.0", "::") else ""
    click.echo(
        f"pyggml: serving {', '.join(names)} at {url} ({page}base_url={url}/v1 for OpenAI's clients){networks}",
        err=True,
    )

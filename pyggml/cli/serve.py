"""``pyggml serve``: serves models over HTTP."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, get_origin

import click

from pyggml.cli.arguments.model import of_the_hub
from pyggml.cli.arguments.options import field_option, other_names_of
from pyggml.cli.command import Command, Option
from pyggml.options import LoadOptions, fields_of
from pyggml.server import LOADING, ModelSpec, Settings

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The server's own options.
SERVING = {name: field for name, field in fields_of(Settings).items() if not field.hidden}


def _server_options(function: _Function) -> _Function:
    """Adds the server's own options and those of loading; the command gets those given, as ``server`` and ``load``."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        server, load = (
            {name: value for name in names if (value := options.pop(name)) not in (None, ())}
            for names in (SERVING, LOADING)
        )
        return function(*args, server=server, load=load, **options)

    for field in reversed([*SERVING.values(), *LOADING.values()]):
        many: dict[str, Any] = {"multiple": True} if any(get_origin(each) is tuple for each in field.types) else {}
        command = field_option(field, **many)(command)
    return command  # type: ignore[return-value]


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
@_server_options
def command(
    arguments: tuple[str, ...],
    options: tuple[str, ...],
    repositories: tuple[str, ...],
    server: dict[str, Any],
    load: dict[str, Any],
) -> None:
    r"""Serve models over HTTP.

    MODEL is a .gguf file, a Hugging Face directory, or a reference to the hub: hf:org/repo[@revision][:file]. The first
    is the default. Without one, the small model that ships with pyggml is served.

    \b
    pyggml serve model.gguf
    pyggml serve hf:org/repo --port 8000 --n-parallel 16 --n-ctx 65536
    """
    from pyggml.server import create_app, run

    named = [*arguments, *options, *filter(None, map(of_the_hub, repositories))]
    settings = Settings(models=tuple(map(ModelSpec, named)), load=load, **server)
    if not settings.models:
        click.echo("pyggml: no model given: this is the small demonstration model that ships with pyggml", err=True)
    app = create_app(settings)
    run(app, settings, lambda url: click.echo(f"pyggml: listening on {url}", err=True))

"""``pyggml completion``: shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pyggml.cli.command import Command
from pyggml.cli.program import program


@click.command("completion", cls=Command)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    r"""Print the completion script of a shell.

    \b
    bash:  eval "$(pyggml completion bash)"          in ~/.bashrc
    zsh:   eval "$(pyggml completion zsh)"           in ~/.zshrc
    fish:  pyggml completion fish | source           in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(program, {}, "pyggml", "_PYGGML_COMPLETE").source())

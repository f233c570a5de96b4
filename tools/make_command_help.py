"""Writes `docs/reference/command-line.md`, the help of every command.

Run it after a change to a command's options or help:

    python tools/make_command_help.py

A test compares the result with the file in the repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from pyggml.cli.program import program

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "command-line.md"
WIDTH = 100

INTRODUCTION = """\
# The command, option by option

What `pyggml COMMAND --help` says, for every command. `tools/make_command_help.py` writes this page.

They all exit with 0 on success, with 1 if something failed, with 2 if the command line is wrong, and with 130 if Ctrl-C
ended them. An error is one line on standard error; `--debug` shows where in the code it came from.
"""


def page() -> str:
    """The whole text of the page."""
    return "\n".join([INTRODUCTION, *(_section(context) for context in _contexts(program, None))])


def _contexts(command: click.Command, parent: click.Context | None) -> Iterator[click.Context]:
    """Yields a command's context, and then those of its subcommands."""
    settings = {"help_option_names": program.context_settings["help_option_names"], **command.context_settings}
    context = click.Context(command, parent, command.name if parent else "pyggml", terminal_width=WIDTH, **settings)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from _contexts(subcommand, context)


def _section(context: click.Context) -> str:
    return f"## {context.command_path}\n\n```text\n{context.command.get_help(context).rstrip()}\n```\n"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {page().count('## ')} commands")


if __name__ == "__main__":
    main()

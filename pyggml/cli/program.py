"""The top-level command: lazy loading of subcommands, error messages and exit codes."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import shlex
import signal
import sys
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from pyggml import __version__
from pyggml.cli.command import Command, CommandGroup
from pyggml.cli.command_hints import ALIASES, command_hint

#: Subcommand -> help. The module of the same name (with _ for -) in this package defines it as ``command``.
COMMANDS = {
    "generate": "Continue a text.",
    "chat": "Chat with a model.",
    "batch": "Answer a file of prompts. Interrupted jobs resume.",
    "embed": "Embed the texts of a file. Interrupted jobs resume.",
    "similar": "Find the texts of a file that are similar to a query.",
    "serve": "Serve models over HTTP.",
    "rpc-serve": "Export this machine's devices to other hosts.",
    "inspect": "Show a report on a model, and whether it fits in memory.",
    "convert": "Convert a Hugging Face directory to a GGUF file.",
    "quantize": "Quantise a GGUF file.",
    "imatrix": "Compute an importance matrix, for quantize.",
    "perplexity": "Measure how well a model predicts a text.",
    "cache": "Show, download or remove models on this machine.",
    "bench": "Compare the speed of models and settings.",
    "doctor": "Check this installation and this machine.",
    "completion": "Print the completion script of a shell.",
}

# Phrases in messages of the library and of click -> the same with options of the command line.
_OPTION_NAMES = {
    "pass base=, a": "pass --base, a",
    "pass requantize=True": "pass --requantize",
    "give an importance matrix": "give an importance matrix (--imatrix FILE)",
    "a chunk of n_ctx=": "a chunk of --n-ctx ",
    "a smaller n_ctx": "a smaller --n-ctx",
    "say overwrite=True": "say --force",
    "say restart=True": "say --restart",
    "chat_template=": "--chat-template ",
    "use generate()": "use pyggml generate",
    "is not a valid integer range.": "is not an integer.",
    "is not a valid float range.": "is not a number.",
}

#: Exit code after Ctrl-C: 128 + SIGINT, as in shells.
INTERRUPTED = 130


# Options that imply a subcommand: a command line that starts with one lacks the subcommand.
_TEXT_OPTIONS = {"-p", "--prompt", "-f", "--file"}
_MODEL_OPTIONS = {"-m", "--model", "-hf", "--hf-repo"}


class Program(CommandGroup):
    """A group that imports a subcommand only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the subcommand with a name or alias."""
        name = ALIASES["pyggml"].get(cmd_name, cmd_name)
        return load_command(name) if name in COMMANDS else _HIDDEN_COMMANDS.get(name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the subcommand; if it is missing, fail with a suggestion."""
        if args and args[0] in _TEXT_OPTIONS | _MODEL_OPTIONS:
            command = "generate" if _TEXT_OPTIONS & {*args} else "chat"
            ctx.fail(f"The command is missing: type 'pyggml {shlex.join([command, *args])}'")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand; for an unknown name, fail with a suggestion."""
        name, *rest = args
        if name not in {*COMMANDS, *ALIASES["pyggml"], *_HIDDEN_COMMANDS}:
            ctx.fail(_unknown_command_message(name, rest))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def load_command(name: str) -> click.Command:
    """Import the subcommand with a name in ``COMMANDS``."""
    command = importlib.import_module(f"pyggml.cli.{name.replace('-', '_')}").command
    assert isinstance(command, click.Command)
    return command


def _unknown_command_message(name: str, rest: list[str]) -> str:
    from pyggml.cli.arguments.model import looks_like_model

    message, answer = f"No such command {name!r}", command_hint(name.lower(), rest)
    if answer is not None:
        return f"{message}: {answer}"
    if looks_like_model(name):
        return f"{name} is a model, not a command: type 'pyggml {shlex.join(['chat', '-m', name, *rest])}'"
    if " " in name.strip():
        return f"A question needs a command: type 'pyggml {shlex.join(['chat', name, *rest])}'"
    close = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
    return f"{message}. " + (f"Did you mean {close[0]!r}?" if close else "'pyggml --help' lists them.")


def run() -> NoReturn:
    """Run the command line of this process. See :func:`pyggml.cli.main` for the exit codes."""
    # A stream that the shell closed (">&-") is None.
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    warnings.formatwarning = lambda message, *_, **__: f"pyggml: warning: {message}\n"
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _exit_on_signal)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that are not UTF-8
    try:
        code = program.main(prog_name="pyggml", standalone_mode=False)
        sys.stdout.flush()  # catch a closed pipe here rather than at exit
    except Exception as error:
        raise SystemExit(_report_error(error, "--debug" in sys.argv)) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _exit_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Exit with the code that shells expect, after clean-up: remove partial files, restore the terminal."""
    del frame
    raise SystemExit(128 + number)


def _report_error(error: Exception, debug: bool) -> int:
    """Print an error, and return its exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # Buffered output would raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if debug:
        traceback.print_exception(error)
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "pyggml"
    click.echo(f"{path}: {one_line(error)}", err=True)
    return error.exit_code if isinstance(error, click.ClickException) else 1


def one_line(error: Exception) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, click.ClickException):
        return with_option_names(" ".join(error.format_message().split()))
    errors = sys.modules.get("pyggml.errors")  # None if the library was not imported
    if (errors is not None and isinstance(error, errors.InferError)) or type(error) is ImportError:
        return with_option_names(" ".join(str(error).split()))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"this is a bug in pyggml; --debug shows where: {type(error).__name__}: {error}"


def with_option_names(text: str) -> str:
    """Replace parameters in a message of the library with options of the command line."""
    for phrase, replacement in _OPTION_NAMES.items():
        text = text.replace(phrase, replacement)
    return text


@click.group(cls=Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="pyggml %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    r"""Run, inspect, convert and measure local language models.

    \b
    pyggml chat -m model.gguf
    pyggml generate -m model.gguf -p "Once upon a time" -n 64
    pyggml inspect hf:org/repo

    The default model is the small one that ships with pyggml. PYGGML_CACHE is the folder for imported models.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command("help", cls=Command)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def _help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command."""
    assert ctx.parent is not None
    program.main([*words, "--help"], ctx.parent.command_path, standalone_mode=False)


@click.command("version", cls=Command)
def _version() -> None:
    """Show the version."""
    click.echo(f"pyggml {__version__}")


# Subcommands of other tools that are options here.
_HIDDEN_COMMANDS = {"help": _help, "version": _version}

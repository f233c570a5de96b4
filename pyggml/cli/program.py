"""The command itself: it finds subcommands when they are needed, and turns their errors into lines and exit codes."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import shlex
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from pyggml import __version__
from pyggml.cli.command import Command, CommandGroup
from pyggml.cli.command_hints import ALIASES, command_hint

#: Subcommand -> what it does. The module of the same name (with _ for -) in this package defines it as ``command``.
COMMANDS = {
    "generate": "Continue a text, and show it as it is generated.",
    "chat": "Chat with a model.",
    "batch": "Answer a file of prompts, and go on where a killed job stopped.",
    "serve": "Serve models over HTTP.",
    "rpc-serve": "Lend this machine's devices to other hosts.",
    "inspect": "Show what a model is, what is wrong with it, and whether it fits.",
    "convert": "Convert a Hugging Face directory to a GGUF file.",
    "quantize": "Make a GGUF file smaller.",
    "imatrix": "Find out which weights of a model matter most, for quantize.",
    "perplexity": "Measure how well a model predicts a text.",
    "cache": "Show, download or remove models on this machine.",
    "bench": "Measure how fast models are, side by side.",
    "doctor": "Show what this installation and this machine can do, and what is wrong.",
    "completion": "Print the script that makes a shell complete this command.",
}

# Phrases in messages of the library and of click, and how the command line says the same.
_WORDS = {
    "say requantize=True": "say --requantize",
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


# Options that say which model or text: whoever begins with one has left out the command.
_BEGINNINGS = {"-m", "--model", "-hf", "--hf-repo", "-p", "--prompt", "-f", "--file"}
_OF_A_TEXT = {"-p", "--prompt", "-f", "--file"}


class Program(CommandGroup):
    """A group that imports a subcommand only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The subcommand of that name."""
        if cmd_name in _SMALL_COMMANDS:
            return _SMALL_COMMANDS[cmd_name]
        name = ALIASES["pyggml"].get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        return command_of(name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses what stands before the subcommand; where there is none, says which was probably meant."""
        if args and args[0] in _BEGINNINGS:
            command = "generate" if _OF_A_TEXT & {*args} else "chat"
            ctx.fail(f"The command is missing: type 'pyggml {shlex.join([command, *args])}'")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand; where there is none of that name, says what to type instead."""
        name, *rest = args
        if name not in {*COMMANDS, *ALIASES["pyggml"], *_SMALL_COMMANDS}:
            ctx.fail(_unknown(name, rest))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of subcommands in the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def command_of(name: str) -> click.Command:
    """The subcommand that ``COMMANDS`` calls so."""
    command = importlib.import_module(f"pyggml.cli.{name.replace('-', '_')}").command
    assert isinstance(command, click.Command)
    return command


def _unknown(name: str, rest: list[str]) -> str:
    """What to say of a word that is no command."""
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
    """Runs the command line of this process. See :func:`pyggml.cli.main` for the exit codes."""
    # A stream that the shell closed (">&-") is None.
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not what nohup makes the program ignore
            signal.signal(number, _leave)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has every character
    try:
        code = program.main(prog_name="pyggml", standalone_mode=False)
        sys.stdout.flush()  # a closed pipe raises here, where it can still be caught
    except Exception as error:
        raise SystemExit(_report(error, "--debug" in sys.argv)) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ends with the exit code that shells expect, but cleans up: half-written files go, the terminal is restored."""
    del frame
    raise SystemExit(128 + number)


def _report(error: Exception, debug: bool) -> int:
    """Prints what happened, and returns the exit code for it."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # What is still buffered would raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if debug:
        traceback.print_exception(error)
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "pyggml"
    click.echo(f"{path}: {one_line(error)}", err=True)
    return error.exit_code if isinstance(error, click.ClickException) else 1


def one_line(error: Exception) -> str:
    """The message of an error, in one line."""
    if isinstance(error, click.ClickException):
        return in_words(" ".join(error.format_message().split()))
    errors = sys.modules.get("pyggml.errors")  # not imported: then it is not one of them
    if (errors is not None and isinstance(error, errors.InferError)) or type(error) is ImportError:
        return in_words(" ".join(str(error).split()))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"this is a bug in pyggml; --debug shows where: {type(error).__name__}: {error}"


def in_words(text: str) -> str:
    """What the library says, in the words of the command."""
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
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

    Commands that are given no model use the small one that ships with pyggml. PYGGML_CACHE names the folder in which
    imported models are kept.
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


# What others say as commands and we as options.
_SMALL_COMMANDS = {"help": _help, "version": _version}

"""What all subcommands have in common, and options that answer to names from other tools."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import click

from pyggml.cli.command_hints import ALIASES, option_hints


class Option(click.Option):
    """An option with names from other tools, which work like its own but which help does not show."""

    def __init__(self, *args: Any, other_names: Sequence[str] = (), **settings: Any) -> None:
        """Takes what click's option takes.

        Args:
            *args: see click.
            other_names: as they are typed, such as "--temp".
            **settings: see click.
        """
        super().__init__(*args, **settings)
        self._other_names = list(other_names)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Makes the parser know all names."""
        shown = self.opts
        self.opts = [*shown, *self._other_names]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Command(click.Command):
    """A subcommand with the option ``--debug``, which all have, and answers to options that only other tools have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.help is not None:
            self.help = self.help.replace("\\b", "\b")  # docstrings are raw: click's mark for "do not rewrap"
        self.params.append(_debug_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line; of options, suggests only those that there are."""
        try:
            return super().parse_args(ctx, _with_dashes(args))
        except click.NoSuchOption as error:
            options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
            known = {name.lstrip("-"): name for option in options for name in (*option.opts, *option.secondary_opts)}
            near = [known[word] for word in difflib.get_close_matches(error.option_name.lstrip("-"), known)]
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx) from None
        except click.BadOptionUsage as error:  # "--think=false" gives a value to what is only answered
            answer = option_hints(self.name or "").get(error.option_name)
            if answer is None:
                raise
            raise _refusal(error.option_name, answer, ctx) from None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, and hidden ones for the options that are answered instead of obeyed."""
        own = super().get_params(ctx)
        shown = {name for param in own for name in (*param.opts, *param.secondary_opts)}
        answers = option_hints(self.name or "")
        return [*own, *(_Answered(name, answers[name]) for name in answers if name not in shown)]


class CommandGroup(Command, click.Group):
    """A subcommand with subcommands of its own, which have the names that other tools give them, too."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name."""
        return super().get_command(ctx, ALIASES.get(self.name or "", {}).get(cmd_name, cmd_name))


class _Answered(click.Option):
    """An option of other tools. The parser has to know it: it would read ``-fa`` as ``-f a``."""

    def __init__(self, name: str, answer: str) -> None:
        super().__init__(
            [name, "answered"], is_flag=True, flag_value=name, is_eager=True, hidden=True, expose_value=False
        )
        self._answer = answer

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> Any:
        """Answers if the option is given."""
        name = self.opts[0]
        if opts.get(self.name) != name:
            return None, args
        raise _refusal(name, self._answer, ctx)


def _with_dashes(args: Sequence[str]) -> list[str]:
    """Arguments in which options such as ``--n_ctx``, as vLLM and llama-cpp-python spell them, have our spelling."""
    end = args.index("--") if "--" in args else len(args)
    return [re.sub(r"^--[\w-]+", lambda name: name[0].replace("_", "-"), arg) for arg in args[:end]] + [*args[end:]]


def _refusal(option: str, answer: str, ctx: click.Context) -> click.UsageError:
    return click.UsageError(f"No such option: {option}: {answer}", ctx)


def _debug_option() -> click.Option:
    # What runs the command looks for it by itself, since parsing may be what fails.
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, help="Show where in the code an error came from."
    )

"""Base classes of subcommands and options, with names and hints for users of other tools."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import click

from pyggml.cli.command_hints import ALIASES, option_hints


class Option(click.Option):
    """An option with hidden aliases: its names in other tools."""

    def __init__(self, *args: Any, other_names: Sequence[str] = (), **settings: Any) -> None:
        """Extend click.Option by ``other_names`` as they are typed, such as "--temp"."""
        super().__init__(*args, **settings)
        self._other_names = list(other_names)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Register all names with the parser."""
        shown = self.opts
        self.opts = [*shown, *self._other_names]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Command(click.Command):
    """A subcommand with the option ``--debug``, and hints for options that only other tools have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.help is not None:
            self.help = self.help.replace("\\b", "\b")  # docstrings are raw: click's mark for "do not rewrap"
        # ``run`` looks for --debug itself, because parsing may fail.
        self.params.append(
            click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error.")
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and suggest only visible options for an unknown one."""
        try:
            return super().parse_args(ctx, _normalise_dashes(args))
        except click.NoSuchOption as error:
            options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
            known = {name.lstrip("-"): name for option in options for name in (*option.opts, *option.secondary_opts)}
            near = [known[word] for word in difflib.get_close_matches(error.option_name.lstrip("-"), known)]
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx) from None
        except click.BadOptionUsage as error:  # "--think=false" passes a value to another tool's option
            answer = option_hints(self.name or "").get(error.option_name)
            if answer is None:
                raise
            raise _no_such_option(error.option_name, answer, ctx) from None
        except click.UsageError as error:
            if "unexpected extra argument" in error.message and any("--model" in each.opts for each in self.params):
                raise click.UsageError(f"{error.message}: the model is an option, -m MODEL", ctx) from None
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with hidden ones for the options of other tools."""
        own = super().get_params(ctx)
        shown = {name for param in own for name in (*param.opts, *param.secondary_opts)}
        answers = option_hints(self.name or "")
        return [*own, *(_ForeignOption(name, answers[name]) for name in answers if name not in shown)]


class CommandGroup(Command, click.Group):
    """A subcommand with nested subcommands, which also have aliases from other tools."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand with a name or alias."""
        return super().get_command(ctx, ALIASES.get(self.name or "", {}).get(cmd_name, cmd_name))


class _ForeignOption(click.Option):
    """An option of another tool, which fails with a hint. Without it, the parser would read ``-fa`` as ``-f a``."""

    def __init__(self, name: str, answer: str) -> None:
        super().__init__(
            [name, "answered"], is_flag=True, flag_value=name, is_eager=True, hidden=True, expose_value=False
        )
        self._answer = answer

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> Any:
        """Fail with the hint if the option is given."""
        name = self.opts[0]
        if opts.get(self.name) != name:
            return None, args
        raise _no_such_option(name, self._answer, ctx)


def _normalise_dashes(args: Sequence[str]) -> list[str]:
    """Replace underscores in option names such as ``--n_ctx``, as vLLM and llama-cpp-python spell them."""
    end = args.index("--") if "--" in args else len(args)
    return [re.sub(r"^--[\w-]+", lambda name: name[0].replace("_", "-"), arg) for arg in args[:end]] + [*args[end:]]


def _no_such_option(option: str, answer: str, ctx: click.Context) -> click.UsageError:
    return click.UsageError(f"No such option: {option}: {answer}", ctx)

"""The commands of a chat, which begin with a slash."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

import pyggml
from pyggml.cli.arguments import sampling
from pyggml.cli.chat.session import Session, conversation_in
from pyggml.cli.show.screen import stats_line

# A word, and whatever follows: "/usr/bin" and "/* text */" do not match.
_COMMAND = re.compile(r"\s*/([A-Za-z?]+)(?:\s+(.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """What to do now.

    Attributes:
        say: this to the user.
        ask: the model this; None: nothing.
        leave: the chat ends.
    """

    say: str = ""
    ask: str | None = None
    leave: bool = False


@dataclass(frozen=True)
class SlashCommand:
    """One of the commands.

    Attributes:
        run: does it, given what follows its name.
        argument: what that is, for the help.
        help: what it does.
    """

    run: Callable[[Session, str], Outcome]
    argument: str
    help: str


def understood(session: Session, line: str) -> Outcome:
    """Does what an input says: a command, or else a question.

    Raises:
        click.ClickException, InferError, OSError: it failed.
    """
    match = _COMMAND.match(line)
    if match is None:
        return Outcome(ask=line)
    name, argument = match.group(1).lower(), (match.group(2) or "").strip()
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is None:
        raise click.ClickException(f"there is no command /{name}; /help lists them")
    return command.run(session, argument)


def _help(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    rows = {f"/{name} {command.argument}".strip(): command.help for name, command in COMMANDS.items()}
    width = max(map(len, rows))
    return Outcome("\n".join([f"{usage:{width}}  {text}" for usage, text in rows.items()] + _KEYS))


def _reset(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    session.reset()
    return Outcome("The conversation starts over.")


def _system(session: Session, argument: str) -> Outcome:
    if not argument:
        return Outcome(session.system or "There is no system message.")
    session.system = "" if argument == "none" else argument
    return Outcome("The system message is set.")


def _again(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    question = session.again()
    if question is None:
        raise click.ClickException("nothing has been asked yet")
    is_greedy = session.params.temperature == 0
    return Outcome("At temperature 0 the answer stays the same: /set temperature 0.8" if is_greedy else "", question)


def _undo(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    question = session.undo()
    if question is None:
        raise click.ClickException("nothing has been asked yet")
    return Outcome(f"Forgotten: {_cut(question)}")


def _save(session: Session, argument: str) -> Outcome:
    path = _path(argument)
    if path.exists() and not _is_conversation(path):
        raise click.ClickException(f"{path} exists and is not a saved conversation: choose another name")
    path.write_text(session.dumped(), encoding="utf-8")
    return Outcome(f"Saved: {path}")


def _load(session: Session, argument: str) -> Outcome:
    path = _path(argument)
    try:
        session.load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except pyggml.InvalidParameterError as error:
        raise click.ClickException(f"{path}: {error}") from None
    last = f", the last one: {_cut(session.messages[-1]['content'])}" if session.messages else ""
    return Outcome(f"{len(session.messages)} messages loaded{last}")


def _stats(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    if session.last is None:
        raise click.ClickException("nothing has been answered yet")
    return Outcome(stats_line(session.last))


def _set(session: Session, argument: str) -> Outcome:
    if not argument:
        given = sampling.differing(session.params)
        return Outcome("\n".join(f"{name} {value}" for name, value in given.items()) or "No parameters are set.")
    name, _, value = argument.partition(" ")
    if not value.strip():
        raise click.ClickException("/set needs a name and a value, such as /set temperature 0.8")
    session.params = sampling.changed(session.params, name, value.strip())
    return Outcome(f"{name} {value.strip()}")


def _exit(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    return Outcome(leave=True)


def _path(argument: str) -> Path:
    if not argument or "\0" in argument:
        raise click.ClickException("name a file")
    try:
        return Path(argument).expanduser()
    except RuntimeError as error:  # nobody's home
        raise click.ClickException(f"{argument}: {error}") from None


def _is_conversation(path: Path) -> bool:
    try:
        return bool(conversation_in(path.read_text(encoding="utf-8")))
    except (UnicodeDecodeError, pyggml.InvalidParameterError):
        return False


def _cut(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= 60 else f"{words[:59]}…"


#: Name -> command, in the order of the help.
COMMANDS = {
    "reset": SlashCommand(_reset, "", "Forget the conversation."),
    "retry": SlashCommand(_again, "", "Answer the last question again."),
    "undo": SlashCommand(_undo, "", "Forget the last question and its answer."),
    "system": SlashCommand(_system, "TEXT", "Set the system message; /system none removes it."),
    "set": SlashCommand(_set, "NAME VALUE", "Set a sampling parameter; without one, show those that are set."),
    "save": SlashCommand(_save, "FILE", "Save the conversation."),
    "load": SlashCommand(_load, "FILE", "Load a saved conversation and go on with it."),
    "stats": SlashCommand(_stats, "", "Show how many tokens the last answer took, and how long."),
    "help": SlashCommand(_help, "", "Show this help."),
    "exit": SlashCommand(_exit, "", "Leave the chat."),
}
_ALIASES = {"clear": "reset", "new": "reset", "regenerate": "retry", "quit": "exit", "bye": "exit", "?": "help"}
_KEYS = [
    "Ctrl-C stops an answer or clears the line; pressed twice it leaves, as Ctrl-D does.",
    'Alt-Enter or Ctrl-J begins a new line, and so does Enter after """ until the next """.',
    "Tab completes commands.",
]

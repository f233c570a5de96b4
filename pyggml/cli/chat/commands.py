"""The commands of a chat, which begin with a slash."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

import pyggml
from pyggml.cli.arguments.sampling import OPTIONS
from pyggml.cli.arguments.utf8 import text_of
from pyggml.cli.chat.session import Session, conversation_in
from pyggml.cli.chat.set_command import set_or_show, set_parameter
from pyggml.cli.show.screen import stats_line

# A word, and whatever follows: "/usr/bin" and "/* text */" do not match.
_COMMAND = re.compile(r"\s*/([A-Za-z?][A-Za-z_-]*)(?:\s+(.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """What to do now.

    Attributes:
        say: this to the user.
        ask: the model this; None: nothing.
        model: go on with this model; "": with the same.
        leave: the chat ends.
    """

    say: str = ""
    ask: str | None = None
    model: str = ""
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
        # In llm and Python these words alone leave.
        return Outcome(leave=True) if line.strip() in ("exit", "quit") else Outcome(ask=line)
    name, argument = match.group(1).lower(), (match.group(2) or "").strip()
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is not None:
        return command.run(session, argument)
    if (parameter := name.replace("-", "_")) in OPTIONS:
        return Outcome(set_parameter(session, parameter, argument))
    near = difflib.get_close_matches(name, [*COMMANDS, *OPTIONS], n=1)
    way_out = f"did you mean /{near[0]}?" if near else "/help lists them"
    raise click.ClickException(_ELSEWHERE.get(name, f"there is no command /{name}; {way_out}"))


def _help(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    name = argument.removeprefix("/").lower()
    name = _ALIASES.get(name, name)
    if name in COMMANDS:
        return Outcome(f"/{name} {COMMANDS[name].argument}".rstrip() + f"\n{COMMANDS[name].help}")
    if name in ("shortcut", "shortcuts", "keys"):
        return Outcome("\n".join(_KEYS))
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
    reason = session.reason_to_stay_the_same
    question = session.again()
    if question is None:
        raise click.ClickException("nothing has been asked yet")
    return Outcome(reason, question)


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
    if argument.startswith("hf:") or argument.endswith(".gguf"):
        raise click.ClickException(f"{argument} is a model, not a conversation: /model {argument}")
    path = _path(argument)
    if not path.exists():
        raise click.ClickException(f"there is no file {path}; /model NAME goes on with another model")
    try:
        source = session.load(text_of(path))
    except pyggml.InvalidParameterError as error:
        raise click.ClickException(f"{path}: {error}") from None
    last = f", the last one: {_cut(session.messages[-1]['content'])}" if session.messages else ""
    other = (
        f"\nThey were exchanged with another model: /model {source}" if source not in ("", session.model.source) else ""
    )
    return Outcome(f"{len(session.messages)} messages loaded{last}{other}")


def _model(session: Session, argument: str) -> Outcome:
    return Outcome(model=argument) if argument else Outcome(session.model.about)


def _show(session: Session, argument: str) -> Outcome:
    what = argument.lower() or "info"
    if what not in SHOWN:
        raise click.ClickException(f"there is nothing called {argument} to show; there are {', '.join(SHOWN)}")
    return Outcome(SHOWN[what](session))


def _read(session: Session, argument: str) -> Outcome:
    path = _path(argument)
    text = text_of(path)
    session.attached.append(f"--- File: {path} ---\n{text}")
    return Outcome(f"{path}, {len(text):,} characters, goes before the next question. /reset forgets it.")


def _stats(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    if session.last is None:
        raise click.ClickException("nothing has been answered yet")
    return Outcome(stats_line(session.last))


def _set(session: Session, argument: str) -> Outcome:
    return Outcome(set_or_show(session, argument))


def _temperature(session: Session, argument: str) -> Outcome:
    return Outcome(set_parameter(session, "temperature", argument))


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
    "set": SlashCommand(_set, "NAME VALUE", "Set how answers are sampled; without a value or a name, show it."),
    "temperature": SlashCommand(_temperature, "X", "Set the temperature, as /set temperature X."),
    "model": SlashCommand(_model, "MODEL", "Go on with another model; without one, show which it is."),
    "show": SlashCommand(_show, "WHAT", "Show info, parameters, system, template or license."),
    "read": SlashCommand(_read, "FILE", "Put a text file before the next question."),
    "save": SlashCommand(_save, "FILE", "Save the conversation and what you have set."),
    "load": SlashCommand(_load, "FILE", "Load a saved conversation and go on with it."),
    "stats": SlashCommand(_stats, "", "Show how many tokens the last answer took, and how long."),
    "help": SlashCommand(_help, "", "Show this help."),
    "exit": SlashCommand(_exit, "", "Leave the chat."),
}
_ALIASES = {
    **dict.fromkeys(("clear", "new"), "reset"),
    **dict.fromkeys(("regen", "regenerate"), "retry"),
    **dict.fromkeys(("quit", "bye", "q"), "exit"),
    "temp": "temperature",
    "?": "help",
}
# Commands of other tools, and what to do instead.
_ELSEWHERE = {
    "list": "pyggml cache list, outside of a chat, shows the models on this machine; /model MODEL changes to one",
    "image": "pyggml reads text only",
    "audio": "pyggml reads text only",
    "multi": '""" begins a message of several lines, and ends it',
}
#: What /show shows -> its text.
SHOWN: dict[str, Callable[[Session], str]] = {
    "info": lambda session: session.model.about,
    "parameters": lambda session: session.parameters.listed(),
    "system": lambda session: session.system or "There is no system message.",
    "template": lambda session: session.model.template,
    "license": lambda session: session.model.license or "The model does not name its license.",
    "modelfile": lambda session: f"pyggml has no Modelfiles: the model is {session.model.source or 'the shipped one'}.",
}
_KEYS = [
    "Ctrl-C stops an answer or clears the line; pressed twice it leaves, as Ctrl-D does.",
    'Alt-Enter or Ctrl-J begins a new line, and so does Enter after """ until the next """.',
    "Tab completes commands.",
]

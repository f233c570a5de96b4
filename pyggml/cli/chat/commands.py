"""The slash commands of a chat."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

import pyggml
from pyggml.cli.arguments.sampling import OPTIONS
from pyggml.cli.arguments.text_file import read_text
from pyggml.cli.chat.session import Session, parse_conversation
from pyggml.cli.chat.set_command import set_or_show, set_parameter
from pyggml.cli.show.screen import stats_line

# A command and its argument; "/usr/bin" and "/* text */" do not match.
_COMMAND = re.compile(r"\s*/([A-Za-z?][A-Za-z_-]*)(?:\s+(.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """The result of an input.

    Attributes:
        message: a message to the user.
        question: a question to the model.
        model: a model to change to.
        exits: True if the chat ends.
    """

    message: str = ""
    question: str | None = None
    model: str = ""
    exits: bool = False


@dataclass(frozen=True)
class SlashCommand:
    """A slash command: its function, and the name of its argument and the text for the help."""

    run: Callable[[Session, str], Outcome]
    argument: str
    help: str


def run_input(session: Session, line: str) -> Outcome:
    """Run an input if it is a command; else it is a question."""
    match = _COMMAND.match(line)
    if match is None:
        # As in llm and Python, these words alone exit.
        return Outcome(exits=True) if line.strip() in ("exit", "quit") else Outcome(question=line)
    name, argument = match.group(1).lower(), (match.group(2) or "").strip()
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is not None:
        return command.run(session, argument)
    if (parameter := name.replace("-", "_")) in OPTIONS:
        return Outcome(set_parameter(session, parameter, argument))
    near = difflib.get_close_matches(name, [*COMMANDS, *OPTIONS], n=1)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    raise click.ClickException(_FOREIGN_COMMANDS.get(name, f"there is no command /{name}; {hint}"))


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


def _retry(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    return Outcome(session.determinism_hint, session.retry())


def _undo(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    return Outcome(f"Removed: {_cut(session.undo())}")


def _save(session: Session, argument: str) -> Outcome:
    path = _path(argument)
    if path.exists() and not _is_conversation(path):
        raise click.ClickException(f"{path} exists and is not a saved conversation: choose another name")
    if path.exists() and path not in session.replaceable:
        session.replaceable.add(path)
        return Outcome(f"{path} has another conversation. Replace it? /save {argument} once more does so.")
    session.replaceable.add(path)
    path.write_text(session.to_json(), encoding="utf-8")
    return Outcome(f"Saved: {path}")


def _load(session: Session, argument: str) -> Outcome:
    if argument.startswith("hf:") or argument.endswith(".gguf"):
        raise click.ClickException(f"{argument} is a model, not a conversation: /model {argument}")
    path = _path(argument)
    if not path.exists():
        raise click.ClickException(f"there is no file {path}; to change the model, use /model NAME")
    try:
        source = session.load_json(read_text(path))
    except pyggml.InvalidParameterError as error:
        raise click.ClickException(f"{path}: {error}") from None
    last = f", the last one: {_cut(session.messages[-1]['content'])}" if session.messages else ""
    is_other = source not in ("", session.model.source)
    other = f"\nThe conversation used another model: /model {source}" if is_other else ""
    return Outcome(f"{len(session.messages)} messages loaded{last}{other}")


def _model(session: Session, argument: str) -> Outcome:
    return Outcome(model=argument) if argument else Outcome(session.model.summary)


def _show(session: Session, argument: str) -> Outcome:
    topic = argument.lower() or "info"
    if topic not in SHOW_TOPICS:
        raise click.ClickException(f"{argument} is not a topic of /show: use {', '.join(SHOW_TOPICS)}")
    return Outcome(SHOW_TOPICS[topic](session))


def _read(session: Session, argument: str) -> Outcome:
    path = _path(argument)
    text = read_text(path)
    session.attachments.append(f"--- File: {path} ---\n{text}")
    return Outcome(f"{path}: {len(text):,} characters will precede the next question. /reset removes them.")


def _stats(session: Session, argument: str) -> Outcome:  # noqa: ARG001
    if session.last is None:
        raise click.ClickException("there is no answer yet")
    return Outcome(stats_line(session.last))


def _path(argument: str) -> Path:
    if not argument or "\0" in argument:
        raise click.ClickException("name a file")
    try:
        return Path(argument).expanduser()
    except RuntimeError as error:  # no home directory
        raise click.ClickException(f"{argument}: {error}") from None


def _is_conversation(path: Path) -> bool:
    try:
        return bool(parse_conversation(path.read_text(encoding="utf-8")))
    except (UnicodeDecodeError, pyggml.InvalidParameterError):
        return False


def _cut(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= 60 else f"{words[:59]}…"


#: Name -> command, in the order of the help.
COMMANDS = {
    "reset": SlashCommand(_reset, "", "Start a new conversation."),
    "retry": SlashCommand(_retry, "", "Answer the last question again."),
    "undo": SlashCommand(_undo, "", "Remove the last question and its answer."),
    "system": SlashCommand(_system, "TEXT", "Set the system message; /system none removes it."),
    "set": SlashCommand(
        lambda session, argument: Outcome(set_or_show(session, argument)),
        "NAME VALUE",
        "Set a sampling parameter; without a value or a name, show the current values.",
    ),
    "temperature": SlashCommand(
        lambda session, argument: Outcome(set_parameter(session, "temperature", argument)),
        "X",
        "Set the temperature, as /set temperature X.",
    ),
    "model": SlashCommand(_model, "MODEL", "Change to another model; without one, show the current model."),
    "show": SlashCommand(_show, "TOPIC", "Show info, parameters, system, template or license."),
    "read": SlashCommand(_read, "FILE", "Attach a text file to the next question."),
    "save": SlashCommand(_save, "FILE", "Save the conversation and its parameters; asks before it replaces another."),
    "load": SlashCommand(_load, "FILE", "Load a saved conversation and continue it."),
    "stats": SlashCommand(_stats, "", "Show the number of tokens and the speed of the last answer."),
    "help": SlashCommand(_help, "", "Show this help."),
    "exit": SlashCommand(lambda _session, _argument: Outcome(exits=True), "", "Leave the chat."),
}
_ALIASES = {
    **dict.fromkeys(("clear", "new"), "reset"),
    **dict.fromkeys(("regen", "regenerate"), "retry"),
    **dict.fromkeys(("quit", "bye", "q"), "exit"),
    "temp": "temperature",
    "?": "help",
}
# Commands of other tools -> hint.
_FOREIGN_COMMANDS = {
    "list": "outside of a chat, pyggml cache list shows the models on this machine; /model MODEL changes to one",
    "image": "pyggml reads text only",
    "audio": "pyggml reads text only",
    "multi": '""" starts a message of several lines, and ends it',
}
#: Topic of /show -> its text.
SHOW_TOPICS: dict[str, Callable[[Session], str]] = {
    "info": lambda session: session.model.summary,
    "parameters": lambda session: session.parameters.summary(),
    "system": lambda session: session.system or "There is no system message.",
    "template": lambda session: session.model.template,
    "license": lambda session: session.model.license or "The model does not name its license.",
    "modelfile": lambda session: f"pyggml has no Modelfiles: the model is {session.model.source or 'the shipped one'}.",
}
_KEYS = [
    "Ctrl-C stops an answer or clears the line; pressed twice, it leaves the chat, like Ctrl-D.",
    'Alt-Enter or Ctrl-J starts a new line, and so does Enter between """ and the next """.',
    "Tab completes commands.",
]

"""``/set``: sampling parameters and settings of a chat, also with the names of ``ollama run``."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import click

from pyggml.cli.arguments.options import LOADING, option_names
from pyggml.cli.arguments.sampling import OPTIONS
from pyggml.cli.chat.parameters import value_text
from pyggml.cli.chat.session import Session
from pyggml.options import LoadOptions
from pyggml.sampling import SamplingParams

#: Setting -> description.
SETTINGS = {
    "thinking": "Let a reasoning model think before it answers.",
    "stats": "Show the number of tokens and the speed after each answer.",
    "wrap": "Break lines between words.",
}

_SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


def set_or_show(session: Session, argument: str) -> str:
    """Run ``/set`` with an argument, and return a message for the user."""
    name, _, value = argument.partition(" ")
    name, value = name.replace("-", "_").lower(), value.strip()
    if not name:
        return "\n".join([*_changed_settings(session), session.parameters.summary()])
    if name in _OLLAMA_COMMANDS:
        return _OLLAMA_COMMANDS[name](session, value)
    if name in SETTINGS:
        return _set_setting(session, name, value.lower())
    return set_parameter(session, name, value)


def _changed_settings(session: Session) -> list[str]:
    default = type(session.settings)()
    changed = [name for name in SETTINGS if getattr(session.settings, name) != getattr(default, name)]
    return [f"{name} {_switch_text(getattr(session.settings, name))}  {SETTINGS[name]}" for name in changed]


def _set_setting(session: Session, name: str, value: str) -> str:
    if not value:
        return f"{name} is {_switch_text(getattr(session.settings, name))}.\n{SETTINGS[name]}\nIt may be on or off."
    if value != "default" and value not in _SWITCHES:
        raise click.ClickException(f"{name} is on or off, not {value}")
    setattr(session.settings, name, getattr(type(session.settings)(), name) if value == "default" else _SWITCHES[value])
    return f"{name} {_switch_text(getattr(session.settings, name))}"


def _switch_text(value: bool | None) -> str:
    return "the default of the model's template" if value is None else "on" if value else "off"


def set_parameter(session: Session, name: str, value: str) -> str:
    """Set a sampling parameter or, without a value, explain it."""
    alias = SamplingParams.HINTS.get(name, "")
    name = alias if alias in OPTIONS else name
    if name not in OPTIONS:
        raise click.ClickException(_unknown_name_message(name))
    if not value:
        return session.parameters.explain(name)
    if value == "default":
        session.parameters.reset(name)
    else:
        try:
            parsed = OPTIONS[name].parse(value)
        except click.UsageError as error:
            raise click.ClickException(f"{name}: {error.message}") from None
        session.parameters.set({name: parsed})
    return f"{name} {value_text(OPTIONS[name].field, getattr(session.parameters.effective, name))}"


def _unknown_name_message(name: str) -> str:
    field = LOADING.get(LoadOptions.HINTS.get(name, name))
    if field is not None:  # ollama sets load options with /set parameter
        return f"{name} is an option of the command: pyggml chat {option_names(field)[-1]}"
    known = [*SETTINGS, "system", *OPTIONS]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use {', '.join(known)}"
    return f"{name} is not a parameter of /set; {hint}"


def _set_system(session: Session, text: str) -> str:
    session.system = text.strip('"')
    return "The system message is set." if session.system else "There is no system message."


def _set_parameter(session: Session, argument: str) -> str:
    name, _, value = argument.partition(" ")
    if not name:
        return session.parameters.summary()
    return set_parameter(session, name.replace("-", "_").lower(), value.strip())


def _switch(name: str, value: str) -> Callable[[Session, str], str]:
    return lambda session, _argument: _set_setting(session, name, value)


def _think(session: Session, level: str) -> str:
    if level:
        raise click.ClickException("pyggml has no thinking levels: use /set thinking on")
    return _set_setting(session, "thinking", "on")


def _format(session: Session, form: str) -> str:
    if form != "json":
        raise click.ClickException("the only format is json; for a schema, use /set json_schema FILE")
    session.parameters.set({"json_schema": {}})
    return "Answers are JSON; /set noformat disables it."


def _no_format(session: Session, _argument: str) -> str:
    session.parameters.reset("json_schema")
    return "The format of answers is no longer constrained."


def _history(_session: Session, _argument: str) -> str:
    raise click.ClickException("the history is always saved if its file is writable; see the manual for its path")


_OLLAMA_COMMANDS: dict[str, Callable[[Session, str], str]] = {
    "system": _set_system,
    "parameter": _set_parameter,
    "think": _think,
    "nothink": _switch("thinking", "off"),
    "verbose": _switch("stats", "on"),
    "quiet": _switch("stats", "off"),
    "wordwrap": _switch("wrap", "on"),
    "nowordwrap": _switch("wrap", "off"),
    "format": _format,
    "noformat": _no_format,
    "history": _history,
    "nohistory": _history,
}

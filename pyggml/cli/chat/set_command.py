"""``/set``: sampling parameters and the settings of a chat, also in the words of ``ollama run``."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import click

from pyggml.cli.arguments.options import LOADING, names_of
from pyggml.cli.arguments.sampling import OPTIONS
from pyggml.cli.chat.parameters import in_words
from pyggml.cli.chat.session import Session
from pyggml.options import LoadOptions
from pyggml.sampling import SamplingParams

#: Setting -> what it does.
SETTINGS = {
    "thinking": "Whether a model that can reason does so before it answers.",
    "stats": "Whether each answer is followed by how many tokens it took, and how fast they came.",
    "wrap": "Whether lines end between words.",
    "repetition": "Whether an answer may repeat itself without end.",
}

_SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


def set_or_show(session: Session, argument: str) -> str:
    """Does what ``/set`` and its argument say, and returns what to tell the user.

    Raises:
        click.ClickException: there is no such parameter, or the value is invalid.
        InvalidParameterError: the value contradicts other parameters.
    """
    name, _, value = argument.partition(" ")
    name, value = name.replace("-", "_").lower(), value.strip()
    if not name:
        return "\n".join([*_settings(session), session.parameters.listed()])
    if name in _AS_OLLAMA_HAS_IT:
        return _AS_OLLAMA_HAS_IT[name](session, value)
    if name in SETTINGS:
        return _setting(session, name, value.lower())
    return _parameter(session, name, value)


def set_parameter(session: Session, name: str, value: str) -> str:
    """Sets or explains a sampling parameter; as :func:`set_or_show`."""
    return _parameter(session, name, value)


def _settings(session: Session) -> list[str]:
    """Settings that are not as they are in every chat."""
    usual = type(session.settings)()
    changed = [name for name in SETTINGS if getattr(session.settings, name) != getattr(usual, name)]
    return [f"{name} {_switch(getattr(session.settings, name))}  {SETTINGS[name]}" for name in changed]


def _setting(session: Session, name: str, value: str) -> str:
    if not value:
        return f"{name} is {_switch(getattr(session.settings, name))}.\n{SETTINGS[name]}\nIt may be on or off."
    if value != "default" and value not in _SWITCHES:
        raise click.ClickException(f"{name} is on or off, not {value}")
    setattr(session.settings, name, getattr(type(session.settings)(), name) if value == "default" else _SWITCHES[value])
    return f"{name} {_switch(getattr(session.settings, name))}"


def _switch(value: bool | None) -> str:
    return "as the model's template has it" if value is None else "on" if value else "off"


def _parameter(session: Session, name: str, value: str) -> str:
    meant = SamplingParams.HINTS.get(name, "")
    name = meant if meant in OPTIONS else name
    if name not in OPTIONS:
        raise click.ClickException(_elsewhere(name))
    if not value:
        return session.parameters.explained(name)
    if value == "default":
        session.parameters.reset(name)
    else:
        session.parameters.set({name: _parsed(name, value)})
    return f"{name} {in_words(OPTIONS[name].field, getattr(session.parameters.effective, name))}"


def _elsewhere(name: str) -> str:
    """What to say of something that is not set here."""
    field = LOADING.get(LoadOptions.HINTS.get(name, name))
    if field is not None:  # in ollama these are set like the others
        return f"{name} is set when a chat begins: pyggml chat {names_of(field)[-1]}"
    known = [*SETTINGS, "system", *OPTIONS]
    close = difflib.get_close_matches(name, known, n=1)
    return f"there is nothing called {name} to set; " + (
        f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    )


def _parsed(name: str, text: str) -> object:
    try:
        return OPTIONS[name].parsed(text)
    except click.UsageError as error:
        raise click.ClickException(f"{name}: {error.message}") from None


def _set_system(session: Session, text: str) -> str:
    session.system = text.strip('"')
    return "The system message is set." if session.system else "There is no system message."


def _set_parameter(session: Session, argument: str) -> str:
    name, _, value = argument.partition(" ")
    return _parameter(session, name.replace("-", "_").lower(), value.strip()) if name else session.parameters.listed()


def _always(name: str, value: str) -> Callable[[Session, str], str]:
    return lambda session, _argument: _setting(session, name, value)


def _think(session: Session, level: str) -> str:
    if level:
        raise click.ClickException("thinking has no levels here: /set thinking on")
    return _setting(session, "thinking", "on")


def _format(session: Session, form: str) -> str:
    if form != "json":
        raise click.ClickException("the format may be json; /set json_schema FILE takes a schema")
    session.parameters.set({"json_schema": {}})
    return "Answers are JSON; /set noformat ends that."


def _no_format(session: Session, _argument: str) -> str:
    session.parameters.reset("json_schema")
    return "Answers have any form."


def _history(_session: Session, _argument: str) -> str:
    raise click.ClickException("the history of a chat is kept if its file can be written; the manual says where it is")


_AS_OLLAMA_HAS_IT: dict[str, Callable[[Session, str], str]] = {
    "system": _set_system,
    "parameter": _set_parameter,
    "think": _think,
    "nothink": _always("thinking", "off"),
    "verbose": _always("stats", "on"),
    "quiet": _always("stats", "off"),
    "wordwrap": _always("wrap", "on"),
    "nowordwrap": _always("wrap", "off"),
    "format": _format,
    "noformat": _no_format,
    "history": _history,
    "nohistory": _history,
}

"""The adapters of a request, and those that a model is loaded with, as callers write them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping

from pyggml._core.checks import c_string, finite, invalid, shown

#: A name, or name -> scale.
AdapterChoice = str | Mapping[str, float]


def checked_choice(choice: AdapterChoice) -> AdapterChoice:
    """Return the adapters of a request: a name, or a dictionary of names and finite scales.

    Raises:
        InvalidParameterError: it is neither.
    """
    if isinstance(choice, str):
        return _name(choice)
    if not isinstance(choice, Mapping):
        raise invalid(
            "adapter must be the name of an adapter, or a mapping of names and scales such as {'law': 0.5}, not "
            f"{shown(choice)}"
        )
    return {
        _name(name): finite(f"the scale of the adapter {name!r}", scale, -math.inf) for name, scale in choice.items()
    }


def checked_lora(given: object) -> dict[str, float]:
    """Return source -> scale of the adapters to load with a model, from any form of the option ``lora``.

    Text has sources separated by commas, each with a scale after a colon if it is not 1.

    Raises:
        InvalidParameterError: it is of another form, or names a source twice.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        pairs = [(_source(source), scale) for source, scale in given.items()]
    elif isinstance(given, (str, os.PathLike)):
        pairs = _parsed(given)
    elif isinstance(given, Iterable):
        pairs = [pair for each in given for pair in _parsed(each)]
    else:
        raise invalid(f"lora must be an adapter's file, several, or a mapping of files and scales, not {shown(given)}")
    found: dict[str, float] = {}
    for source, scale in pairs:
        if source in found:
            raise invalid(f"lora names {source} twice")
        found[source] = finite(f"the scale of {source}", scale, -math.inf)
    return found


def _parsed(given: object) -> list[tuple[str, float]]:
    if not isinstance(given, str):
        return [(_source(given), 1.0)]
    return [_source_and_scale(part) for part in given.split(",") if part]


def _source_and_scale(text: str) -> tuple[str, float]:
    source, colon, scale = text.rpartition(":")
    try:
        return (source, float(scale)) if colon and source else (text, 1.0)
    except ValueError:  # the colon of a reference, or of a drive
        return text, 1.0


def _source(source: object) -> str:
    if not isinstance(source, (str, os.PathLike)):
        raise invalid(f"an adapter must be given as a path or a reference, not {shown(source)}")
    return os.fspath(source)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise invalid(f"the name of an adapter must be text that is not empty, not {shown(name)}")
    c_string("the name of an adapter", name)
    return name

"""The adapters of a request, and those that a model is loaded with, as callers write them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from pyggml._core.checks import c_string, finite, invalid, iterate, shown

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


class LoraSource(NamedTuple):
    """An adapter to load with a model.

    Attributes:
        source: its file, directory or reference.
        name: its name in requests; None: the source's.
        scale: its scale in requests that name no adapter; 0: only loaded.
    """

    source: str
    name: str | None
    scale: float


def checked_lora(given: object) -> list[LoraSource]:
    """Return the adapters to load with a model, from any form of the option ``lora``.

    Text is ``[NAME=]FILE[:SCALE]``, or several of these with commas between them, unless it is the path of a file.

    Raises:
        InvalidParameterError: it is of another form, or names a source twice.
    """
    if given is None:
        return []
    if isinstance(given, Mapping):
        parsed = [LoraSource(*_named(source), scale) for source, scale in given.items()]
    elif isinstance(given, str) and not os.path.lexists(given):
        parsed = [_parsed(part) for part in given.split(",") if part]
    elif isinstance(given, (str, os.PathLike)):
        parsed = [_parsed(given)]
    else:
        parsed = [_parsed(each) for each in iterate("lora", given, "an adapter's file, several, or a mapping")]
    for number, each in enumerate(parsed):
        if any(each[:2] == other[:2] for other in parsed[:number]):
            raise invalid(f"lora names {each.source} twice")
    return [each._replace(scale=finite(f"the scale of {each.source}", each.scale, -math.inf)) for each in parsed]


def _parsed(given: object) -> LoraSource:
    source, name = _named(given)
    before, colon, scale = source.rpartition(":")
    if isinstance(given, str) and colon and before and not os.path.lexists(source):
        try:
            return LoraSource(before, name, float(scale))
        except ValueError:  # the colon of a reference, or of a drive
            pass
    return LoraSource(source, name, 1.0)


def _named(given: object) -> tuple[str, str | None]:
    """Split NAME=SOURCE; a path that exists, or has a separator before the sign, is only a source."""
    source = _source(given)
    name, sign, file = source.partition("=")
    is_named = isinstance(given, str) and sign and name and file and not {"/", os.sep} & set(name)
    return (file, name) if is_named and not os.path.lexists(source) else (source, None)


def _source(source: object) -> str:
    if not isinstance(source, (str, os.PathLike)):
        raise invalid(f"an adapter must be given as a path or a reference, not {shown(source)}")
    return os.fspath(source)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise invalid(f"the name of an adapter must be text that is not empty, not {shown(name)}")
    c_string("the name of an adapter", name)
    return name

"""Option tables of a server, and the settings that one source gives."""

from __future__ import annotations

import contextlib
import difflib
import json
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_origin

import pyggml
from pyggml.options import Field, LoadOptions, require_known
from pyggml.sampling import SamplingParams
from pyggml.server.settings.options import LOADING, SAMPLING, SERVING, ModelSpec, Settings
from pyggml.units import parse_bytes

Options = Mapping[str, Any]


class Table(NamedTuple):
    """A table of options.

    Attributes:
        cls: the class that declares them.
        fields: the options that a server accepts.
    """

    cls: type
    fields: Mapping[str, Field]


#: By the name of the table in a configuration file.
TABLES = {
    "server": Table(Settings, SERVING),
    "load": Table(LoadOptions, LOADING),
    "sampling": Table(SamplingParams, SAMPLING),
}


@dataclass(frozen=True)
class PartialSettings:
    """The settings that one source gives: the command line, the environment or a file.

    Attributes:
        source: the source's name in error messages; "": messages do not name it.
        server: the server's own options.
        load: options of :func:`pyggml.load`.
        sampling: fields of SamplingParams.
        models: the models.
        names: for each model, in order, its name and then its aliases.
        api_keys: accepted API keys.
    """

    source: str = ""
    server: Options = field(default_factory=dict)
    load: Options = field(default_factory=dict)
    sampling: Options = field(default_factory=dict)
    models: Sequence[ModelSpec] = ()
    names: Sequence[Sequence[str]] = ()
    api_keys: Sequence[str] = ()


@contextlib.contextmanager
def errors_at(location: str) -> Iterator[None]:
    """Prefix errors with the location of the wrong value."""
    try:
        yield
    except pyggml.InvalidParameterError as error:
        raise type(error)(f"{location}: {error}" if location else str(error)) from None


def check_option(table: str, name: str, value: Any) -> Any:
    """Return the value of an option, converted to its type.

    Raises:
        InvalidParameterError: the option does not exist, belongs to another table, or its value is wrong.
    """
    cls, fields = TABLES[table]
    for other, each in TABLES.items():
        if name in each.fields and name not in fields:
            raise pyggml.InvalidParameterError(f"{name} belongs in the table [{other}]")
    require_known(cls, [name], known=fields)
    return fields[name].checked(value)


def table_of(name: str) -> str:
    """Return the table of an option, or of the most similar name if there is no such option."""
    foreign = {each: table for table, (cls, _) in TABLES.items() for each in getattr(cls, "HINTS", {})}
    known = foreign | {each: table for table, (_, fields) in TABLES.items() for each in fields}
    similar = [name] if name in known else difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return known[similar[0]] if similar else "server"


_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def parse_text(field: Field, text: str) -> Any:
    """Convert a text to a field's type; return the text if that fails, so that ``Field.checked`` refuses it.

    Args:
        field: the field's declaration.
        text: the text.
    """
    try:
        return _parse_text(field, text)
    except ValueError:
        return text


def _parse_text(field: Field, text: str) -> Any:
    if types.NoneType in field.types and text.lower() == "none":
        return None
    if text in field.words:
        return text
    if bool in field.types:
        return _FLAGS.get(text.lower(), text)
    if int in field.types:
        return parse_bytes(text) if field.is_size else int(text)
    if float in field.types:
        return float(text)
    if accepts(field, Mapping) and str not in field.types:
        pairs = (part.partition("=") for part in text.split(","))  # "42=-inf,7=1.5"
        return {int(key): float(number) for key, _, number in pairs}
    if accepts(field, tuple, Sequence) and str not in field.types:
        items = json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(",")]
        return tuple(map(int, items)) if Sequence[int] in field.types else tuple(items)
    return text


def accepts(field: Field, *collections: Any) -> bool:
    """Check whether a field accepts one of these kinds of collection."""
    origins = [get_origin(each[Any]) for each in collections]
    return any(get_origin(each) in origins for each in field.types)

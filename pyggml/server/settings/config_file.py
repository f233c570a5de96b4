"""A server's settings in a TOML file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyggml
from pyggml.options import Field, require_known
from pyggml.server.settings.options import ModelSpec
from pyggml.server.settings.sources import TABLES, Given, checked, from_text, holds, in_place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OF_A_MODEL = ("source", "name", "aliases", "load", "sampling")
_PATHS = ("api_key_file", "tokenizer", "chat_template")
_NO_KEYS_HERE = "keys are not in this file, which others may read: api_key_file names one, or set PYGGML_API_KEY"


def given_by(path: Path) -> Given:
    """What a file says. Relative paths in it begin in its folder.

    Raises:
        InvalidParameterError: it cannot be read, is not TOML, or something in it is wrong.
    """
    tables = _parsed(path)
    models = tables.pop("models", [])
    for name in tables:
        _require_table(name, str(path))
    if not isinstance(models, list):
        _refuse(str(path), "a model is a table [[models]]")
    options = {name: _options(_Place(path, name, f"[{name}]"), tables.get(name, {})) for name in TABLES}
    return Given(
        str(path),
        server=options["server"],
        load=options["load"],
        sampling=options["sampling"],
        models=[_model(path, values) for values in models],
    )


@dataclass(frozen=True)
class _Place:
    """A table in a file.

    Attributes:
        path: the file.
        table: the key of TABLES.
        shown: the table, as it is written in the file.
    """

    path: Path
    table: str
    shown: str

    @property
    def where(self) -> str:
        return f"{self.path}, {self.shown}"


def _refuse(where: str, message: str) -> NoReturn:
    raise pyggml.InvalidParameterError(in_place(where, message))


def _parsed(path: Path) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        _refuse(str(path), f"the configuration cannot be read: {error.strerror}")
    except ValueError as error:  # of which those of TOML and of UTF-8 are
        _refuse(str(path), f"this is not TOML: {error}")
    return tables


def _require_table(name: str, where: str) -> None:
    if name in TABLES:
        return
    for table, (_, fields) in TABLES.items():
        if name in fields:
            _refuse(where, f"{name} belongs in the table [{table}]")
    _refuse(where, f"there is no table [{name}]; there are [{'], ['.join(TABLES)}] and [[models]]")


def _options(place: _Place, options: object) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        _refuse(str(place.path), f"{place.shown} must be a table, not {options!r:.200}")
    if place.table == "server" and {"api_key", "api_keys"} & {*options}:
        _refuse(place.where, _NO_KEYS_HERE)
    fields = TABLES[place.table].fields
    return {
        name: checked(place.table, name, _value(fields[name], value, place) if name in fields else value, place.where)
        for name, value in options.items()
    }


def _value(field: Field, value: Any, place: _Place) -> Any:
    """The field's value that a TOML value stands for; the same value if it stands for none."""
    if isinstance(value, str):
        has_own_kind = bool({int, float, bool} & {*field.types}) and not field.is_size
        if has_own_kind and value not in (*field.words, "none"):
            return value  # not "8080"
        value = from_text(field, value)
        return located(value, place.path) if field.name in _PATHS and isinstance(value, str) else value
    if isinstance(value, list) and holds(field, tuple, Sequence):
        return tuple(value)
    if isinstance(value, Mapping) and holds(field, Mapping):
        return {int(key) if key.isdecimal() else key: each for key, each in value.items()}
    if not {int, float, bool} & {*field.types}:
        kind = "a list" if holds(field, tuple, Sequence) else "a string"
        _refuse(place.where, f"{field.name} must be {kind}, not {value!r:.200}")
    return value


def _model(path: Path, values: object) -> ModelSpec:
    if not isinstance(values, Mapping):
        _refuse(str(path), f"a model is a table [[models]], not {values!r:.200}")
    source = values.get("source")
    shown = f"[[models]] {values.get('name') or source or ''}".rstrip()
    for name in values:
        for table in ("load", "sampling"):
            if name in TABLES[table].fields:
                _refuse(f"{path}, {shown}", f"{name} belongs in the table [models.{table}]")
    options = {
        table: _options(_Place(path, table, f"{shown}, {table}"), values.get(table, {}))
        for table in ("load", "sampling")
    }
    try:
        require_known(ModelSpec, values, known=_OF_A_MODEL)
        where = located(source, path) if isinstance(source, str) else source
        return ModelSpec(where, values.get("name"), values.get("aliases", ()), **options)
    except pyggml.InvalidParameterError as error:
        raise type(error)(in_place(f"{path}, {shown}", str(error))) from None


def located(text: str, path: Path) -> str:
    """A path in the folder of a file, if there is such a thing; ``~`` is the user's folder."""
    if text.startswith("~/"):
        return str(Path(text).expanduser())
    inside = path.parent / text
    try:
        return str(inside) if inside.exists() else text
    except OSError:  # a template is longer than a path may be
        return text

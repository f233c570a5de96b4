"""Server settings from a TOML file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyggml
from pyggml.options import Field, require_known
from pyggml.server.settings.options import ModelSpec
from pyggml.server.settings.tables import TABLES, PartialSettings, accepts, check_option, errors_at, parse_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MODEL_KEYS = ("source", "name", "aliases", "load", "sampling")
_PATH_FIELDS = ("api_key_file", "tls_cert", "tls_key", "slot_save_path", "warm", "tokenizer", "chat_template")


def read_config_file(path: Path) -> PartialSettings:
    """Read a configuration file. Relative paths in it are relative to its folder.

    Raises:
        InvalidParameterError: the file cannot be read, is not TOML, or has a wrong setting.
    """
    with errors_at(str(path)):
        tables = _parse(path)
        models = tables.pop("models", [])
        for name in tables:
            _require_table(name)
        if not isinstance(models, list):
            raise pyggml.InvalidParameterError("a model is a table [[models]]")
    options = {table: _options(path, table, f"[{table}]", tables.get(table, {})) for table in TABLES}
    return PartialSettings(
        str(path),
        server=options["server"],
        load=options["load"],
        sampling=options["sampling"],
        models=[_model(path, values) for values in models],
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise pyggml.InvalidParameterError(f"the configuration cannot be read: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise pyggml.InvalidParameterError(f"this is not TOML: {error}") from None
    return tables


def _require_table(name: str) -> None:
    if name in TABLES:
        return
    for table, (_, fields) in TABLES.items():
        if name in fields:
            raise pyggml.InvalidParameterError(f"{name} belongs in the table [{table}]")
    raise pyggml.InvalidParameterError(f"there is no table [{name}]; there are [{'], ['.join(TABLES)}] and [[models]]")


def _options(path: Path, table: str, title: str, options: object) -> dict[str, Any]:
    """Return the options in a table of the file; ``title`` is the table's name in messages."""
    if not isinstance(options, Mapping):
        raise pyggml.InvalidParameterError(f"{path}: {title} must be a table, not {options!r:.200}")
    with errors_at(f"{path}, {title}"):
        if table == "server" and {"api_key", "api_keys"} & {*options}:
            raise pyggml.InvalidParameterError(
                "API keys do not belong in this file, which others may read: name a file in api_key_file, or set "
                "PYGGML_API_KEY"
            )
        fields = TABLES[table].fields
        return {
            name: check_option(table, name, _convert(fields[name], value, path) if name in fields else value)
            for name, value in options.items()
        }


def _convert(field: Field, value: Any, path: Path) -> Any:
    """Convert a TOML value to a field's type; return the same value if that fails."""
    if isinstance(value, str):
        is_number_or_flag = bool({int, float, bool} & {*field.types}) and not field.is_size
        if is_number_or_flag and value not in (*field.words, "none"):
            return value  # a string such as "8080" is refused
        value = parse_text(field, value)
        return _resolve_path(value, path) if field.name in _PATH_FIELDS and isinstance(value, str) else value
    if isinstance(value, list) and accepts(field, tuple, Sequence):
        return tuple(value)
    if isinstance(value, Mapping) and accepts(field, Mapping):
        return {int(key) if key.isdecimal() else key: each for key, each in value.items()}
    if not {int, float, bool} & {*field.types}:
        kind = "a list" if accepts(field, tuple, Sequence) else "a string"
        raise pyggml.InvalidParameterError(f"{field.name} must be {kind}, not {value!r:.200}")
    return value


def _model(path: Path, values: object) -> ModelSpec:
    if not isinstance(values, Mapping):
        raise pyggml.InvalidParameterError(f"{path}: a model is a table [[models]], not {values!r:.200}")
    source = values.get("source")
    title = f"[[models]] {values.get('name') or source or ''}".rstrip()
    tables = ("load", "sampling")
    with errors_at(f"{path}, {title}"):
        for name in values:
            for table in tables:
                if name in TABLES[table].fields:
                    raise pyggml.InvalidParameterError(f"{name} belongs in the table [models.{table}]")
    options = {table: _options(path, table, f"{title}, {table}", values.get(table, {})) for table in tables}
    with errors_at(f"{path}, {title}"):
        require_known(ModelSpec, values, known=_MODEL_KEYS)
        resolved = _resolve_path(source, path) if isinstance(source, str) else source
        return ModelSpec(resolved, values.get("name"), values.get("aliases", ()), **options)


def _resolve_path(text: str, config: Path) -> str:
    """Resolve a path relative to the configuration file's folder, if it exists there; ``~`` is the home folder."""
    if text.startswith("~/"):
        return str(Path(text).expanduser())
    inside = config.parent / text
    try:
        return str(inside) if inside.exists() else text
    except OSError:  # the text is a template, longer than a path can be
        return text

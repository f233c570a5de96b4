"""Conversion of JSON values to Python types: the inverse of :func:`pyggml.schema.schema_of`."""

from __future__ import annotations

import collections.abc
import contextlib
import datetime as dt
import decimal
import enum
import ipaddress
import json
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union

from pyggml.errors import InvalidParameterError, OutputParsingError
from pyggml.schema.python_types import SETS, is_pydantic

_ANYTHING = (Any, object)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_FROM_TEXT: dict[object, Callable[[str], object]] = {
    dt.datetime: dt.datetime.fromisoformat,
    dt.date: dt.date.fromisoformat,
    dt.time: dt.time.fromisoformat,
    dt.timedelta: lambda text: _duration(text),
    uuid.UUID: uuid.UUID,
    pathlib.Path: pathlib.Path,
    pathlib.PurePath: pathlib.PurePath,
    ipaddress.IPv4Address: ipaddress.IPv4Address,
    ipaddress.IPv6Address: ipaddress.IPv6Address,
}
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W|(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>[\d.]+)S)?)?)"
)


def parse_output(schema: Any, text: str) -> Any:
    """Parse an output that followed a JSON schema or the schema of a type.

    Args:
        schema: a type, for an object of that type; or a JSON schema, for a JSON value.
        text: the output.

    Raises:
        OutputParsingError: the text is not JSON, or the type rejects the value.
    """
    try:
        if isinstance(schema, (Mapping, str, bool)):
            return json.loads(text)
        if is_pydantic(schema):
            from pyggml.schema.pydantic_types import from_json

            return from_json(schema, text)
        return as_type(schema, json.loads(text))
    except Exception as error:  # validators raise anything
        raise OutputParsingError(f"the output is not a valid {_name(schema)}: {error}") from error


def as_type(annotation: Any, value: Any) -> Any:
    """Convert a JSON value to the type that an annotation names, one that :func:`pyggml.schema.schema_of` supports.

    Creates enumeration members, dataclasses, pydantic models, tuples, dates, times and UUIDs at any depth; other values
    are checked and returned unchanged.

    Raises:
        InvalidParameterError: the value is not of that type.
    """
    if annotation in _ANYTHING:
        return value
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if is_pydantic(annotation):
        return _from_pydantic(annotation, value)
    if origin is not None:
        return _generic(annotation, origin, args, value)
    for alias in ("__supertype__", "__value__"):  # NewType, and the type statement
        if hasattr(annotation, alias) and not isinstance(annotation, type):
            return as_type(getattr(annotation, alias), value)
    return _plain(annotation, value)


def _from_pydantic(annotation: Any, value: Any) -> Any:
    from pyggml.schema.pydantic_types import from_json

    try:
        return from_json(annotation, json.dumps(value))
    except Exception as error:  # validators may raise anything
        raise InvalidParameterError(f"{value!r} is not a valid {_name(annotation)}: {error}") from error


def _generic(annotation: Any, origin: Any, args: tuple[Any, ...], value: Any) -> Any:
    if origin is Annotated or getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
        return as_type(args[0], value)
    if origin in (Union, types.UnionType):
        for member in args:
            with contextlib.suppress(InvalidParameterError):
                return as_type(member, value)
        raise _refused(annotation, value)
    if origin is Literal:
        for arg in args:
            plain = arg.value if isinstance(arg, enum.Enum) else arg
            if plain == value and type(plain) is type(value):
                return arg
        raise _refused(annotation, value)
    if origin in _MAPPINGS:
        return {_key(args[0], key): as_type(args[1], item) for key, item in _checked(dict, annotation, value).items()}
    items = _checked(list, annotation, value)
    if origin in SETS:
        return SETS[origin](as_type(args[0], item) for item in items)
    if origin is not tuple:
        return [as_type(args[0], item) for item in items]
    if args[-1] is Ellipsis:
        return tuple(as_type(args[0], item) for item in items)
    if len(items) != len(args):
        raise _refused(annotation, value)
    return tuple(map(as_type, args, items))


def _key(annotation: Any, name: str) -> Any:
    return int(name) if annotation is int else as_type(annotation, name)


def _plain(cls: Any, value: Any) -> Any:
    if cls is None or cls is type(None):
        return _checked(type(None), cls, value)
    if cls is float and type(value) is int:
        return float(value)
    if cls in (str, int, float, bool, list, dict):
        return _checked(cls, cls, value)
    if cls is tuple or cls in SETS:
        return SETS.get(cls, tuple)(_checked(list, cls, value))
    if cls is decimal.Decimal and type(value) in (int, float):
        return decimal.Decimal(repr(value))
    try:
        return _made(cls, value)
    except InvalidParameterError:
        raise
    except Exception as error:  # constructors of dataclasses and models may raise anything
        raise InvalidParameterError(f"{value!r} is not a valid {cls.__name__}: {error}") from error


def _made(cls: Any, value: Any) -> Any:
    if cls in _FROM_TEXT:
        return _FROM_TEXT[cls](_checked(str, cls, value))
    if issubclass(cls, enum.Enum):
        return cls(value)
    fields = _checked(dict, cls, value)
    hints = typing.get_type_hints(cls, include_extras=True)
    unknown = fields.keys() - hints.keys()
    if unknown:
        raise InvalidParameterError(f"{cls.__name__} has no field {', '.join(map(repr, sorted(unknown)))}")
    typed = {name: as_type(hints[name], item) for name, item in fields.items()}
    if not typing.is_typeddict(cls):
        return cls(**typed)
    missing: set[str] = cls.__required_keys__ - typed.keys()
    if missing:
        raise InvalidParameterError(f"{cls.__name__} needs {', '.join(map(repr, sorted(missing)))}")
    return typed


def _checked(kind: type, annotation: Any, value: Any) -> Any:
    if type(value) is not kind:
        raise _refused(annotation, value)
    return value


def _duration(text: str) -> dt.timedelta:
    """Parse a duration as ISO 8601 and JSON schemas write it, without months and years."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration")
    return dt.timedelta(**{name: float(number) for name, number in found.groupdict("0").items()})


def _refused(annotation: Any, value: object) -> InvalidParameterError:
    return InvalidParameterError(f"{value!r} is not a valid {_name(annotation)}")


def _name(annotation: Any) -> str:
    if isinstance(annotation, (Mapping, str, bool)):
        return "JSON value"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)

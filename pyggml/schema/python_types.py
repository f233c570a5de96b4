"""Conversion of Python types to JSON schemas, for structured output and for functions used as tools."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import ipaddress
import math
import numbers
import os
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union

from pyggml._core.checks import shown
from pyggml.errors import InvalidParameterError
from pyggml.schema._moments import bounded, is_moment, of_python

Schema = dict[str, Any]

_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
    object: {},
    dt.datetime: of_python({"type": "string", "format": "date-time"}),
    dt.date: of_python({"type": "string", "format": "date"}),
    dt.time: of_python({"type": "string", "format": "time"}),
    dt.timedelta: of_python({"type": "string", "format": "duration"}),
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "number"},
    pathlib.Path: {"type": "string", "format": "path"},
    pathlib.PurePath: {"type": "string", "format": "path"},
    ipaddress.IPv4Address: {"type": "string", "format": "ipv4"},
    ipaddress.IPv6Address: {"type": "string", "format": "ipv6"},
    set: {"type": "array"},
    frozenset: {"type": "array"},
}

#: Types of sets -> their constructors.
SETS: dict[Any, Callable[..., Any]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}

_ARRAYS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

# Names of bounds in ``annotated_types`` and pydantic's ``Field``, for numbers and for lengths.
_NUMBER_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
#: The schema of an object's names that are integers.
INTEGER_KEYS: Schema = {"pattern": r"^-?(0|[1-9][0-9]{0,14})$"}

_SUPPORTED = (
    "supported are the types of JSON, list[T], set[T], dict[str, T], tuples, unions, Literal, enumerations, "
    "dataclasses, TypedDict, dates, times, durations, paths, IP addresses, UUIDs and pydantic's types"
)

_DECIMALS = 6  # of a decimal number, unless its type says
_LENGTH_BOUNDS = {"array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}


def schema_of(annotation: Any) -> Schema:
    """Return the JSON schema of a Python type.

    Supports ``str``, ``int``, ``float``, ``Decimal``, ``bool``, ``None``, ``Any``, ``list[T]``, ``set[T]``, ``dict[str,
    T]``, tuples, ``Optional``, unions, ``Literal``, enumerations, dataclasses, ``TypedDict``, dates, times, durations,
    paths, IP addresses and UUIDs, pydantic's models and types (version 2), and ``Annotated`` with a description (a
    string) or bounds (``annotated_types``). A type that contains itself becomes a reference into ``$defs``.

    Args:
        annotation: the type, as written in the annotation of a parameter.

    Raises:
        InvalidParameterError: the type is not supported; the message has the place.
    """
    builder = _Builder()
    schema = builder.schema(annotation, _name(annotation))
    root = schema.get("$ref", "").removeprefix("#/$defs/")
    if root in builder.defs and builder.uses[root] == 1:
        schema = builder.defs.pop(root)
    return {**schema, "$defs": builder.defs} if builder.defs else schema


class _Builder:
    """A builder of a schema, of its definitions (``defs``), and of the numbers of references to them (``uses``)."""

    def __init__(self) -> None:
        self.defs: Schema = {}
        self.uses: dict[str, int] = {}
        self._names: dict[object, str] = {}

    def schema(self, annotation: Any, place: str) -> Schema:
        """Return the schema of one type; ``place`` is for messages."""
        if is_pydantic(annotation):
            is_named = isinstance(annotation, type) and hasattr(annotation, "__pydantic_core_schema__")
            build = functools.partial(self._pydantic, annotation, place)
            return self._named(annotation, build) if is_named else build()
        try:
            if annotation in _PLAIN:
                return dict(_PLAIN[annotation])
        except (TypeError, ValueError):  # unhashable: a value, or an Annotated with one inside
            pass
        origin = typing.get_origin(annotation)
        if origin is not None:
            return self._generic(annotation, origin, typing.get_args(annotation), place)
        for alias in ("__supertype__", "__value__"):  # NewType, and the type statement
            if hasattr(annotation, alias) and not isinstance(annotation, type):
                return self.schema(getattr(annotation, alias), place)
        if isinstance(annotation, type):
            return self._class(annotation, place)
        raise _refused(annotation, place)

    def _generic(self, annotation: Any, origin: Any, args: tuple[Any, ...], place: str) -> Schema:
        if origin is Annotated:
            schema = _annotated(self.schema(args[0], place), args[1:], place)
            return set_schema(schema, self._resolved) if typing.get_origin(args[0]) in SETS else schema
        if origin is Literal:
            return {"enum": [_json_value(arg, place) for arg in args]}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(arg, place) for arg in args]}
        if getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
            return self.schema(args[0], place)
        if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            items = [self.schema(arg, f"{place}[{i}]") for i, arg in enumerate(args)]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin in SETS:
            return set_schema({"type": "array", "items": self.schema(args[0], f"{place}[]")}, self._resolved)
        if origin is tuple or origin in _ARRAYS:
            return {"type": "array", "items": self.schema(args[0], f"{place}[]")}
        if origin in _MAPPINGS and (names := self._names_of(args[0], place)) is not None:
            return {"type": "object", **names, "additionalProperties": self.schema(args[1], f"{place}[...]")}
        raise _refused(annotation, place)

    def _names_of(self, annotation: Any, place: str) -> Schema | None:
        """Return the keywords for the names of an object whose keys have a type; None: they cannot have it."""
        if annotation in (str, int):
            return {} if annotation is str else {"propertyNames": INTEGER_KEYS}
        names = self.schema(annotation, f"{place}[key]")
        resolved = self._resolved(names)
        is_text = resolved.get("type") == "string" or all(isinstance(each, str) for each in resolved.get("enum", [0]))
        return {"propertyNames": names} if is_text else None

    def _class(self, cls: type, place: str) -> Schema:
        if issubclass(cls, enum.Enum):
            return {"enum": [_json_value(member, place) for member in cls]}
        if dataclasses.is_dataclass(cls):
            required = {field.name for field in dataclasses.fields(cls) if not _has_default(field)}
            names = [field.name for field in dataclasses.fields(cls) if field.init]
            return self._named(cls, lambda: self._object(cls, names, required))
        if typing.is_typeddict(cls):
            hints = list(typing.get_type_hints(cls))
            return self._named(cls, lambda: self._object(cls, hints, getattr(cls, "__required_keys__", frozenset())))
        raise _refused(cls, place)

    def _named(self, cls: type, build: Callable[[], Schema]) -> Schema:
        """Return a reference to the definition of a class; build the definition on first use."""
        name = self._names.get(cls)
        if name is None:
            name = _unused(cls.__name__, self.defs)
            self._names[cls], self.defs[name], self.uses[name] = name, {}, 0
            self.defs[name] = build()
        self.uses[name] += 1
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, cls: type, names: list[str], required: typing.AbstractSet[str]) -> Schema:
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except NameError as error:
            raise InvalidParameterError(f"an annotation of {cls.__name__} cannot be resolved: {error}") from None
        schema: Schema = {
            "type": "object",
            "properties": {name: self.schema(hints[name], f"{cls.__name__}.{name}") for name in names},
            "required": [name for name in names if name in required],
            "additionalProperties": False,
        }
        description = inspect.cleandoc(cls.__doc__ or "")
        if description and not description.startswith(f"{cls.__name__}("):  # the docstring that dataclass generates
            schema["description"] = description
        return schema

    def _resolved(self, schema: Schema) -> Schema:
        return self.defs[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema

    def _pydantic(self, cls: Any, place: str) -> Schema:
        """Return pydantic's schema, with its definitions moved to ``defs``."""
        from pyggml.schema.pydantic_types import json_schema

        try:
            schema = json_schema(cls)
        except Exception as error:
            raise InvalidParameterError(f"{place}: pydantic cannot create a JSON schema for it: {error}") from error
        for name, definition in schema.pop("$defs", {}).items():
            if name == self._names.get(cls):
                self.defs[name] = definition
                self.uses[name] += 1  # it refers to itself
            elif self.defs.setdefault(name, definition) != definition:
                raise InvalidParameterError(f"{place}: two different types are called {name}; rename one of them")
            self.uses.setdefault(name, 1)
        own = schema.get("$ref") == f"#/$defs/{self._names.get(cls)}"
        return self.defs[self._names[cls]] if own else schema


def is_pydantic(annotation: Any) -> bool:
    """Return True if pydantic defines a type: a model, one of its own types, or a type with one of its validators."""
    if typing.get_origin(annotation) is Annotated:
        args = annotation.__metadata__
        return any(hasattr(each, "__get_pydantic_core_schema__") or _needs_pydantic(each) for each in args)
    hooks = ("__get_pydantic_core_schema__", "__pydantic_core_schema__")
    return isinstance(annotation, type) and any(hasattr(annotation, hook) for hook in hooks)


def _needs_pydantic(metadata: object) -> bool:
    """Return True for parameters of pydantic's Field and StringConstraints that only pydantic understands."""
    return any(getattr(metadata, name, None) not in (None, False) for name in ("discriminator", "strip_whitespace"))


def set_schema(schema: Schema, resolved: Callable[[Schema], Schema]) -> Schema:
    """Return the schema of a set, from that of an array.

    Its items are unique where a grammar can ensure it: where there are only a few of them. Otherwise duplicates, which
    a set drops, are allowed, unless it needs several items.

    Args:
        schema: the schema of the array.
        resolved: resolves a reference.
    """
    is_unique = schema.get("minItems", 0) > 1 or _is_finite(schema.get("items", {}), resolved)
    return {name: value for name, value in schema.items() if name != "uniqueItems"} | (
        {"uniqueItems": True} if is_unique else {}
    )


def _is_finite(schema: Schema, resolved: Callable[[Schema], Schema]) -> bool:
    schema = resolved(schema)
    if "anyOf" in schema:
        return all(_is_finite(each, resolved) for each in schema["anyOf"])
    return "enum" in schema or "const" in schema or schema.get("type") in ("boolean", "null")


def decimal_schema(limits: Mapping[str, Any]) -> Schema:
    """Return the schema of a decimal number.

    Args:
        limits: ``max_digits``, ``decimal_places``, ``ge``, ``gt``, ``le``, ``lt`` and ``multiple_of``, as in pydantic;
            any may be missing.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    n_digits, n_decimals = given.get("max_digits"), given.get("decimal_places")
    schema: Schema = {"type": "number"}
    if n_digits is not None:
        n_decimals = min(_DECIMALS, n_digits // 2) if n_decimals is None else n_decimals
        largest = decimal.Decimal(10) ** (n_digits - n_decimals) - decimal.Decimal(10) ** -n_decimals
        schema |= {"minimum": _number(-largest), "maximum": _number(largest)}
        schema["minimum"] = max(schema["minimum"], _number(given.pop("ge", -largest)))
        schema["maximum"] = min(schema["maximum"], _number(given.pop("le", largest)))
    for name, key in {**_NUMBER_BOUNDS, "multiple_of": "multipleOf"}.items():
        if name in given:
            schema[key] = _number(given[name])
    if n_decimals is not None:
        schema |= {"decimalPlaces": n_decimals} if n_decimals > 0 else {"type": "integer"}
    return schema


def _number(value: Any) -> int | float:
    return int(value) if value == int(value) else float(value)


def _annotated(schema: Schema, metadata: tuple[Any, ...], place: str) -> Schema:
    """Return a schema with the description and bounds from ``Annotated``."""
    lengths = _LENGTH_BOUNDS.get(schema.get("type", ""), ("minLength", "maxLength"))
    keys = {**_NUMBER_BOUNDS, "multiple_of": "multipleOf", "pattern": "pattern"}
    keys |= {"min_length": lengths[0], "max_length": lengths[1]}
    limits: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, str):
            schema = {**schema, "description": item}
            continue
        for each in (item, *getattr(item, "metadata", ())):  # pydantic's Field keeps its bounds in a list
            found = {name: getattr(each, name, None) for name in (*keys, "max_digits", "decimal_places")}
            limits |= {name: value for name, value in found.items() if value is not None}
        if isinstance(getattr(item, "description", None), str):
            schema = {**schema, "description": item.description}
    if "max_digits" in limits or "decimal_places" in limits:
        return {**schema, **decimal_schema(limits)}
    moments = {name: limits.pop(name) for name in _NUMBER_BOUNDS if is_moment(limits.get(name))}
    try:
        schema = bounded(schema, moments)
    except InvalidParameterError as error:
        raise InvalidParameterError(f"{place}: {error}") from None
    for name, value in limits.items():
        if name != "pattern":
            limits[name] = _bound(value, place)
    return {**schema, **{keys[name]: value for name, value in limits.items() if value is not None}}


def _bound(value: Any, place: str) -> int | float | None:
    """Return a bound as JSON has it; None if it is infinite."""
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, decimal.Decimal)):
        raise InvalidParameterError(f"{place}: the bound {shown(value)} cannot be expressed as a JSON schema")
    if isinstance(value, int):
        return value
    return _number(value) if math.isfinite(value) else None


def _json_value(value: object, place: str) -> object:
    value = value.value if isinstance(value, enum.Enum) else value
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidParameterError(f"{place}: {shown(value)} is not a JSON value")


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _unused(name: str, taken: Mapping[str, object]) -> str:
    return next(n for n in (name, *(f"{name}{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else shown(annotation)


def _refused(annotation: object, place: str) -> InvalidParameterError:
    what = "" if place == _name(annotation) else f"{place}: "
    return InvalidParameterError(
        f"{what}{_name(annotation)} cannot be expressed as a JSON schema: {_way_out(annotation)}"
    )


def _way_out(annotation: Any) -> str:
    """Return what to write in place of an annotation that has no schema."""
    if annotation is bytes or annotation is bytearray:
        return "JSON has only text, so use str"
    if isinstance(annotation, type):
        return "use a dataclass" if hasattr(annotation, "_fields") else _SUPPORTED
    if isinstance(annotation, (list, tuple, set)):
        return "write the type of a list as list[...], that of a tuple as tuple[...]"
    if isinstance(annotation, os.PathLike):
        return "files are not read here: pass its text, as in path.read_text()"
    cls = type(annotation)
    if cls.__name__ == "TypeAdapter":
        return "pass the type itself in place of the TypeAdapter"
    if dataclasses.is_dataclass(cls) or is_pydantic(cls) or isinstance(annotation, enum.Enum):
        return f"this is an object of {cls.__name__}: pass the class"
    return _SUPPORTED

"""Conversion of Python types to JSON schemas, for structured output and for functions used as tools."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union

from pyggml._core.checks import shown
from pyggml.errors import InvalidParameterError

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
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}

_ARRAYS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

# Names of bounds in ``annotated_types`` and pydantic's ``Field``, for numbers and for lengths.
_NUMBER_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LENGTH_BOUNDS = {"array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}


def schema_of(annotation: Any) -> Schema:
    """Return the JSON schema of a Python type.

    Supports ``str``, ``int``, ``float``, ``bool``, ``None``, ``Any``, ``list[T]``, ``dict[str, T]``, tuples,
    ``Optional``, unions, ``Literal``, enumerations, dataclasses, ``TypedDict``, pydantic models (version 2), dates,
    times and UUIDs, and ``Annotated`` with a description (a string) or bounds (``annotated_types``). A type that
    contains itself becomes a reference into ``$defs``.

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
            return _annotated(self.schema(args[0], place), args[1:])
        if origin is Literal:
            return {"enum": [_json_value(arg, place) for arg in args]}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(arg, place) for arg in args]}
        if getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
            return self.schema(args[0], place)
        if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            items = [self.schema(arg, f"{place}[{i}]") for i, arg in enumerate(args)]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin is tuple or origin in _ARRAYS:
            return {"type": "array", "items": self.schema(args[0], f"{place}[]")}
        if origin in _MAPPINGS and args[0] is str:
            return {"type": "object", "additionalProperties": self.schema(args[1], f"{place}[...]")}
        raise _refused(annotation, place)

    def _class(self, cls: type, place: str) -> Schema:
        if issubclass(cls, enum.Enum):
            return {"enum": [_json_value(member, place) for member in cls]}
        if callable(getattr(cls, "model_json_schema", None)):
            return self._named(cls, lambda: self._pydantic(cls, place))
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

    def _pydantic(self, cls: Any, place: str) -> Schema:
        """Return pydantic's schema, with its definitions moved to ``defs``."""
        try:
            schema = dict(cls.model_json_schema())
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


def _annotated(schema: Schema, metadata: tuple[Any, ...]) -> Schema:
    """Return a schema with the description and bounds from ``Annotated``."""
    lengths = _LENGTH_BOUNDS.get(schema.get("type", ""), ("minLength", "maxLength"))
    keys = {**_NUMBER_BOUNDS, "multiple_of": "multipleOf", "pattern": "pattern"}
    keys |= {"min_length": lengths[0], "max_length": lengths[1]}
    for item in metadata:
        if isinstance(item, str):
            schema = {**schema, "description": item}
            continue
        for each in (item, *getattr(item, "metadata", ())):  # pydantic's Field keeps its bounds in a list
            found = {key: getattr(each, name, None) for name, key in keys.items()}
            schema = {**schema, **{key: value for key, value in found.items() if value is not None}}
        if isinstance(getattr(item, "description", None), str):
            schema = {**schema, "description": item.description}
    return schema


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
    return InvalidParameterError(f"{what}{_name(annotation)} cannot be expressed as a JSON schema")

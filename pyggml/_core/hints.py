"""Hints for users of other libraries, who type that library's name of a thing.

The names and their hints are in ``hints.ini``; :func:`hints` reads them. The classes and functions here put them into
the messages of errors.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from abc import ABCMeta
from collections.abc import Awaitable, Callable, Iterable, Mapping
from configparser import ConfigParser, ExtendedInterpolation
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar, cast

_P = ParamSpec("_P")
_R = TypeVar("_R")

Hints = Mapping[str, str]


@functools.cache
def _table() -> ConfigParser:
    table = ConfigParser(delimiters="=", interpolation=ExtendedInterpolation())
    table.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    table.read(Path(__file__).with_name("hints.ini"), encoding="utf-8")
    return table


def hint_groups() -> list[str]:
    """Return the names of all groups of hints."""
    return _table().sections()


@functools.cache
def hints(group: str) -> Hints:
    """Return a group of hints: another library's name -> the name here, or a sentence. Unknown groups are empty.

    Args:
        group: the group's name.
    """
    if not _table().has_section(group):
        return {}
    return {name: " ".join(hint.split()) for names, hint in _table()[group].items() for name in names.split()}


# --- arguments ----------------------------------------------------------------------------------------------------


def closest_name(name: str, known: Iterable[str], hints: Hints, cutoff: float = 0.7) -> str | None:
    """Return the name if it has a hint, else the closest of the known and hinted names; None if none is close."""
    if name in hints:
        return name
    near = difflib.get_close_matches(name, [*known, *hints], n=1, cutoff=cutoff)
    return near[0] if near else None


def reject_parameters(given: Iterable[str], hints: Hints) -> None:
    """Reject parameters that have a hint.

    Raises:
        UnknownParameterError: there is one.
    """
    others = [name for name in given if name in hints]
    if others:
        from pyggml.errors import UnknownParameterError  # its module loads the compiled one

        raise UnknownParameterError("; ".join(f"there is no parameter {name!r}: {hints[name]}" for name in others))


def with_hints(group: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a function to reject the names of the group, with their hints, and misspelled names of its parameters.

    It has none of the group's names as a parameter. If it takes ``**kwargs``, it checks other names itself.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            require_parameters(kwargs, function, group)
            return function(*args, **kwargs)

        @functools.wraps(function)
        async def coroutine(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            require_parameters(kwargs, function, group)
            return await cast("Callable[_P, Awaitable[Any]]", function)(*args, **kwargs)

        return cast("Callable[_P, _R]", coroutine) if inspect.iscoroutinefunction(function) else wrapper

    return decorate


def require_parameters(given: Iterable[str], function: Callable[..., object], group: str) -> None:
    """Check names of arguments for a function: reject the names of the group of hints, and misspelled ones.

    Raises:
        UnknownParameterError: the function has no such parameter.
    """
    reject_parameters(given, hints(group))
    _reject_unknown(given, function)


def _reject_unknown(given: Iterable[str], function: Callable[..., object]) -> None:
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    unknown = [name for name in given if name not in parameters]
    if unknown:
        from pyggml.errors import UnknownParameterError

        known = [name for name in parameters if name != "self"]
        near = closest_name(unknown[0], known, {})
        own = f"did you mean {near!r}?" if near else f"{function.__name__}() takes {', '.join(known)}"
        raise UnknownParameterError(f"there is no parameter {unknown[0]!r}: {own}")


def renamed(**names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a function to accept earlier names of its parameters: earlier name -> name."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            given = {names.get(name, name): value for name, value in kwargs.items()}
            if len(given) < len(kwargs):
                twice = next(names[name] for name in kwargs if name in names and names[name] in kwargs)
                raise TypeError(f"{function.__name__}() got two values for the parameter {twice!r}")
            return cast("Callable[..., _R]", function)(*args, **given)

        return wrapper

    return decorate


# --- attributes, calls and loops ----------------------------------------------------------------------------------


def attribute_error(owner: str, name: str, hints: Hints, known: Iterable[str] = ()) -> AttributeError:
    """Return the error for a missing attribute.

    Args:
        owner: describes the object as Python's own messages do.
        name: name of the attribute.
        hints: names that others have for such attributes.
        known: the object's own attributes, of which a similar one is suggested.
    """
    if name.startswith("_"):  # Python looks for many of its own
        closest = name if name in hints else None
    else:
        closest = closest_name(name, [each for each in known if not each.startswith("_")], hints, cutoff=0.8)
    hint = ""
    if closest is not None:
        hint = f"; did you mean {closest!r}?"
        if closest in hints:
            hint = f": {hints[closest]}" if closest == name else f"; if you mean {closest!r}: {hints[closest]}"
    return AttributeError(f"{owner} has no attribute {name!r}{hint}")


class HintedAttributes:
    """An object whose errors for missing attributes, and for a loop over it, carry hints."""

    _hints: ClassVar[Hints] = {}

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that raised AttributeError itself: raise its own error again
                return object.__getattribute__(self, name)
            raise attribute_error(f"{type(self).__name__!r} object", name, self._hints, dir(self))

        def __iter__(self) -> NoReturn:
            raise self._is_not("iterable", self._hints.get("__iter__", ""))

    def _is_not(self, what: str, hint: str) -> TypeError:
        return TypeError(f"{type(self).__name__!r} object is not {what}" + (f": {hint}" if hint else ""))


class HintedType(ABCMeta):
    """Metaclass of classes whose errors for missing attributes carry hints; an ABCMeta, since some are abstract."""

    _hints: ClassVar[Hints] = {}

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise attribute_error(f"type object {cls.__name__!r}", name, cls._hints, dir(cls))


class HintedObject(HintedAttributes, metaclass=HintedType):
    """An object that other libraries call as a function; its class has hints too, such as for ``from_pretrained``."""

    if not TYPE_CHECKING:

        def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise self._is_not("callable", self._hints["__call__"])


class Record(HintedAttributes):
    """A result with attributes, and hints for those who take it for a dict."""

    if not TYPE_CHECKING:

        def __getitem__(self, key: Any) -> NoReturn:
            is_attribute = isinstance(key, str) and key in self.__dict__
            hint = f".{key} is an attribute" if is_attribute else self._hints.get(str(key), _ATTRIBUTES)
            raise self._is_not("a dict", hint)

        def __iter__(self) -> NoReturn:  # Python would iterate with __getitem__
            raise self._is_not("iterable", self._hints.get("__iter__", _ATTRIBUTES))


_ATTRIBUTES = "it has attributes, and to_dict()"


class Completions(HintedObject):
    """Hints for ``chat.completions`` of OpenAI's client."""

    _hints = hints("openai")


class HintedPackage(ModuleType):
    """A package with the name of another library's function: calling it raises an error with a hint."""

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Raise TypeError."""
        name = self.__name__.rpartition(".")[2]
        raise TypeError(f"{self.__name__} is a package: {hints('package')[name]}")

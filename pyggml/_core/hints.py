"""What answers those who type what another library has: functions and classes for the tables of ``_habits``."""

from __future__ import annotations

import difflib
import functools
from abc import ABCMeta
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar

from pyggml._core.hint_table import OPENAI, PACKAGE, Answers

_P = ParamSpec("_P")
_R = TypeVar("_R")


# --- arguments ----------------------------------------------------------------------------------------------------


def meant_by(name: str, known: Iterable[str], answers: Answers) -> str | None:
    """The key of ``answers``, or the known name, that somebody probably meant; None: nothing is near."""
    if name in answers:
        return name
    near = difflib.get_close_matches(name, [*known, *answers], n=1, cutoff=0.7)
    return near[0] if near else None


def refuse(given: Iterable[str], table: Answers) -> None:
    """Refuses parameters that the table answers.

    Raises:
        UnknownParameterError: there is one.
    """
    others = [name for name in given if name in table]
    if others:
        from pyggml.errors import UnknownParameterError  # its module loads the compiled one

        raise UnknownParameterError("; ".join(f"there is no parameter {name!r}: {table[name]}" for name in others))


def answers(table: Answers) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorates a function: keywords in the table, none of which it has, are refused as by :func:`refuse`."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def answering(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            refuse(kwargs, table)
            return function(*args, **kwargs)

        return answering

    return decorate


# --- attributes, calls and loops ----------------------------------------------------------------------------------


def no_attribute(owner: str, name: str, answers: Answers) -> AttributeError:
    """The error for an attribute that does not exist; ``owner`` is whose it would be, as Python writes it."""
    answer = f": {answers[name]}" if name in answers else ""
    return AttributeError(f"{owner} has no attribute {name!r}{answer}")


class Answering:
    """An object that answers an attribute that another library's object has, and a loop over it."""

    _answers: ClassVar[Answers] = {}

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that raised AttributeError itself: that says what went wrong
                return object.__getattribute__(self, name)
            raise no_attribute(f"{type(self).__name__!r} object", name, self._answers)

        def __iter__(self) -> NoReturn:
            raise self._is_not("iterable", self._answers.get("__iter__", ""))

    def _is_not(self, what: str, answer: str) -> TypeError:
        return TypeError(f"{type(self).__name__!r} object is not {what}" + (f": {answer}" if answer else ""))


class AnsweringType(ABCMeta):
    """Metaclass of classes that answer for attributes of theirs; an ABCMeta because abstract classes are among them."""

    _answers: ClassVar[Answers] = {}

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            raise no_attribute(f"type object {cls.__name__!r}", name, cls._answers)


class Answered(Answering, metaclass=AnsweringType):
    """An object that other libraries have as a function; its class answers too, for it begins ``from_pretrained``."""

    if not TYPE_CHECKING:

        def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise self._is_not("callable", self._answers["__call__"])


class Record(Answering):
    """A result with attributes, which answers those who take it for a dict."""

    if not TYPE_CHECKING:

        def __getitem__(self, key: Any) -> NoReturn:
            is_attribute = isinstance(key, str) and key in self.__dict__
            answer = f".{key} is an attribute" if is_attribute else self._answers.get(str(key), _ATTRIBUTES)
            raise self._is_not("a dict", answer)

        def __iter__(self) -> NoReturn:  # Python would iterate with __getitem__
            raise self._is_not("iterable", self._answers.get("__iter__", _ATTRIBUTES))


_ATTRIBUTES = "it has attributes, and to_dict()"


class Completions(Answered):
    """What OpenAI's client has as ``chat.completions``."""

    _answers = OPENAI


class AnsweredPackage(ModuleType):
    """A package with the name of another library's function, which answers a call."""

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Raises TypeError, always."""
        name = self.__name__.rpartition(".")[2]
        raise TypeError(f"{self.__name__} is a package: {PACKAGE[name]}")

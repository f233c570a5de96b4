"""Fields of frozen dataclasses, each declared once with its type, default, range and help.

The range is part of the annotation, and the help is the field's line in the class's docstring::

    n_parallel: Annotated[int, Field(1, 256)] = 4

:func:`check` validates values, :func:`fields_of` lists the fields for commands and schemas, and :class:`takes` gives a
function the fields as its parameters. All of them need evaluated annotations, so modules that declare such fields must
not use ``from __future__ import annotations``.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import textwrap
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

from pyggml._core.checks import UINT32_MAX, choice, finite, flag, integer, invalid, shown
from pyggml._core.hints import Hints, closest_name

# An entry of a docstring's section: its name and its text.
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)

_P = ParamSpec("_P")
_Options = TypeVar("_Options")
_First = TypeVar("_First")
_Second = TypeVar("_Second")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Field:
    """Declaration of a field: a range, choices, names. :func:`fields_of` adds its name, type, default and help.

    Attributes:
        low: smallest allowed number.
        high: largest allowed number.
        above_low: ``low`` itself is not allowed.
        choices: the allowed strings, in addition to those of a Literal type.
        letter: llama-cli's short name of the command's option, without its dash: ``c`` or ``ngl``.
        hidden: commands that generate have no option for it.
        sampler: the sampler that any value but the default turns on.
        is_size: it is a number of bytes, which text may state as 12GB.
        without: for messages: how to get what -1, 0, None or other values mean in other libraries, such as "no limit".
        name: the field's name.
        other_names: its names in other libraries (from the class's ``HINTS``).
        types: the field's type, or the members of a union.
        default: the field's default.
        help: the field's line in the docstring.
    """

    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False
    choices: tuple[str, ...] = ()
    letter: str = ""
    hidden: bool = False
    sampler: str = ""
    is_size: bool = False
    without: str = ""
    name: str = ""
    other_names: tuple[str, ...] = ()
    types: tuple[Any, ...] = ()
    default: Any = None
    help: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The strings that the field accepts in addition to numbers; () if there are none, or if it accepts any."""
        literals = [word for type in self.types if get_origin(type) is Literal for word in get_args(type)]
        return (*self.choices, *literals)

    def checked(self, value: Any) -> Any:
        """Convert a value to the field's type.

        Args:
            value: the value.

        Raises:
            InvalidParameterError: the value has another type or is out of range.
        """
        if value is None and types.NoneType in self.types:
            return value
        if isinstance(value, str) and value.lower() in self.words:  # "Q8_0", as files and models are named
            return value.lower()
        if self.is_size and isinstance(value, str):
            raise invalid(f"{self.name} must be a number of bytes, such as 512MB or 12GiB, not {shown(value)}")
        if int in self.types:
            return integer(self.name, value, self.low, self.high, self._way_out)
        if float in self.types:
            return finite(self.name, value, self.low, self.high, above_low=self.above_low)
        if bool in self.types:
            return flag(self.name, value)
        if self.words:
            choice(self.name, value, self.words, self.without and f"; {self.without}")
        return value

    @property
    def _way_out(self) -> str:
        words = " and ".join(map(repr, self.words))
        return f"; {words} work too" * bool(words) + f"; {self.without}" * bool(self.without)


@functools.cache
def fields_of(cls: type) -> dict[str, Field]:
    """Return the fields of a dataclass by name, in their order.

    Args:
        cls: the dataclass.
    """
    texts = _help_texts(cls)
    hints: Hints = getattr(cls, "HINTS", {})
    found = {}
    for field in dataclasses.fields(cls):
        declared = next((each for each in get_args(field.type) if isinstance(each, Field)), Field())
        found[field.name] = dataclasses.replace(
            declared,
            name=field.name,
            other_names=tuple(other for other, own in hints.items() if own == field.name),
            types=_members(_plain(field.type)),
            default=field.default,
            help=texts.get(field.name, ""),
        )
    return found


@functools.cache
def parameters_of(cls: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class of options by name, in their order."""
    return inspect.signature(cls).parameters


def check(options: Any) -> None:
    """Check and convert the value of each field, in ``__post_init__``.

    Args:
        options: the object, whose fields are replaced by the checked values.

    Raises:
        InvalidParameterError: a value is invalid; names the first such field.
    """
    for name, field in fields_of(options.__class__).items():
        object.__setattr__(options, name, field.checked(getattr(options, name)))


def shared(options: Any, cls: type) -> dict[str, Any]:
    """Return the values of the fields that ``cls`` has, too."""
    return {name: getattr(options, name) for name in fields_of(options.__class__) if name in fields_of(cls)}


def option_class(cls: type[_Options]) -> type[_Options]:
    """Decorate a dataclass of options: :func:`help` shows plain types, and errors for unknown names carry hints.

    The class may have ``HINTS``, the names of its fields in other libraries (``pyggml._core.hints``), and
    ``LISTED_BY``, which names the list of all its fields.

    Args:
        cls: the dataclass.
    """
    cls.__init__.__annotations__ = {name: _plain(type) for name, type in cls.__init__.__annotations__.items()}
    init = cls.__init__

    @functools.wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError:
            require_known(cls, kwargs)
            raise

    cls.__init__ = wrapper  # type: ignore[method-assign]
    return cls


def require_known(
    cls: Any, given: Iterable[str], *, known: Collection[str] | None = None, more_hints: Hints | None = None
) -> None:
    """Raise UnknownParameterError for names of parameters that do not exist, with hints at the ones probably meant.

    ``known`` are the names that exist, by default the parameters of ``cls``; ``more_hints`` are added to its hints.

    Args:
        cls: the class that the parameters belong to.
        given: the names.
        known: the names that exist; None: the parameters of ``cls``.
        more_hints: hints in addition to those of ``cls``.
    """
    names = parameters_of(cls) if known is None else known
    unknown = [name for name in given if name not in names]
    if unknown:
        from pyggml.errors import UnknownParameterError  # its module loads the compiled one

        hints = {**getattr(cls, "HINTS", {}), **(more_hints or {})}
        raise UnknownParameterError("; ".join(_unknown(cls, name, names, hints) for name in unknown))


def _unknown(cls: Any, name: str, known: Collection[str], hints: Hints) -> str:
    message = f"there is no parameter {name!r}"
    closest = closest_name(name, known, hints)
    if closest is None:
        return f"{message}; {getattr(cls, 'LISTED_BY', f'help({cls.__name__})')} lists them"
    hint = closest if closest in known else hints[closest]
    is_exact = closest == name
    if hint not in known:
        return f"{message}: {hint}" if is_exact else f"{message}; if you mean {closest!r}: {hint}"
    field = fields_of(cls).get(hint, Field())
    meaning = f" ({field.help.partition('. ')[0].rstrip('.').replace('`', '')})" if field.help else ""
    return f"{message}: " + (f"it is {hint!r} here{meaning}" if is_exact else f"did you mean {hint!r}{meaning}?")


def _plain(type: Any) -> Any:
    if isinstance(type, dataclasses.InitVar):
        return type.type
    return get_args(type)[0] if get_origin(type) is Annotated else type


def _members(type: Any) -> tuple[Any, ...]:
    return get_args(type) if get_origin(type) in (Union, types.UnionType) else (type,)


def _help_texts(cls: type) -> dict[str, str]:
    """Return field -> its line in the docstring of the class or of a base class."""
    texts: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        attributes = inspect.cleandoc(each.__doc__ or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
        for name, text in _ENTRY.findall(attributes):
            texts[name] = " ".join(text.split())
    return texts


def _with_help(doc: str | None, parameters: Iterable[str], fields: Mapping[str, Field]) -> str | None:
    """Complete the section Args of a docstring with the fields' help; an entry that begins with "..." continues it."""
    before, args, after = inspect.cleandoc(doc or "").partition("\nArgs:\n")
    if not args:
        return doc
    section, blank, rest = after.partition("\n\n")
    own = {name: " ".join(text.split()) for name, text in _ENTRY.findall(section)}
    lines = []
    for name in parameters:
        help = fields[name].help if name in fields else ""
        text = own.get(name, help)
        text = f"{help}{text[3:]}" if text.startswith("...") else text
        if text:
            lines.append(textwrap.fill(f"{name}: {text}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8))
    return "".join((before, args, "\n".join(lines), blank, rest))


class takes(Generic[_P, _Options]):  # noqa: N801
    """Decorator of a function whose last parameter is an options object: callers pass its fields as arguments.

    Type checkers, editors and :func:`help` show the fields with their types and defaults. The docstring's section Args,
    if it has one, is completed with the fields' help.
    """

    def __init__(self, options: Callable[_P, _Options]) -> None:
        """Create a decorator for a class of options."""
        self._options = options

    @overload
    def __call__(self, function: Callable[[_Options], _Result]) -> Callable[_P, _Result]: ...

    @overload
    def __call__(
        self, function: Callable[[_First, _Options], _Result]
    ) -> Callable[Concatenate[_First, _P], _Result]: ...

    @overload
    def __call__(
        self, function: Callable[[_First, _Second, _Options], _Result]
    ) -> Callable[Concatenate[_First, _Second, _P], _Result]: ...

    def __call__(self, function: Callable[..., _Result]) -> Callable[..., _Result]:
        """Return the function with the signature that callers see."""
        signature = inspect.signature(function)
        options: Callable[..., _Options] = self._options
        first = [*signature.parameters.values()][:-1]
        fields = parameters_of(options).values()
        seen = signature.replace(parameters=[*first, *fields])

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> _Result:
            try:
                given = seen.bind(*args, **kwargs).arguments
            except TypeError as error:
                require_known(self._options, kwargs, known=seen.parameters)
                raise TypeError(f"{function.__qualname__}(): {error}") from None
            others = [given.pop(each.name) for each in first]
            return function(*others, options(**given))

        wrapper.__dict__["__signature__"] = seen
        wrapper.__doc__ = _with_help(function.__doc__, seen.parameters, fields_of(self._options))
        return wrapper


# Field types that several classes share.

#: Element types of a KV cache, from largest to smallest.
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

#: For messages: what llama-cpp-python's numbers for them are.
CACHE_TYPE_NUMBERS = "llama-cpp-python's GGML_TYPE_Q8_0, the number 8, is 'q8_0' here"
CacheType = Annotated[str, Field(choices=CACHE_TYPES, without=CACHE_TYPE_NUMBERS)]
Size = Annotated[int, Field(1, UINT32_MAX)]
Threads = Annotated[int | None, Field(1, 512, letter="t")]  # upstream's GGML_MAX_N_THREADS

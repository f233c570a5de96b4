"""Operators, methods and filters of templates: as jinja2 has them, but bounded, and with the flags of quoted texts."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from jinja2 import Environment, pass_environment
from jinja2.filters import FILTERS, make_attrgetter

from pyggml.chat.jinja.limits import (
    LARGE_NUMBER,
    MAX_COUNT,
    TOO_DEEP,
    TOO_LARGE,
    TemplateLimitError,
    counted,
    limits,
    require_counts,
)
from pyggml.chat.jinja.quoted_text import QuotedText, concatenated, holds_quoted, json_text

_MAX_BITS = 10_000  # of an integer
_LONG_FORMAT = re.compile(r"\d{6}|\{[^{}]*\{|%[^a-zA-Z%]*\*")  # a wide field, or one whose width is an argument
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_FEW_CHARACTERS = 256
# Filters that search with regular expressions or in Python, and so take long for long texts.
_SLOW_FILTERS = frozenset({"striptags", "title", "truncate", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"})
_MAX_TEXT_OF_SLOW_FILTERS = 1_000_000
_PADDING_FILTERS, _MAX_PADDING = frozenset({"batch", "slice"}), 10_000
# Filters that copy all items, with their texts in lower case.
_COPYING_FILTERS = frozenset({"groupby", "max", "min", "sort", "unique"})
# Filters whose results have the flags of the texts that they consist of.
_KEEP_FLAGS = frozenset(
    {
        *("abs", "attr", "batch", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby"),
        *("indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "random", "reject"),
        *("rejectattr", "replace", "reverse", "round", "select", "selectattr", "slice", "sort", "string", "sum"),
        *("tojson", "trim", "unique", "upper"),
    }
)
_MODIFYING = frozenset({"append", "extend", "insert", "setdefault", "update"})
_SPLITTING = frozenset({"split", "rsplit", "splitlines"})


def text_of(value: Any) -> str:
    """Convert a value to text, as jinja2 prints it."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple, dict)):
        limits().container(value)
    return _accounted(str(value), (value,))  # type: ignore[no-any-return]


def joined(parts: Iterable[str]) -> str:
    """Concatenate the parts of an output."""
    parts = list(parts)
    limits().text(sum(map(len, parts)))
    return concatenated(parts)


def add(left: Any, right: Any) -> Any:
    """``left + right``."""
    if isinstance(left, str) and isinstance(right, str):
        limits().text(len(left) + len(right))
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        result = left + right  # type: ignore[operator]  # a list and a tuple raise
        limits().container(result)
        return result
    return left + right


def multiply(left: Any, right: Any) -> Any:
    """``left * right``."""
    for repeated, n in ((left, right), (right, left)):
        if isinstance(repeated, (str, list, tuple)) and isinstance(n, int):
            require_counts(n)
            (limits().text if isinstance(repeated, str) else limits().items)(len(repeated) * max(n, 0))
            result = repeated * n
            if not isinstance(result, str):
                limits().container(result)
            return result
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _MAX_BITS:
        raise TemplateLimitError(LARGE_NUMBER)
    return left * right


def power(left: Any, right: Any) -> Any:
    """``left ** right``."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > _MAX_BITS:
        raise TemplateLimitError(LARGE_NUMBER)
    return left**right


def modulo(left: Any, right: Any) -> Any:
    """``left % right``, which formats if ``left`` is text."""
    if not isinstance(left, str):
        return left % right
    _require_short_format(left)
    return _accounted(left % right, (left, right))


BINARY_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"+": add, "*": multiply, "**": power, "%": modulo}


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def bounded_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    invoke: Callable[..., Any] = _call,
) -> Any:
    """Call a function or method from a template; ``invoke`` calls it with the arguments."""
    wrapped = getattr(function, "__wrapped__", None)  # the sandbox wraps str.format
    owner = getattr(function if wrapped is None else wrapped, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(owner, str):
        function, args = _text_method(function, owner, name, args, kwargs)
    elif isinstance(owner, (list, dict)) and name in _MODIFYING:
        _require_small_tree(owner, [*args, *kwargs.values()])
    elif inspect.isbuiltin(function):
        require_counts(*args, *kwargs.values())
    result = invoke(function, *args, **kwargs)
    if isinstance(owner, str) or inspect.isfunction(function):
        return _accounted(result, (owner, *args, *kwargs.values()))
    return result


def _require_small_tree(owner: Any, added: list[Any]) -> None:
    """Check what is going to be added to a container, which must not come to contain itself."""
    limits().container(added)
    waiting: list[Any] = added
    while waiting:
        value = waiting.pop()
        if value is owner:
            raise TemplateLimitError(TOO_DEEP)
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value


def _text_method(
    function: Callable[..., Any], owner: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Check what a method of a text is going to make; return the method to call, and its arguments."""
    require_counts(*args, *kwargs.values())
    if name == "join" and args:
        args = (list(args[0]), *args[1:])
        limits().text(sum(len(part) for part in args[0] if isinstance(part, str)) + len(owner) * len(args[0]))
    elif name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        limits().text(len(owner) + owner.count(args[0]) * max(len(args[1]) - len(args[0]), 0))
    elif name in ("format", "format_map"):
        _require_short_format(owner)
    elif name in _SPLITTING:
        limits().items(_n_parts(owner, name, args))
    elif name == "expandtabs":
        limits().text(len(owner) + owner.count("\t") * max((v for v in (*args, 8) if isinstance(v, int)), default=8))
    elif name == "translate" and args and isinstance(args[0], Mapping):
        longest = max((len(value) for value in args[0].values() if isinstance(value, str)), default=1)
        limits().text(len(owner) * max(longest, 1))
    elif name == "encode":
        raise TypeError("texts cannot be encoded in a chat template")
    elif name in ("strip", "lstrip", "rstrip") and args and isinstance(args[0], str) and len(args[0]) > _FEW_CHARACTERS:
        args = ("".join(set(args[0])), *args[1:])  # searched for each character of the text
    if type(owner) is str and name not in ("format", "format_map") and _any_quoted((*args, *kwargs.values())):
        return getattr(QuotedText(owner, bytes(len(owner))), name), args
    return function, args


def _n_parts(text: str, name: str, args: Sequence[Any]) -> int:
    if name == "splitlines":
        return sum(map(text.count, _LINE_ENDS))
    separator = args[0] if args else None
    if isinstance(separator, str):
        return text.count(separator) if separator else 0
    return sum(1 for _ in islice(re.finditer(r"\S+", text), MAX_COUNT)) if len(text) > MAX_COUNT else 0


def _require_short_format(text: str) -> None:
    if _LONG_FORMAT.search(text):
        raise TemplateLimitError(LARGE_NUMBER)


def _accounted(result: Any, inputs: Iterable[Any]) -> Any:
    """Count a result; one without flags that comes from a quoted text is quoted as a whole."""
    if isinstance(result, (bytes, bytearray)):
        raise TypeError("a chat template has no use for bytes")
    if isinstance(result, str):
        limits().text(len(result))
        if not isinstance(result, QuotedText) and _any_quoted(inputs):
            return QuotedText(str.__str__(result))
    elif isinstance(result, list):
        limits().items(len(result))
    else:
        limits().step()
    return result


def _any_quoted(values: Iterable[Any]) -> bool:
    return limits().quoted and any(map(holds_quoted, values))


def sliced(value: Any, start: Any, stop: Any, step: Any) -> Any:
    """``value[start:stop:step]``."""
    result = value[start:stop:step]
    if isinstance(result, (str, list, tuple)):
        limits().text(len(result))
    return result


def concatenation(*values: Any) -> str:
    """``a ~ b ~ c``."""
    return joined(map(text_of, values))


def new_container(value: Any) -> Any:
    """Check a list, a tuple or a dictionary that a template writes."""
    limits().container(value)
    return value


def step(value: Any) -> Any:
    """Count a step, and return the value."""
    limits().step()
    return value


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Convert to JSON as transformers does, which does not escape HTML."""
    require_counts(indent)
    if isinstance(value, Iterator):
        value = as_list(value)
    limits().container(value)
    if indent:
        width = len(indent) if isinstance(indent, str) else max(int(indent), 0)
        if width > _FEW_CHARACTERS:
            raise TemplateLimitError(TOO_LARGE)
    options: dict[str, Any] = {
        "ensure_ascii": ensure_ascii, "indent": indent, "separators": separators, "sort_keys": sort_keys
    }  # fmt: skip
    return joined((json_text(value, **options),))


@pass_environment
def join(environment: Environment, value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
    """Concatenate the items, with text between them."""
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    between = text_of(d)
    parts: list[str] = []
    for i, item in enumerate(counted(items)):
        parts += [between, text_of(item)] if i else [text_of(item)]
    return joined(parts)


@pass_environment
def sum_(environment: Environment, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    """Add the items to ``start``."""
    items = iterable if attribute is None else map(make_attrgetter(environment, attribute), iterable)
    return functools.reduce(add, counted(items), start)


def replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    """Replace a text by another."""
    text = text_of(value)
    args = (text_of(old), text_of(new), -1 if count is None else count)
    result: str = bounded_call(text.replace, args, {})
    return result


def indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent each line."""
    text, margin = text_of(value), width if isinstance(width, str) else " " * _checked_width(width)
    limits().items(_n_parts(text, "splitlines", ()))
    lines = (text + "\n").splitlines()
    limits().text(len(text) + len(lines) * len(margin))
    parts = [margin] if first else []
    for i, line in enumerate(lines):
        if i:
            parts += ["\n", margin] if blank or line else ["\n"]
        parts.append(line)
    return joined(parts)


def _checked_width(width: Any) -> int:
    require_counts(width)
    if int(width) > limits().max_text // 8:
        raise TemplateLimitError(TOO_LARGE)
    return int(width)


def as_list(value: Iterable[Any]) -> list[Any]:
    """Convert to a list; a text becomes a list of its characters."""
    items = list(islice(value, limits().max_text))
    limits().items(len(items))
    return items


def center(value: Any, width: int = 80) -> str:
    """Put a text into the middle of a line."""
    return bounded_call(text_of(value).center, (_checked_width(width),), {})  # type: ignore[no-any-return]


def round_(value: Any, precision: int = 0, method: str = "common") -> Any:
    """Round a number."""
    if isinstance(precision, int) and abs(precision) > math.log10(2) * _MAX_BITS:
        raise TemplateLimitError(LARGE_NUMBER)
    return _filter("round")(value, precision, method)


def format_(value: Any, *args: Any, **kwargs: Any) -> str:
    """Format with ``%``."""
    _require_short_format(text_of(value))
    return _filter("format")(value, *args, **kwargs)  # type: ignore[no-any-return]


def safe(value: Any) -> Any:
    """Mark a text as HTML."""
    return value if isinstance(value, QuotedText) else _filter("safe")(value)


def _filter(name: str) -> Callable[..., Any]:
    """One of jinja2's own filters; "map" needs its first arguments bound."""
    return cast("Callable[..., Any]", FILTERS[name])


_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "tojson": tojson, "join": join, "replace": replace, "indent": indent, "list": as_list, "center": center,
    "round": round_, "format": format_, "safe": safe, "string": text_of, "sum": sum_,
}  # fmt: skip


def filters() -> dict[str, Callable[..., Any]]:
    """All filters of jinja2, with limits."""
    return {name: _bounded_filter(name, _OWN_FILTERS.get(name, function)) for name, function in FILTERS.items()}


def _bounded_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    n_passed = 1 if hasattr(function, "jinja_pass_arg") else 0  # the environment or the context comes first

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value, *others = args[n_passed:]
        options = (*others, *kwargs.values())
        require_counts(*options)
        if name in _PADDING_FILTERS and any(isinstance(n, int) and n > _MAX_PADDING for n in options):
            raise TemplateLimitError(LARGE_NUMBER)
        if name in _COPYING_FILTERS:
            value = list(counted(value))
            limits().text(sum(len(item) for item in value if isinstance(item, str)))
        elif name in _SLOW_FILTERS and isinstance(value, str) and len(value) > _MAX_TEXT_OF_SLOW_FILTERS:
            raise TemplateLimitError(TOO_LARGE)
        elif name == "trim" and (others or kwargs):
            return bounded_call(text_of(value).strip, others or [*kwargs.values()], {})
        result = function(*args[:n_passed], value, *others, **kwargs)
        if name not in _KEEP_FLAGS:
            return _accounted(result, (value, *options))
        limits().step()
        if isinstance(result, str):
            limits().text(len(result))
        return result

    return bounded

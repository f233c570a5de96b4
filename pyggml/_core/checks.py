"""Checks of argument values: each returns the value in its own type, or raises InvalidParameterError naming it.

Imports neither numpy nor the compiled module, so that a command's ``--help`` stays fast.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
import operator
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, SupportsIndex, TypeGuard

INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

_FILE_NAME = re.compile(r"[^\n\r={}\[\]\"|]*\.(json|jsonschema|schema|gbnf|ebnf|txt)", re.IGNORECASE)


def invalid(message: str) -> Exception:
    """Return an InvalidParameterError, imported late because its module loads the compiled one."""
    from pyggml.errors import InvalidParameterError

    return InvalidParameterError(message)


def shown(value: object) -> str:
    """Return the repr of an invalid value for a message, cut off after 200 characters."""
    try:
        return f"{value!r:.200}"
    except Exception:  # nested too deeply, an integer with thousands of digits, or its own __repr__ fails
        what = "an integer with thousands of digits" if isinstance(value, int) else f"a {type(value).__name__}"
        return f"{what} that cannot be shown"


def is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return True if the value can be a path: a string or PathLike that the file system can encode, without NUL."""
    try:
        return isinstance(value, (str, os.PathLike)) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def is_directory(path: Path) -> bool:
    """Return True if there is a directory; a path that cannot be looked up, such as one that is too long, is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def integer(name: str, value: SupportsIndex, low: float, high: float, way_out: str = "") -> int:
    """Return ``value`` as an int within ``low`` to ``high``, not a bool; ``way_out`` ends the message."""
    if type(value).__name__ in ("bool", "bool_"):  # numpy's too
        raise invalid(f"{name} must be an integer, not {shown(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise invalid(f"{name} must be an integer, not {shown(value)}{way_out}") from None
    if not low <= number <= high:
        raise invalid(f"{name} must be between {low} and {high}, not {shown(number)}{way_out}")
    return number


def flag(name: str, value: object) -> bool:
    """Return the truth value of anything but text."""
    if not isinstance(value, (str, bytes)):
        with contextlib.suppress(TypeError, ValueError):  # such as an array of several
            return bool(value)
    raise invalid(f"{name} must be True or False, not {shown(value)}")


def callback(name: str, value: object) -> None:
    """Check a function, or None, that is called later, when the error would be harder to trace."""
    if value is not None and not callable(value):
        raise invalid(f"{name} must be a function or None, not {shown(value)}")
    if inspect.iscoroutinefunction(value):
        raise invalid(f"{name} is a coroutine function, which would never be awaited: pass a function without async")


def items(name: str, values: object, what: str = "a list") -> list[Any]:
    """Return the items of an iterable that is neither text nor a mapping; ``what`` names it in messages."""
    require_countable(name, values)
    return list(iterate(name, values, what))


def iterate(name: str, values: object, what: str = "a list") -> Iterator[Any]:
    """Return an iterator over the items; parameters as for :func:`items`."""
    if not isinstance(values, (str, bytes, bytearray, Mapping)) and isinstance(values, Iterable):
        with contextlib.suppress(TypeError):  # some raise only now, such as an array of no dimensions
            return iter(values)
    raise invalid(f"{name} must be {what}, not {shown(values)}")


def require_countable(name: str, values: object) -> None:
    """Reject a value whose length no list can have, such as a huge range, before it is converted to a list."""
    try:
        few = not isinstance(values, Sized) or len(values) <= INT32_MAX
    except TypeError:  # an array of no dimensions
        few = True
    except OverflowError:
        few = False
    if not few:
        raise invalid(f"{name} has more than {INT32_MAX} items: {shown(values)}")


def real(name: str, value: float) -> float:
    """Return ``value`` as a float; native code checks for ranges and NaN."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise invalid(f"{name} must be a number, not {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise invalid(f"{name} must be a number that a float can hold") from None


def finite(
    name: str, value: float, low: float = -math.inf, high: float = math.inf, *, above_low: bool = False
) -> float:
    """Return ``value`` as a finite float within ``low`` to ``high``, or above ``low``."""
    number = real(name, value)
    if math.isfinite(number) and (low < number if above_low else low <= number) and number <= high:
        return number
    least = f" above {low:g}" if above_low else f" of at least {low:g}"
    bounds = "" if math.isinf(low) else least if math.isinf(high) else f" from {low:g} to {high:g}"
    raise invalid(f"{name} must be a finite number{bounds}, not {shown(value)}")


def choice(name: str, value: str, choices: Collection[str], way_out: str = "") -> str:
    """Return ``value``, which must be one of ``choices``; ``way_out`` ends the message."""
    if isinstance(value, str) and value in choices:
        return value
    raise invalid(f"{name} must be one of {', '.join(map(repr, choices))}, not {shown(value)}{way_out}")


def c_string(name: str, text: str | bytes) -> bytes:
    """Return text as UTF-8 for a NUL-terminated C string: no NUL, no unpaired surrogate."""
    data = utf8(name, text)
    if b"\0" in data:
        raise invalid(f"{name} contains a NUL character at byte {data.index(0)}: remove it")
    return data


def require_content(name: str, text: str) -> None:
    """Reject the name of a file in place of its content, JSON or a grammar, neither of which is like one."""
    if _FILE_NAME.fullmatch(text):
        raise invalid(
            f"{name} is {shown(text)}, which looks like a file: files are not read here, so pass its content, in "
            f"Python Path({shown(text)}).read_text()"
        )


def device_name(device: str) -> bytes:
    """Return the name of a device as UTF-8 for a C string. The engine would take an empty one for "auto"."""
    if not isinstance(device, str):
        raise invalid(f"device must be text, not {type(device).__name__}")
    if not device:
        raise invalid('device is empty: "auto" lets pyggml choose; "cpu", "gpu", "cuda:1" ... name one')
    return c_string("device", device)


def utf8(name: str, text: str | bytes) -> bytes:
    """Return text as UTF-8, without unpaired surrogates, and bytes unchanged."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise invalid(f"{name} must be text, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise invalid(
            f"{name} contains an unpaired surrogate at index {error.start}, which UTF-8 cannot encode"
        ) from None

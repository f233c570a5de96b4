"""Schemas of dates, times and durations between bounds, as patterns: JSON Schema has no keyword for such bounds."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyggml._core.checks import shown
from pyggml.errors import InvalidParameterError

_BOUNDS = ("ge", "gt", "le", "lt")
_SECOND = dt.timedelta(seconds=1)
_FIRST, _LAST = dt.datetime(1000, 1, 1), dt.datetime(2999, 12, 31, 23, 59, 59)  # of the formats
_MOST_UNITS = 999  # of the format
#: Formats with a time zone -> those without.
LOCAL = {
    name: f"local-{name.removeprefix('local-')}" for name in ("date-time", "local-date-time", "time", "local-time")
}
_UNITS = {"D": 86_400, "W": 7 * 86_400, "TH": 3_600, "TM": 60, "TS": 1}  # name -> seconds


def of_python(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a moment with a pattern of what Python's types can hold.

    RFC 3339 also has leap seconds, the year 0000, lower-case letters, and any number of digits.
    """
    name = schema.get("format", "")
    if "pattern" in schema or name not in _PYTHON_PATTERNS:
        return schema
    return {**schema, "pattern": _PYTHON_PATTERNS[name]}


def is_moment(value: object) -> bool:
    """Return True for a date, a time, a moment or a duration."""
    return isinstance(value, (dt.date, dt.time, dt.timedelta))


def bounded(schema: dict[str, Any], bounds: Mapping[str, Any], *, keeps_zone: bool = False) -> dict[str, Any]:
    """Return the schema of a moment, or of alternatives with one, within bounds.

    With a time zone in the bounds, the values have the same one (moments: UTC); without, they have none, unless
    ``keeps_zone``.

    Args:
        schema: a schema with a ``format``, or with ``anyOf``.
        bounds: ``ge``, ``gt``, ``le`` and ``lt``; any may be missing.
        keeps_zone: values have a time zone, which is ignored if the bounds have none, as pydantic does.

    Raises:
        InvalidParameterError: a bound does not fit the schema, or the bounds have different time zones.
    """
    given = {name: bounds[name] for name in _BOUNDS if bounds.get(name) is not None}
    found = _bounded(schema, given, keeps_zone)
    if given and found is None:
        raise InvalidParameterError(f"the bound {shown(next(iter(given.values())))} is for another type")
    return schema if found is None else found


def _bounded(schema: dict[str, Any], given: Mapping[str, Any], keeps_zone: bool) -> dict[str, Any] | None:
    if "anyOf" in schema:
        found = [_bounded(each, given, keeps_zone) for each in schema["anyOf"]]
        pairs = zip(schema["anyOf"], found, strict=True)
        return {**schema, "anyOf": [old if new is None else new for old, new in pairs]} if any(found) else None
    kind, pattern_of = _KINDS.get(schema.get("format", ""), (None, None))
    if pattern_of is None or any(type(value) is not kind for value in given.values()):
        return None
    pattern, is_local = pattern_of(given)
    if pattern is None:
        return {"enum": []}
    if is_local and keeps_zone:
        return {**schema, "pattern": f"^({pattern})[Z+-]"}
    return {**schema, "format": LOCAL[schema["format"]] if is_local else schema["format"], "pattern": f"^({pattern})$"}


def _dates(given: Mapping[str, Any]) -> tuple[str | None, bool]:
    day = dt.timedelta(days=1)
    low, high = _FIRST.date(), _LAST.date()
    for name, bound in given.items():
        try:
            value = bound + (day if name == "gt" else -day if name == "lt" else 0 * day)
        except OverflowError:
            return None, False
        low, high = (max(low, value), high) if name[0] == "g" else (low, min(high, value))
    return _between(low.isoformat(), high.isoformat()), False


def _moments(given: Mapping[str, Any]) -> tuple[str | None, bool]:
    zoned = _have_zone(given)
    low, high = _FIRST, _LAST
    for name, bound in given.items():
        offset = bound.utcoffset() or 0 * _SECOND
        try:
            value = _whole(name, bound.replace(tzinfo=None)) - offset
        except OverflowError:
            return None, False
        low, high = (max(low, value), high) if name[0] == "g" else (low, min(high, value))
    return _between(low.isoformat(), high.isoformat(), "Z" if zoned else ""), not zoned


def _times(given: Mapping[str, Any]) -> tuple[str | None, bool]:
    zoned = _have_zone(given)
    zones = {bound.utcoffset() for bound in given.values()}
    if len(zones) > 1:
        raise InvalidParameterError(f"the bounds {shown(list(given.values()))} have different time zones: use one")
    day = dt.datetime(2000, 1, 1)
    low, high = day, day.replace(hour=23, minute=59, second=59)
    for name, bound in given.items():
        value = _whole(name, dt.datetime.combine(day, bound.replace(tzinfo=None)))
        low, high = (max(low, value), high) if name[0] == "g" else (low, min(high, value))
    suffix = dt.time(tzinfo=next(iter(given.values())).tzinfo).isoformat()[8:] if zoned else ""
    return _between(
        f"{low:%H:%M:%S}", f"{high:%H:%M:%S}", suffix.replace("+", r"\+")
    ) if low <= high else None, not zoned


def _durations(given: Mapping[str, Any]) -> tuple[str | None, bool]:
    low, high = 1, _MOST_UNITS * max(_UNITS.values())  # seconds
    for name, bound in given.items():
        value = bound // _SECOND + 1 if name == "gt" else bound // _SECOND if name == "le" else -(-bound // _SECOND)
        value -= name == "lt"
        low, high = (max(low, value), high) if name[0] == "g" else (low, min(high, value))
    alternatives = []
    for unit, seconds in _UNITS.items():
        least, most = -(-low // seconds), min(_MOST_UNITS, high // seconds)
        if least <= most:
            prefix = "P" + unit[:-1]
            alternatives.append(f"{prefix}({_naturals(least, most)}){unit[-1]}")
    return "|".join(alternatives) or None, False


_Pattern = Callable[[Mapping[str, Any]], tuple[str | None, bool]]
# Format -> type of its bounds, and the pattern within bounds (None: nothing is), with True if it lacks a time zone.
_KINDS: dict[str, tuple[type, _Pattern]] = {
    "date": (dt.date, _dates),
    **dict.fromkeys(("date-time", "local-date-time"), (dt.datetime, _moments)),
    **dict.fromkeys(("time", "local-time"), (dt.time, _times)),
    "duration": (dt.timedelta, _durations),
}


def _have_zone(given: Mapping[str, Any]) -> bool:
    zoned = {bound.utcoffset() is not None for bound in given.values()}
    if len(zoned) > 1:
        raise InvalidParameterError(f"of the bounds {shown(list(given.values()))}, only one has a time zone")
    return True in zoned


def _whole(name: str, value: dt.datetime) -> dt.datetime:
    """Return the first or last whole second that a bound allows."""
    whole = value.replace(microsecond=0)
    if name == "gt" or (name == "ge" and whole < value):
        return whole + _SECOND
    return whole - _SECOND if name == "lt" and whole == value else whole


def _naturals(low: int, high: int) -> str:
    """Return a pattern for natural numbers, with few digits."""
    lengths = range(len(str(low)), len(str(high)) + 1)
    bounds = ((max(low, 10 ** (n - 1)), min(high, 10**n - 1)) for n in lengths)
    return "|".join(str(_between(str(least), str(most))) for least, most in bounds)


def _between(low: str, high: str, suffix: str = "") -> str | None:
    """Return a pattern for texts of the same form, digits and separators, in lexical order; None: there are none."""
    if low > high:
        return None
    pattern = "|".join(_ranges(low, high))
    return f"({pattern}){suffix}" if suffix else pattern


def _ranges(low: str, high: str) -> Iterator[str]:
    """Yield patterns that together match the texts between two of the same length, whose separators are equal."""
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b), len(low))
    if same == len(low):
        yield low
        return
    prefix, rest = low[:same], low[same + 1 :]
    first, last = low[same], high[same]
    for tail in _ends(rest, 1):
        yield f"{prefix}{first}{tail}"
    if int(last) - int(first) > 1:
        yield f"{prefix}{_digit(int(first) + 1, int(last) - 1)}{_free(rest)}"
    for tail in _ends(high[same + 1 :], -1):
        yield f"{prefix}{last}{tail}"


def _ends(text: str, step: int) -> Iterator[str]:
    """Yield patterns for the texts from one on upwards (``step`` 1) or downwards (-1)."""
    for i, char in enumerate(text):
        if char.isdigit() and char != ("9" if step == 1 else "0"):
            low, high = (int(char) + 1, 9) if step == 1 else (0, int(char) - 1)
            yield f"{text[:i]}{_digit(low, high)}{_free(text[i + 1 :])}"
    yield text


def _digit(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"


@functools.cache
def _free(text: str) -> str:
    return "".join("[0-9]" if char.isdigit() else char for char in text)


_DATE = "[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME = "[0-9]{2}:[0-9]{2}:[0-5][0-9](\\.[0-9]{3}([0-9]{3})?)?"
_ZONE = "(Z|[+-][0-9]{2}:[0-9]{2})"
_PYTHON_PATTERNS = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE}T{_TIME}{_ZONE}$",
    "local-date-time": f"^{_DATE}T{_TIME}$",
    "time": f"^{_TIME}{_ZONE}$",
    "local-time": f"^{_TIME}$",
    "duration": f"^({_durations({})[0]})$",
}

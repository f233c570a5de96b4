"""JSON with exact numbers, for ``jsonschema``, which would judge 1e300, 0.3 and long fractions by their rounded values.

Numbers become int, or Fraction if they have a fraction, or in draft 4, where 1.0 is no integer, if they are spelled
with a point or an exponent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jsonschema

from support.ecmascript_patterns import with_python_patterns

_DEFAULT_DRAFT = jsonschema.Draft202012Validator
#: Digits of numbers; more would take memory and time without end, as those of 1e999999999 do.
MAX_DIGITS = 4000


_LEAP_SECOND = re.compile(r":60(?=[.,Zz+-]|$)")
_RELATIVE_POINTER = re.compile(r"(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)", re.DOTALL)


class HugeNumberError(ValueError):
    """A number of more than ``MAX_DIGITS`` digits."""


def validator_of(schema: Any) -> Any:
    """Return the validator of a schema in the draft that it declares, for values of :func:`loads`.

    It checks formats, and takes patterns for ECMAScript's.

    Raises:
        HugeNumberError: a number of the schema is too long.
    """
    draft: Any = jsonschema.validators.validator_for(schema, default=_DEFAULT_DRAFT)
    exact = with_python_patterns(loads(json.dumps(schema), draft))
    return draft(exact, format_checker=_formats(draft))


def loads(text: str, draft: Any) -> Any:
    """Parse JSON text for a draft's validators.

    Raises:
        HugeNumberError: a number is too long.
        ValueError: the text is not JSON.
    """
    return json.loads(
        text, parse_int=_whole, parse_float=_fraction if _tells_spellings(draft) else _number, parse_constant=_constant
    )


class Verdict(NamedTuple):
    """Result of a validation; ``reason`` is that of "invalid" and "unchecked"."""

    kind: Literal["valid", "invalid", "unchecked"]
    reason: str = ""


def judge(validator: Any, text: str) -> Verdict:
    """Validate JSON text, with a validator of :func:`validator_of`.

    "unchecked" is a text with a number that is too long, and a schema that ``jsonschema`` cannot use.
    """
    try:
        value = loads(text, type(validator))
    except HugeNumberError as error:
        return Verdict("unchecked", str(error))
    except ValueError as error:
        return Verdict("invalid", f"not JSON: {error}")
    try:
        found = next(validator.iter_errors(value), None)
    except Exception as failure:  # a reference that it cannot resolve, a pattern that Python cannot compile ...
        return Verdict("unchecked", f"{type(failure).__name__}: {failure}")
    return Verdict("valid") if found is None else Verdict("invalid", found.message)


def _formats(draft: Any) -> jsonschema.FormatChecker:
    """The draft's formats, without mistakes of ``jsonschema``: leap seconds, the year 0, and integers with zeros."""
    formats = jsonschema.FormatChecker(())
    formats.checkers = dict(draft.FORMAT_CHECKER.checkers)

    def exact(name: str) -> Callable[[object], bool]:
        def conforms(value: object) -> bool:
            text = _LEAP_SECOND.sub(":59", value) if isinstance(value, str) else value
            text = "2000-" + text[5:] if isinstance(text, str) and text.startswith("0000-") else text
            return bool(draft.FORMAT_CHECKER.conforms(text, name))

        return conforms

    for name in ("date", "time", "date-time"):
        if name in formats.checkers:
            formats.checkers[name] = (exact(name), ())
    if "relative-json-pointer" in formats.checkers:
        formats.checkers["relative-json-pointer"] = (_is_relative_pointer, ())
    return formats


def _is_relative_pointer(value: object) -> bool:
    return not isinstance(value, str) or _RELATIVE_POINTER.fullmatch(value) is not None


def _tells_spellings(draft: Any) -> bool:
    return draft is jsonschema.Draft4Validator or draft is jsonschema.Draft3Validator


def _whole(spelling: str) -> int:
    if len(spelling) > MAX_DIGITS:
        raise HugeNumberError(f"{spelling[:20]}...: more than {MAX_DIGITS} digits")
    return int(spelling)


def _fraction(spelling: str) -> Fraction:
    exponent = spelling.lower().partition("e")[2]
    if len(spelling) > MAX_DIGITS or abs(int(exponent or 0)) > MAX_DIGITS:
        raise HugeNumberError(f"{spelling[:20]}...: more than {MAX_DIGITS} digits")
    return Fraction(spelling)


def _number(spelling: str) -> int | Fraction:
    value = _fraction(spelling)
    return value.numerator if value.denominator == 1 else value


def _constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")

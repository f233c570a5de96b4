"""JSON with exact numbers, for ``jsonschema``, which would judge 1e300, 0.3 and long fractions by their rounded values.

Numbers become int, or Fraction if they have a fraction, or in draft 4, where 1.0 is no integer, if they are spelled
with a point or an exponent.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import jsonschema

from support.ecmascript_patterns import with_python_patterns

_DEFAULT_DRAFT = jsonschema.Draft202012Validator
#: Digits of numbers; more would take memory and time without end, as those of 1e999999999 do.
MAX_DIGITS = 4000


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
    return draft(exact, format_checker=draft.FORMAT_CHECKER)


def loads(text: str, draft: Any) -> Any:
    """Parse JSON text for a draft's validators.

    Raises:
        HugeNumberError: a number is too long.
        ValueError: the text is not JSON.
    """
    return json.loads(
        text, parse_int=_whole, parse_float=_fraction if _tells_spellings(draft) else _number, parse_constant=_constant
    )


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

"""Elements of GBNF: literals, character classes, repetitions, and the numbers within a range."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction

from pyggml.errors import GrammarError

#: Maximum number of digits before the point, and in total: as many as a double can tell apart.
MAX_DIGITS = 15
_MAX_FRACTION = 6  # unless a bound has more
_LARGEST = int(sys.float_info.max)

_BLOCK = 100
_MOST_REPEATED = 1_000_000  # required items: no generation is that long

Ranges = list[tuple[int, int]]
AddRule = Callable[[str], str]


def literal(text: str) -> str:
    """Return a literal."""
    return '"' + "".join(map(_escaped, text)) + '"'


def char_class(ranges: Ranges, *, negated: bool = False) -> str:
    """Return a class of the characters within the ranges of code points or, if negated, outside them."""
    inside = "".join(_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges)
    return f"[{'^' if negated else ''}{inside}]"


def _escaped(char: str) -> str:
    return f"\\{char}" if char in '"\\' else _code(ord(char)) if ord(char) < 0x20 else char


def _code(code_point: int) -> str:
    """Return a character of a class, escaped unless it is a letter or digit."""
    char = chr(code_point)
    if char.isascii() and char.isalnum():
        return char
    return f"\\x{code_point:02X}" if code_point <= 0xFF else f"\\U{code_point:08X}"


def any_of(alternatives: list[str]) -> str:
    """Return the alternation of at least one expression."""
    return alternatives[0] if len(alternatives) == 1 else "(" + " | ".join(alternatives) + ")"


def repeated(item: str, least: int, most: int | None, add_rule: AddRule) -> str:
    """Return an item repeated ``least`` to ``most`` times; ``item`` is a rule's name.

    Long repetitions are built from blocks, because the engine's parser expands every repetition.
    """
    if least > _MOST_REPEATED:
        raise GrammarError("the JSON schema is too large for a grammar")
    if most is None:
        start = repeated(item, least, least, add_rule)
        return f"{start} {add_rule(f'{item}*')}".strip()
    if most <= _BLOCK:
        return add_rule(f"{item}{{{least},{most}}}") if most > 0 else ""
    if least > 0:
        blocks, rest = divmod(least, _BLOCK)
        exact = repeated(item, rest, rest, add_rule)
        if blocks:
            block = add_rule(f"{item}{{{_BLOCK}}}")
            exact = " ".join([*[block] * blocks, exact]).strip()
        return f"{exact} {repeated(item, 0, most - least, add_rule)}".strip()
    blocks, rest = divmod(most, _BLOCK)
    block, short = add_rule(f"{item}{{{_BLOCK}}}"), add_rule(f"{item}{{0,{_BLOCK - 1}}}")
    tail = add_rule(f"{item}{{0,{rest}}}") if rest else '""'
    for _ in range(blocks):
        tail = add_rule(f"{block} {tail} | {short}")
    return tail


def integers(low: int | None, high: int | None) -> str:
    """Return an expression for integers from ``low`` to ``high``, included; None: bounded only by the number of digits.

    Raises ValueError if there are no such integers.
    """
    low, high = _open_ends(low, high, MAX_DIGITS)
    if low > high:
        raise ValueError(f"no integer is between {low} and {high}")
    alternatives = []
    if low < 0:
        alternatives.append(f'"-" ({_naturals(max(1, -high), -low)})')
    if high >= 0:
        alternatives.append(_naturals(max(0, low), high))
    return " | ".join(alternatives)


def _open_ends(low: int | None, high: int | None, n_digits: int) -> tuple[int, int]:
    """Return both bounds; a missing one becomes a number of ``n_digits`` digits, or of more if the other needs it."""
    lowest, highest = (-_far(n_digits, -(high or 0)), _far(n_digits, low or 0))
    return (lowest if low is None else low, highest if high is None else high)


def _far(n_digits: int, other: int) -> int:
    return int("9" * max(n_digits, len(str(other)) + 1 if other > 0 else 0))


def _naturals(low: int, high: int) -> str:
    alternatives = []
    while low <= high:
        last = min(high, 10 ** len(str(low)) - 1)  # the largest number with as many digits
        alternatives.append(_same_length(str(low), str(last)))
        low = last + 1
    return " | ".join(alternatives)


def _same_length(low: str, high: str) -> str:
    """Return an expression for digit strings from ``low`` to ``high``, which have the same length."""
    if not low:
        return '""'
    rest = len(low) - 1
    if set(low) == {"0"} and set(high) == {"9"}:
        return _digits(len(low), len(low))
    if low[0] == high[0]:
        return f'"{low[0]}" ({_same_length(low[1:], high[1:])})'
    first, last = int(low[0]), int(high[0])
    alternatives = []
    if set(low[1:]) - {"0"}:
        alternatives.append(f'"{first}" ({_same_length(low[1:], "9" * rest)})')
        first += 1
    ends_full = not set(high[1:]) - {"9"}
    if first <= (last if ends_full else last - 1):
        alternatives.append(f"[{first}-{last if ends_full else last - 1}] {_digits(rest, rest)}")
    if not ends_full:
        alternatives.append(f'"{last}" ({_same_length("0" * rest, high[1:])})')
    return " | ".join(alternatives)


def _digits(least: int, most: int) -> str:
    return f"[0-9]{{{least},{most}}}" if most else '""'


def numbers(
    low: Fraction | None,
    high: Fraction | None,
    *,
    above: bool = False,
    below: bool = False,
    n_decimals: int | None = None,
) -> str:
    """Return an expression for decimal numbers from ``low`` to ``high``; ``above`` and ``below`` exclude the bound.

    ``n_decimals`` is the maximum number of decimals; None: as many as the bounds have, at least six.

    Raises ValueError if there are no such numbers.
    """
    n_digits = max(_MAX_FRACTION, *(_n_decimals(bound) for bound in (low, high) if bound is not None), 0)
    n_digits = n_digits if n_decimals is None else n_decimals
    scale = 10**n_digits
    least = None if low is None else _least(low, scale, beyond=above)
    most = None if high is None else -_least(-high, scale, beyond=below)
    least, most = _open_ends(least, most, MAX_DIGITS + n_digits)
    least, most = max(least, -_LARGEST * scale), min(most, _LARGEST * scale)
    if least > most:
        raise ValueError("no number can match")
    alternatives = []
    if least < 0:
        alternatives.append(f'"-" ({_decimals(max(1, -most), -least, n_digits)})')
    if most >= 0:
        alternatives.append(_decimals(max(0, least), most, n_digits))
    return " | ".join(alternatives)


def _least(bound: Fraction, scale: int, *, beyond: bool) -> int:
    """Return the least number, in units of ``1 / scale``, that is within the bound even if it is read as a double."""
    # JSON readers keep whole numbers exact or convert them to doubles; both must be within the bound.
    limits = (bound, _as_double(bound)) if bound.denominator == 1 else (_as_double(bound),)

    def is_within(number: Fraction | float) -> bool:
        return all(number > limit or (number == limit and not beyond) for limit in limits)

    least = units(bound * scale, beyond)
    exact = Fraction(least, scale)
    read = _as_double(exact)
    if is_within(read) and (exact.denominator != 1 or is_within(exact)):
        return least
    first = read if is_within(read) else math.nextafter(read, math.inf)
    if math.isinf(first):
        raise ValueError("no number can match")
    return math.ceil(Fraction(first) * scale)


def _as_double(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def units(bound: Fraction, beyond: bool) -> int:
    """Return the smallest integer at or above a bound; with ``beyond``, strictly above it."""
    whole = math.ceil(bound)
    return whole + 1 if beyond and whole == bound else whole


def _n_decimals(number: Fraction) -> int:
    """Return the number of decimals needed to write this number exactly, up to a limit."""
    n = 0
    while n < MAX_DIGITS and (number * 10**n).denominator != 1:
        n += 1
    return n


def _decimals(low: int, high: int, n_digits: int) -> str:
    """Return non-negative numbers with ``n_digits`` decimals, from ``low`` to ``high`` in units of the last digit."""
    scale = 10**n_digits
    first, first_rest = divmod(low, scale)
    last, last_rest = divmod(high, scale)
    low_digits, high_digits = f"{first_rest:0{n_digits}d}", f"{last_rest:0{n_digits}d}"
    if first == last:
        return f'"{first}" {_behind_point(low_digits, high_digits)}'
    alternatives = [f'"{last}" {_behind_point("0" * n_digits, high_digits)}']
    if first_rest:
        alternatives.append(f'"{first}" {_behind_point(low_digits, "9" * n_digits)}')
        first += 1
    if first < last:
        alternatives.append(f'({_naturals(first, last - 1)}) ("." {_digits(1, n_digits)})?')
    return " | ".join(alternatives)


def _behind_point(low: str, high: str) -> str:
    """Return the point and the decimals, from ``.low`` to ``.high``; optional if zero is in range."""
    some = '"." (' + " | ".join(_some_digits(low, high)) + ")"
    return f"({some})?" if not set(low) - {"0"} else f"({some})"


def _some_digits(low: str, high: str) -> list[str]:
    """Return alternatives for decimals from ``.low`` to ``.high``, with one digit to as many as ``low``."""
    rest = len(low) - 1
    alternatives, free = [], []
    for digit in range(int(low[0]), int(high[0]) + 1):
        next_low = low[1:] if digit == int(low[0]) else "0" * rest
        next_high = high[1:] if digit == int(high[0]) else "9" * rest
        may_end = not set(next_low) - {"0"}
        if may_end and not set(next_high) - {"9"}:
            free.append(digit)
        else:
            more = " | ".join(_some_digits(next_low, next_high))
            alternatives.append(f'"{digit}" ({more})' + ("?" if may_end else ""))
    if free:
        alternatives.append(f"[{free[0]}-{free[-1]}] {_digits(0, rest)}")
    return alternatives

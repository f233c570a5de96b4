"""Number ranges and repetitions as grammars, read back as regular expressions and tried on many texts."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from fractions import Fraction

import pytest

from pyggml.schema import _gbnf_elements
from pyggml.schema._regex import pattern_rule


def as_regex(expression: str, rules: dict[str, str] | None = None) -> re.Pattern[str]:
    """A GBNF expression of literals, classes, repetitions and rules' names as Python writes it."""
    rules = rules or {}
    out, i = "", 0
    while i < len(expression):
        if expression[i] == '"':
            end = re.compile(r'"(?:[^"\\]|\\.)*"').match(expression, i)
            assert end
            out += re.escape(re.sub(r"\\(.)", r"\1", end.group()[1:-1]))
            i = end.end()
        elif expression[i] == "[":
            end = re.compile(r"\[[^\]]*\]").match(expression, i)
            assert end
            out += end.group()
            i = end.end()
        elif expression[i].isalpha():
            name = re.compile(r"\w+").match(expression, i)
            assert name
            out += f"(?:{as_regex(rules[name.group()], rules).pattern})"
            i = name.end()
        else:
            out += {"(": "(?:", " ": ""}.get(expression[i], expression[i])
            i += 1
    return re.compile(f"(?:{out})")


def test_integer_ranges() -> None:
    rng = random.Random(1)
    for _ in range(1000):
        low = rng.choice([None, rng.randint(-3000, 3000), rng.randint(-12, 12)])
        high = rng.choice([None, (low or 0) + rng.randint(0, 5000), (low or 0) + rng.randint(0, 20)])
        pattern = as_regex(_gbnf_elements.integers(low, high))
        edges = [edge for bound in (low, high) if bound is not None for edge in (bound - 1, bound, bound + 1)]
        for number in [*(rng.randint(-4000, 9000) for _ in range(20)), *edges, 0, -1, 1]:
            within = (low is None or number >= low) and (high is None or number <= high)
            assert bool(pattern.fullmatch(str(number))) == within, (low, high, number)
        for text in ("", "-", "00", "01", "+1", "-0", "1.0"):
            assert not pattern.fullmatch(text)


@pytest.mark.slow
def test_number_ranges() -> None:
    rng = random.Random(2)
    for _ in range(1000):
        scale = rng.choice([1, 10, 100, 1000])
        low = rng.choice([None, Fraction(rng.randint(-3000, 3000), scale)])
        high = rng.choice([None, (low or 0) + Fraction(rng.randint(1, 3000), scale)])
        above, below = rng.random() < 0.3, rng.random() < 0.3
        pattern = as_regex(_gbnf_elements.numbers(low, high, above=above, below=below))
        for _ in range(30):
            near = float(rng.choice([low or 0, high or 0])) + rng.choice([0, rng.uniform(-1, 1), rng.uniform(-50, 50)])
            text = f"{near:.{rng.randint(0, 6)}f}"
            number = Fraction(text)
            if number == 0 and text.startswith("-"):
                continue
            within = (low is None or number > low or (number == low and not above)) and (
                high is None or number < high or (number == high and not below)
            )
            assert bool(pattern.fullmatch(text)) == within, (low, high, above, below, text)


@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize("bound", [2**63, 2**63 + 1, -(2**53) - 1, 10**20, 1e300, 123456789012.5, 0.1])
def test_numbers_are_within_a_bound_as_doubles_too(bound: float, beyond: bool) -> None:
    """2**63 + 0.000001 is above 2**63, and 2**63 once its reader has made a double of it."""
    exact = Fraction(repr(bound))
    least = as_regex(_gbnf_elements.numbers(exact, None, above=beyond))
    most = as_regex(_gbnf_elements.numbers(None, exact, below=beyond))
    n_least = n_most = 0
    for offset in (0, 1e-6, 1e-4, 1, 2**10, 2**11, 2**12, abs(exact) / 2):
        for number in (exact + Fraction(offset), exact - Fraction(offset)):
            whole = f"{'-' if number < 0 else ''}{abs(number) // 1}"
            for text in (whole, f"{whole}.{round(abs(number) % 1 * 10**6):06d}"):
                read = json.loads(text)
                if least.fullmatch(text):
                    n_least += 1
                    assert read > bound if beyond else read >= bound, text
                if most.fullmatch(text):
                    n_most += 1
                    assert read < bound if beyond else read <= bound, text
    assert n_least > 0
    assert n_most > 0
    following, preceding = (math.nextafter(bound, far) for far in (math.inf, -math.inf))
    if abs(bound) > 2**53:
        assert least.fullmatch(str(int(following)))
        assert most.fullmatch(str(int(preceding)))


@pytest.mark.parametrize(
    ("low", "high"), [(None, Fraction(10**308)), (Fraction(-(10**308)), None), (Fraction(10**307), None)]
)
def test_open_ends_are_no_numbers_that_become_infinite(low: Fraction | None, high: Fraction | None) -> None:
    pattern = as_regex(_gbnf_elements.numbers(low, high))
    for text in ("9" * 310, "-" + "9" * 310, f"{int(sys.float_info.max) + 1}", f"-{int(sys.float_info.max) + 1}"):
        assert not pattern.fullmatch(text)
    assert pattern.fullmatch("5" * 308 if low == 10**307 else "-5")


def test_a_far_bound_leaves_the_other_end_as_it_is() -> None:
    pattern = as_regex(_gbnf_elements.numbers(Fraction("-1e300"), None))
    assert pattern.fullmatch("9" * 15)
    assert not pattern.fullmatch("9" * 16)


def test_no_numbers() -> None:
    with pytest.raises(ValueError, match="between 2 and 1"):
        _gbnf_elements.integers(2, 1)
    with pytest.raises(ValueError, match="no number"):
        _gbnf_elements.numbers(Fraction(1), Fraction(1), above=True)
    for bound, above in ((Fraction(repr(sys.float_info.max)), True), (Fraction(10**400), False)):
        with pytest.raises(ValueError, match="no number"):
            _gbnf_elements.numbers(bound, None, above=above)


@pytest.mark.parametrize(
    ("least", "most"), [(0, 0), (0, 1), (3, 3), (0, 7), (250, 250), (0, 250), (101, 333), (5, None), (230, None)]
)
def test_repetitions(least: int, most: int | None) -> None:
    rules = {"item": '"x"'}

    def add(text: str) -> str:
        name = next((name for name, known in rules.items() if known == text), f"r{len(rules)}")
        rules[name] = text
        return name

    pattern = as_regex(_gbnf_elements.repeated("item", least, most, add), rules)
    for n in {0, 1, 2, 3, 4, 5, 6, 7, 8, 99, 100, 101, 229, 230, 231, 249, 250, 251, 332, 333, 334, 400}:
        assert bool(pattern.fullmatch("x" * n)) == (n >= least and (most is None or n <= most)), n


@pytest.mark.slow_except(every=2)
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("^a+$", ["a", "aaa"], ["", "ab", "ba"]),
        ("^(?:ab|c)?d{2,3}$", ["dd", "abddd", "cdd"], ["d", "abcdd"]),
        ("b", ["b", "abc", "bb"], ["", "ac"]),
        ("^b", ["b", "bc"], ["ab"]),
        ("b$|^c", ["ab", "cx"], ["bc"]),
        (r"^\d\w\s$", ["1_ ", "9z "], ["a_ ", "1- "]),
        (r"^[^a-c]$", ["d", "é", "\U0001f600"], ["a", ""]),
        (r"^[^\s]+$", ["a!"], ["a b", " "]),
        (r"^.$", ["a", "字"], [""]),
        ('^"$', ['\\"'], ['"', ""]),
        (r"^\\n$", ["\\\\n"], ["\\n"]),
        (r"^\n$", ["\\n"], ["\n", "n"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    """Patterns match the characters between the quotes of a JSON string."""
    rules: dict[str, str] = {}

    def add(text: str) -> str:
        rules[f"r{len(rules)}"] = text
        return f"r{len(rules) - 1}"

    expression = as_regex(pattern_rule(pattern, add), rules)
    for text in matching:
        assert expression.fullmatch(text), text
    for text in others:
        assert not expression.fullmatch(text), text

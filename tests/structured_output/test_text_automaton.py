"""Automata of regular expressions, against Python's own matching."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from pyggml.schema._regex import STRING_CHARACTERS, string_chars
from pyggml.schema._rules import Rules
from pyggml.schema._text_automaton import TextAutomaton, patterns, text_rule

TEXTS = ["".join(letters) for n in range(6) for letters in itertools.product("ab\n", repeat=n)]


def accepts(automaton: TextAutomaton, text: str) -> bool:
    state = automaton.start
    for char in text:
        nexts = [to for ranges, to in automaton.moves(state) if any(low <= ord(char) <= high for low, high in ranges)]
        if not nexts:
            return False
        (state,) = nexts
    return automaton.accepts(state)


def random_pattern(rng: random.Random, depth: int = 3) -> str:
    if depth == 0:
        return rng.choice(["a", "b", "[ab]", "[^a]", ".", "^", "$", "", r"\s", "\\S"])
    inner = [random_pattern(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    kind = rng.randrange(4)
    if kind == 0:
        return "|".join(inner)
    if kind == 1:
        return f"(?:{inner[0]}){rng.choice(['*', '+', '?', '{2}', '{1,3}', '{0,1}?'])}"
    return "".join(f"({each})" if "|" in each else each for each in inner)


@pytest.mark.slow_except(every=8)
@pytest.mark.parametrize("seed", range(8))
def test_random_patterns(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        pattern = random_pattern(rng)
        if rng.random() < 0.4:
            looked_for = random_pattern(rng, 2)
            pattern = f"^(?{rng.choice('=!')}{looked_for})(?:{pattern})"
        # In JSON schemas, $ is only the end of the text.
        expected = re.compile(pattern.replace("$", r"\Z"))
        automata = patterns(pattern)
        for text in rng.sample(TEXTS, 40):
            assert all(accepts(each, text) for each in automata) == bool(expected.search(text)), (pattern, text)
        whole = patterns(pattern, whole=True)
        for text in rng.sample(TEXTS, 40):
            assert all(accepts(each, text) for each in whole) == bool(expected.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "least", "most", "message"),
    [
        ("^a$", 2, None, "no text can match"),
        ("^a{4}$", 0, 3, "no text can match"),
        ("(?=.*a)(?=.*b)^$", 0, None, "uses an assertion"),
        ("^(?<=a)b", 0, None, "lookbehind"),
        ("^.*a.{20}$", 0, 100, "too large"),
    ],
)
def test_texts_that_there_are_not(pattern: str, least: int, most: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        text_rule(patterns(pattern), least, most, Rules(), string_chars, STRING_CHARACTERS)

"""Finite automata of regular expressions and lengths, and the grammar of the texts that all of them accept.

Slower than :mod:`pyggml.schema._regex`, and with larger grammars, but anchors may be anywhere, lookaheads at the start,
and several conditions hold at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from pyggml.schema._gbnf_elements import Ranges
from pyggml.schema._regex import FLAGS, common, parsed, ranges_of, sre
from pyggml.schema._rules import Rules

_ALL: Ranges = [(0, 0x10FFFF)]
_MOST_STATES = 4_000  # takes a second, and far more than usual patterns need
_BEGIN, _END = "begin", "end"  # assertions


class TextAutomaton(Protocol):
    """A deterministic automaton over characters."""

    start: Any

    def moves(self, state: Any) -> list[tuple[Ranges, Hashable]]:
        """Return the next states, each with its characters, which are disjoint; other characters lead nowhere."""

    def accepts(self, state: Any) -> bool:
        """Return True if the text may end here."""


class Length:
    """Texts of ``least`` to ``most`` characters."""

    start = 0

    def __init__(self, least: int, most: int | None) -> None:
        self._least, self._most = least, most

    def moves(self, state: int) -> list[tuple[Ranges, Hashable]]:
        """As for every TextAutomaton."""
        if self._most is None:
            return [(_ALL, min(state + 1, self._least))]
        return [(_ALL, state + 1)] if state < self._most else []

    def accepts(self, state: int) -> bool:
        """As for every TextAutomaton."""
        return state >= self._least


class Pattern:
    """Texts that match a regular expression, or do not match it."""

    def __init__(self, nodes: list[Any], *, anywhere: bool, anything_after: bool, negated: bool = False) -> None:
        self._edges: list[list[tuple[Ranges | str | None, int]]] = []  # characters, or an assertion, or nothing
        self._negated = negated
        first = self._new()
        last = self._loop(first) if anywhere else first
        last = self._add(nodes, last)
        self._last = self._loop(last) if anything_after else last
        self.start = self._closure({first}, (None, _BEGIN))

    def moves(self, state: frozenset[int]) -> list[tuple[Ranges, Hashable]]:
        """As for every TextAutomaton."""
        edges = [(ranges, to) for at in state for ranges, to in self._edges[at] if isinstance(ranges, list)]
        found: dict[frozenset[int], Ranges] = {}
        for low, high in _pieces([ranges for ranges, _ in edges]):
            targets = {to for ranges, to in edges if any(a <= low and high <= b for a, b in ranges)}
            if targets or self._negated:
                found.setdefault(self._closure(targets, (None,)), []).append((low, high))
        return [(ranges, to) for to, ranges in found.items()]

    def accepts(self, state: frozenset[int]) -> bool:
        """As for every TextAutomaton."""
        assertions = (None, _END, _BEGIN) if state == self.start else (None, _END)
        return (self._last in self._closure(set(state), assertions)) != self._negated

    def _new(self) -> int:
        self._edges.append([])
        if len(self._edges) > _MOST_STATES:
            raise ValueError("the pattern is too large for a grammar")
        return len(self._edges) - 1

    def _edge(self, start: int, label: Ranges | str | None, to: int | None = None) -> int:
        to = self._new() if to is None else to
        self._edges[start].append((label, to))
        return to

    def _loop(self, start: int) -> int:
        self._edges[start].append((_ALL, start))
        return self._edge(start, None)

    def _closure(self, states: set[int], passable: tuple[str | None, ...]) -> frozenset[int]:
        found, pending = set(states), list(states)
        while pending:
            for label, to in self._edges[pending.pop()]:
                if not isinstance(label, list) and label in passable and to not in found:
                    found.add(to)
                    pending.append(to)
        return frozenset(found)

    def _add(self, nodes: Any, start: int) -> int:
        """Add nodes in sequence, and return the state after them."""
        for kind, value in nodes:
            if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
                start = self._edge(start, ranges_of((kind, value)))
            elif kind is sre.AT and value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING, sre.AT_END, sre.AT_END_STRING):
                start = self._edge(start, _BEGIN if value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING) else _END)
            elif kind is sre.BRANCH:
                end = self._new()
                for branch in value[1]:
                    self._edge(self._add(branch, self._edge(start, None)), None, end)
                start = end
            elif kind is sre.SUBPATTERN and not value[1] and not value[2]:
                start = self._add(value[3], start)
            elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
                least, most, body = value
                start = self._repeat(least, most, body, start)
            elif kind is sre.SUBPATTERN:
                raise ValueError(FLAGS)
            else:
                what = "an assertion" if kind in (sre.AT, sre.ASSERT, sre.ASSERT_NOT) else f"{kind}".lower()
                raise ValueError(f"the pattern uses {what.replace('_', ' ')}, which a grammar cannot express")
        return start

    def _repeat(self, least: int, most: Any, body: Any, start: int) -> int:
        for _ in range(least):
            start = self._add(body, start)
        if most == sre.MAXREPEAT:
            start = self._edge(start, None)
            self._edge(self._add(body, self._edge(start, None)), None, start)
            return self._edge(start, None)
        end = self._new()
        for _ in range(most - least):
            self._edge(start, None, end)
            start = self._add(body, start)
        self._edge(start, None, end)
        return end


def patterns(pattern: str, *, whole: bool = False) -> list[TextAutomaton]:
    """Return automata for the texts that match a pattern somewhere or, if ``whole``, from start to end.

    Raises:
        ValueError: the pattern is not a valid regular expression, or too large, or a grammar cannot express it.
    """
    nodes = [*parsed(pattern)]
    at_start = (sre.AT, sre.AT_BEGINNING), (sre.AT, sre.AT_BEGINNING_STRING)
    is_anchored = whole or (bool(nodes) and nodes[0] in at_start)
    found: list[TextAutomaton] = []
    while is_anchored and nodes and (nodes[0] in at_start or nodes[0][0] in (sre.ASSERT, sre.ASSERT_NOT)):
        kind, value = nodes.pop(0)
        if kind is not sre.AT:
            direction, looked_for = value
            if direction < 0:
                raise ValueError("the pattern uses a lookbehind, which a grammar cannot express")
            negated = kind is sre.ASSERT_NOT
            found.append(Pattern([*looked_for], anywhere=False, anything_after=True, negated=negated))
    return [*found, Pattern(nodes, anywhere=not is_anchored, anything_after=not whole)]


def text_rule(
    automata: list[TextAutomaton],
    least: int,
    most: int | None,
    rules: Rules,
    chars: Callable[[Ranges], str],
    alphabet: Ranges,
) -> str:
    """Add rules for the texts of some length that all automata accept, and return the name of the first one.

    Args:
        automata: at least one.
        least: the minimum number of characters.
        most: the maximum; None: no limit.
        rules: the grammar.
        chars: returns an expression for one of some characters.
        alphabet: the characters of a text.

    Raises:
        ValueError: there is no such text, or too many states are needed.
    """
    both = _Product(automata, alphabet)
    shortest, longest = both.lengths()
    if least <= shortest:
        least = 0
    if most is not None and longest is not None and longest <= most:
        most = None
    if least > 0 or most is not None:
        both = _Product([*automata, Length(least, most)], alphabet)
    names = {state: rules.reserve() for state in both.moves}
    for state, name in names.items():
        alternatives = [f"{chars(ranges)} {names[to]}" for to, ranges in both.moves[state].items()]
        rules.define(name, " | ".join([*alternatives, *['""'] * (state in both.accepting)]))
    return names[both.start]


class _Product:
    """The automaton of the texts that several automata accept, without states that lead nowhere.

    Attributes:
        start: its first state.
        moves: the next states of each state, and the characters that lead there.
        accepting: the states in which a text may end.
    """

    def __init__(self, automata: list[TextAutomaton], alphabet: Ranges) -> None:
        self.start = tuple(each.start for each in automata)
        self.moves: dict[Any, dict[Any, Ranges]] = {}
        pending = [self.start]
        while pending:
            state = pending.pop()
            if state not in self.moves:
                self.moves[state] = _moves(automata, state, alphabet)
                pending += self.moves[state]
            if len(self.moves) > _MOST_STATES:
                raise ValueError("the pattern and the other limits together are too large for a grammar")
        self.accepting = {
            state for state in self.moves if all(each.accepts(at) for each, at in zip(automata, state, strict=True))
        }
        useful = _leading_to(self.accepting, self.moves)
        if self.start not in useful:
            raise ValueError("no text can match")
        self.moves = {
            state: {to: ranges for to, ranges in targets.items() if to in useful}
            for state, targets in self.moves.items()
            if state in useful
        }

    def lengths(self) -> tuple[int, int | None]:
        """Return the lengths of the shortest and the longest text; None: there is no longest."""
        shortest, reached = 0, {self.start}
        while not reached & self.accepting:
            shortest, reached = shortest + 1, {to for state in reached for to in self.moves[state]}
        n_before = dict.fromkeys(self.moves, 0)
        for to in itertools.chain.from_iterable(self.moves.values()):
            n_before[to] += 1
        longest, ready = dict.fromkeys(self.moves, 0), [state for state, n in n_before.items() if n == 0]
        n_ordered = 0
        while ready:
            state, n_ordered = ready.pop(), n_ordered + 1
            for to in self.moves[state]:
                longest[to] = max(longest[to], longest[state] + 1)
                n_before[to] -= 1
                if n_before[to] == 0:
                    ready.append(to)
        has_loop = n_ordered < len(self.moves)
        return shortest, None if has_loop else max(longest[state] for state in self.accepting)


def _moves(automata: list[TextAutomaton], state: Any, alphabet: Ranges) -> dict[Any, Ranges]:
    """Return the next states of several automata together, and the characters that lead there."""
    found: dict[Any, Ranges] = {}
    options = [each.moves(at) for each, at in zip(automata, state, strict=True)]
    for combination in itertools.product(*options):
        ranges = alphabet
        for characters, _ in combination:
            ranges = common(ranges, characters)
        if ranges:
            found.setdefault(tuple(to for _, to in combination), []).extend(ranges)
    return {to: _merged(ranges) for to, ranges in found.items()}


def _leading_to(accepting: set[Any], moves: dict[Any, dict[Any, Ranges]]) -> set[Any]:
    """Return the states from which one of the accepting states can be reached."""
    before: dict[Any, list[Any]] = {}
    for state, targets in moves.items():
        for to in targets:
            before.setdefault(to, []).append(state)
    found, pending = set(accepting), list(accepting)
    while pending:
        for state in before.get(pending.pop(), ()):
            if state not in found:
                found.add(state)
                pending.append(state)
    return found


def _pieces(sets: list[Ranges]) -> Iterator[tuple[int, int]]:
    """Yield all characters in ranges that do not cross the bounds of any set."""
    bounds = sorted({0, _ALL[0][1] + 1, *(edge for ranges in sets for low, high in ranges for edge in (low, high + 1))})
    for low, after in itertools.pairwise(bounds):
        yield low, after - 1


def _merged(ranges: Ranges) -> Ranges:
    merged: Ranges = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged

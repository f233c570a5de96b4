"""Packing of waiting texts into forward passes: pure policy, without tensors, threads or clocks.

Every waiting call gets an equal share of a pass, and what others leave of theirs. Calls whose texts were in an earlier
pass, or that came later, wait behind those that were not served since; among equals, the shortest call is first. So
every call progresses, since those that come later cannot overtake it for more than one pass.

Short calls, such as a single text, come first in every pass, up to a quarter of it. With bulk calls waiting, they get
a pass alone, which takes a fraction of the time, but not twice in a row. So a single text takes the rest of the pass
in flight and a short one, or a short one and a full one: at most a pass longer than alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class WaitingTexts(Protocol):
    """The texts of a call that wait for a pass, in the order in which they will be computed.

    Attributes:
        arrival: number of calls before it.
        turn: number of passes that had begun when it arrived, or when its texts were last in one.
        n_waiting_tokens: tokens of its waiting texts.
        n_waiting: number of its waiting texts.
    """

    arrival: int
    turn: int
    n_waiting_tokens: int
    n_waiting: int

    def n_fitting(self, first: int, n_tokens: int) -> int:
        """Return the number of waiting texts, from the waiting text ``first`` on, that fit into ``n_tokens``."""

    def n_tokens_of(self, first: int, n_texts: int) -> int:
        """Return the number of tokens of ``n_texts`` waiting texts, from the waiting text ``first`` on."""


W = TypeVar("W", bound=WaitingTexts)


# Part of a pass that short calls get before others.
_SHORT_SHARE = 0.25


@dataclass(frozen=True)
class Packed(Generic[W]):
    """The texts of a pass.

    Attributes:
        calls: the calls in the pass, and the number of texts of each, which are the first that wait.
        is_short: True for a pass of short calls alone, although others wait.
    """

    calls: list[tuple[W, int]]
    is_short: bool


def pack(waiting: Iterable[W], n_tokens: int, n_texts: int, *, may_be_short: bool = True) -> Packed[W]:
    """Choose the texts of the next pass.

    Args:
        waiting: the calls with waiting texts.
        n_tokens: tokens of a pass; a longer text gets a pass alone.
        n_texts: texts of a pass.
        may_be_short: False if the pass before was short.
    """
    calls = sorted(waiting, key=lambda call: (call.turn, call.n_waiting_tokens, call.arrival))
    space = _Space[W](n_tokens, n_texts)
    most = int(n_tokens * _SHORT_SHARE)
    for call in calls:
        if call.n_waiting_tokens <= most - (n_tokens - space.n_tokens):
            space.take(call, call.n_waiting)
    others = [call for call in calls if call not in space.taken]
    if may_be_short and space.taken and others and all(call.n_waiting_tokens > most for call in others):
        return Packed(space.calls, True)
    _share(others, space)
    return Packed(space.calls, False)


def _share(calls: list[W], space: _Space[W]) -> None:
    """Give each call an equal share of the space, and then what is left to the oldest."""
    share = space.n_tokens // max(1, len(calls))
    for call in calls:
        if space.is_full:
            return
        n_fitting = call.n_fitting(0, min(share, space.n_tokens))
        if n_fitting == 0 and (space.n_texts_taken == 0 or call.n_fitting(0, space.n_tokens)):
            n_fitting = 1
        space.take(call, n_fitting)
    for call in sorted(calls, key=lambda call: call.arrival):
        if space.is_full:
            return
        space.take(call, call.n_fitting(space.taken.get(call, 0), space.n_tokens))


class _Space(Generic[W]):
    """The space that is left in a pass, and the number of texts that each call has in it."""

    def __init__(self, n_tokens: int, n_texts: int) -> None:
        self.n_tokens = n_tokens
        self.n_texts_taken = 0
        self.taken: dict[W, int] = {}
        self._n_texts = n_texts

    @property
    def calls(self) -> list[tuple[W, int]]:
        return [(call, n) for call, n in self.taken.items() if n]

    @property
    def is_full(self) -> bool:
        return self.n_tokens <= 0 or self.n_texts_taken == self._n_texts

    def take(self, call: W, n_texts: int) -> None:
        first = self.taken.get(call, 0)
        n_texts = min(n_texts, self._n_texts - self.n_texts_taken)
        if n_texts == 0:
            return
        self.taken[call] = first + n_texts
        self.n_texts_taken += n_texts
        self.n_tokens -= call.n_tokens_of(first, n_texts)

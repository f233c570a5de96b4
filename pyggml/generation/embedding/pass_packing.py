"""Packing of waiting texts into forward passes: pure policy, without tensors, threads or clocks.

Every waiting call gets an equal share of a pass, and what others leave of theirs. Calls whose texts were in an earlier
pass, or that came later, wait behind those that were not served since; among equals, the shortest call is first. So a
single text is in the next pass whatever bulk calls wait, as long as the other single texts leave space for it, and
every call progresses, since those that come later cannot overtake it for more than one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def pack(waiting: Iterable[W], n_tokens: int, n_texts: int) -> list[tuple[W, int]]:
    """Choose the texts of the next pass.

    Args:
        waiting: the calls with waiting texts.
        n_tokens: tokens of a pass; a longer text gets a pass alone.
        n_texts: texts of a pass.

    Returns:
        The calls in the pass, and the number of texts of each, which are the first that wait.
    """
    calls = sorted(waiting, key=lambda call: (call.turn, call.n_waiting_tokens, call.arrival))
    space = _Space[W](n_tokens, n_texts)
    share = n_tokens // max(1, len(calls))
    for call in calls:
        if space.is_full:
            break
        n_fitting = call.n_fitting(0, min(share, space.n_tokens))
        if n_fitting == 0 and (space.n_texts_taken == 0 or call.n_fitting(0, space.n_tokens)):
            n_fitting = 1
        space.take(call, n_fitting)
    for call in sorted(space.taken, key=lambda call: call.arrival):
        if space.is_full:
            break
        space.take(call, call.n_fitting(space.taken[call], space.n_tokens))
    return [(call, n) for call, n in space.taken.items() if n]


class _Space(Generic[W]):
    """The space that is left in a pass, and the number of texts that each call has in it."""

    def __init__(self, n_tokens: int, n_texts: int) -> None:
        self.n_tokens = n_tokens
        self.n_texts_taken = 0
        self.taken: dict[W, int] = {}
        self._n_texts = n_texts

    @property
    def is_full(self) -> bool:
        return self.n_tokens <= 0 or self.n_texts_taken == self._n_texts

    def take(self, call: W, n_texts: int) -> None:
        first = self.taken.get(call, 0)
        n_texts = min(n_texts, self._n_texts - self.n_texts_taken)
        self.taken[call] = first + n_texts
        self.n_texts_taken += n_texts
        self.n_tokens -= call.n_tokens_of(first, n_texts)

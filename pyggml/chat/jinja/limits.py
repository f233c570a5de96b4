"""Limits of one rendering: templates come with models and are not trusted.

A template is Python code once compiled, which nothing interrupts. So each loop, call, filter and growing operation
first asks here, with the size of its result. What single operations may take is so bounded that the time between two
questions stays short.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

CPU_SECONDS = 3.0  # the longest conversations take a tenth of one
_MAX_TEXT = 32 << 20  # characters of one text; and more in long conversations
_MAX_PRODUCED = 256 << 20  # characters of all texts
_TEXTS_OF_INPUT, _PRODUCED_OF_INPUT = 8, 512  # what a character of the input adds to them
_MAX_ITEMS = 1_000_000  # in a container, with those of the containers in it
_MAX_NESTING = 900  # of containers
_MAX_CALLS = 150  # of macros, within one another
_STEPS_TO_NEXT_LOOK = 16  # at the clock
_CHARACTERS_OF_A_STEP = 10_000
#: The largest number that operations take which count characters or items.
MAX_COUNT = 10_000_000

TOO_LARGE = "the template takes too much memory"
TOO_DEEP = "the template calls itself, or nests lists, too many times"
ENDLESS = "the template does not end"
LARGE_NUMBER = "the template uses numbers that are too large"


class TemplateLimitError(Exception):
    """A template exceeds a limit."""


class Limits:
    """The limits of one rendering, and what is used up of them."""

    def __init__(self, n_input: int, *, cpu_seconds: float, quoted: bool) -> None:
        """Set the limits for an input of that many characters; ``quoted``: some of it is quoted text."""
        self.quoted = quoted
        self.max_text = _MAX_TEXT + _TEXTS_OF_INPUT * n_input
        self._left = _MAX_PRODUCED + _PRODUCED_OF_INPUT * n_input
        self._end = time.thread_time() + cpu_seconds
        self._steps = 0
        self._n_calls = 0

    def step(self, n_characters: int = 0) -> None:
        """Count a step, which takes longer with many characters."""
        self._steps += 1 + n_characters // _CHARACTERS_OF_A_STEP
        if self._steps >= _STEPS_TO_NEXT_LOOK:
            self._steps = 0
            if time.thread_time() > self._end:
                raise TemplateLimitError(ENDLESS)

    def text(self, n_characters: int) -> None:
        """Count a text that an operation is going to make."""
        self._left -= n_characters
        if n_characters > self.max_text or self._left < 0:
            raise TemplateLimitError(TOO_LARGE)
        self.step(n_characters)

    def items(self, n: int) -> None:
        """Count the items of a container that an operation is going to make."""
        if n > _MAX_ITEMS:
            raise TemplateLimitError(TOO_LARGE)
        self.text(n)

    def container(self, value: Any) -> None:
        """Check a new container, with all that is in it: one may be in another many times, or in itself."""
        n_items = n_characters = 0
        iterators: list[Iterator[Any]] = [iter((value,))]
        while iterators:
            item = next(iterators[-1], iterators)
            if item is iterators:
                iterators.pop()
                continue
            n_items += 1
            if isinstance(item, str):
                n_characters += len(item)
            elif isinstance(item, (list, tuple, Mapping)):
                if len(iterators) > _MAX_NESTING:
                    raise TemplateLimitError(TOO_DEEP)
                iterators.append(iter(item.items() if isinstance(item, Mapping) else item))
            if n_items > _MAX_ITEMS or n_characters > self.max_text:
                raise TemplateLimitError(TOO_LARGE)
        self.step(100 * n_items)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call, until it returns."""
        self.step()
        if self._n_calls >= _MAX_CALLS:
            raise TemplateLimitError(TOO_DEEP)
        self._n_calls += 1
        try:
            yield
        finally:
            self._n_calls -= 1


class _Active(threading.local):
    limits: Limits | None = None


_active = _Active()


def limits() -> Limits:
    """Return the limits of the rendering on this thread."""
    if _active.limits is None:
        raise RuntimeError("nothing is being rendered on this thread")
    return _active.limits


@contextmanager
def limited(n_input: int, *, cpu_seconds: float, quoted: bool = False) -> Iterator[None]:
    """Limit the template that is rendered on this thread meanwhile."""
    before, _active.limits = _active.limits, Limits(n_input, cpu_seconds=cpu_seconds, quoted=quoted)
    try:
        yield
    finally:
        _active.limits = before


def counted(iterable: Iterable[Any]) -> Iterator[Any]:
    """Count a step for each item."""
    step = limits().step
    for item in iterable:
        step()
        yield item


def require_counts(*values: Any) -> None:
    """Refuse integers that are too large as numbers of characters or items."""
    for value in values:
        if isinstance(value, int) and abs(value) > MAX_COUNT:
            raise TemplateLimitError(LARGE_NUMBER)

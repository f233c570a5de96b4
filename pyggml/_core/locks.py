"""A lock for calls that take turns, which a thread cannot make wait for itself."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager

from pyggml.errors import EngineError, InvalidParameterError


class Turns:
    """Calls of different threads take turns; a call within another, in the same thread, is refused.

    That is a call by what interrupts the first: the handler of a signal, a finalizer, or a function of the caller's.
    Refused is also a forked child, where the thread that has the turn may not exist.

    Enter the lock where it is returned, ``with turns.mine(): ...``. Entering and leaving it are single steps of the
    interpreter, and the exception of a signal's handler (Ctrl-C) comes before or after them. It could come within those
    of a context manager in Python, and between ``acquire()`` and ``try``, and the lock would stay locked.
    """

    def __init__(self, what: str) -> None:
        """Nobody's turn yet; ``what`` names the calls, for messages."""
        self._what = what
        self._lock = threading.RLock()
        self._are_parents = False
        _all.add(self)

    def mine(self) -> AbstractContextManager[object]:
        """The lock; entering it waits for the turns of other threads.

        Raises:
            InvalidParameterError: this thread has its turn already.
            EngineError: this is a forked child, and the turns are its parent's.
        """
        if self._are_parents:
            raise EngineError(
                f"{self._what} of an object that was made before a fork: it belongs to the parent process. Make a new "
                "one in the child, or start the child with the 'spawn' method"
            )
        if self._lock._is_owned():  # type: ignore[attr-defined]  # what threading.Condition asks, too
            raise InvalidParameterError(
                f"{self._what} was called within itself: something that interrupted the first call in this thread (the "
                "handler of a signal, a finalizer, a function passed to it) would wait for its end, which cannot come. "
                "Call it in another thread, or when the first call has returned"
            )
        return self._lock

    def mine_or_ours(self) -> AbstractContextManager[object]:
        """The lock, for what may also happen within a turn of this thread, or in a forked child: closing."""
        return self._lock

    def _leave_to_parent(self) -> None:
        self._lock = threading.RLock()
        self._are_parents = True


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for turns in list(_all):
        turns._leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)

"""A lock that a thread cannot enter twice."""

from __future__ import annotations

import threading
import weakref
from contextlib import AbstractContextManager

from pyggml._core.platforms import call_in_forked_child
from pyggml.errors import EngineError, InvalidParameterError


class NonReentrantLock:
    """A lock that raises an exception where waiting for it would be a deadlock.

    That is in the thread that already holds it: in a signal handler, a finalizer or a callback that interrupts the
    first call. And it is in a forked child, where the thread that holds it may not exist.

    Use it as ``with lock.hold(): ...``. Entering and leaving the result are single steps of the interpreter, so the
    exception of a signal handler (Ctrl-C) comes before or after them. Inside a context manager written in Python, or
    between ``acquire()`` and ``try``, it could leave the lock locked.
    """

    def __init__(self, what: str) -> None:
        """Create an unlocked lock; ``what`` names the calls that it serializes, for messages."""
        self._what = what
        self._lock = threading.RLock()
        self._is_parents = False
        _all.add(self)

    def hold(self) -> AbstractContextManager[object]:
        """Return the lock to enter, which waits for other threads.

        Raises:
            InvalidParameterError: this thread holds it already.
            EngineError: this is a forked child, and the lock is its parent's.
        """
        if self._is_parents:
            raise EngineError(
                f"{self._what} of an object that was made before a fork: it belongs to the parent process. Make a new "
                "one in the child, or start the child with the 'spawn' method"
            )
        if self._lock._is_owned():  # type: ignore[attr-defined]  # threading.Condition uses it, too
            raise InvalidParameterError(
                f"{self._what} was called within itself: something that interrupted the first call in this thread (a "
                "signal handler, a finalizer, a function passed to it) would wait for its end, which cannot come. "
                "Call it in another thread, or when the first call has returned"
            )
        return self._lock

    def hold_reentrant(self) -> AbstractContextManager[object]:
        """Return the lock for an operation that is also allowed in the thread that holds it and in a child: closing."""
        return self._lock

    def _leave_to_parent(self) -> None:
        self._lock = threading.RLock()
        self._is_parents = True


_all: weakref.WeakSet[NonReentrantLock] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for lock in list(_all):
        lock._leave_to_parent()


call_in_forked_child(_leave_all_to_parent)

"""Locks that the tasks of an event loop wait for without threads."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class LoopLocks:
    """A lock for each event loop. A task that waits for it holds no thread of the loop's pool, which others need."""

    def __init__(self) -> None:
        """Create it without locks."""
        # A lock refers to its loop, so the tasks that use it keep it, and not this.
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[asyncio.Lock]]
        self._locks = weakref.WeakKeyDictionary()

    def of_running_loop(self) -> asyncio.Lock:
        """Return the lock of the running event loop, for its tasks."""
        import asyncio  # imported late to keep "import pyggml" fast

        loop = asyncio.get_running_loop()
        reference = self._locks.get(loop)
        lock = None if reference is None else reference()
        if lock is None:
            lock = asyncio.Lock()
            self._locks[loop] = weakref.ref(lock)
        return lock

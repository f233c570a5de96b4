"""Notifications of requests in an event loop: one descriptor for all of them, no thread.

1. The first request of a loop creates a :class:`_LoopWaker`: a native waker whose descriptor the loop watches. Every
   request of that loop, whatever its engine, gets a :class:`LoopWaiter` that shares it.
2. A reader that found no tokens awaits :meth:`LoopWaiter.wait`, which stores a future under the waiter's tag.
3. The engine's thread passes the tag to the waker, the descriptor becomes readable, and the loop sets the future.
4. Waiters keep the waker alive, and so does the loop while a reader waits, as it does for a reader of a socket: a task
   without other references must not be collected. When the last waiter is closed or dropped, the loop stops watching
   and the descriptor is closed. So a loop that ends, even with requests in flight, leaks nothing.
5. A forked child inherits the loop and shares its epoll set with the parent: it must not read from the descriptor. Its
   copies of the readers are woken and raise, since their requests belong to the parent.

This module imports asyncio, which takes longer than the rest of the package, so it is itself imported only when needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import weakref
from collections.abc import Callable

from pyggml._core.platforms import call_in_forked_child
from pyggml.generation.waker import Waker

_tags = itertools.count()


class LoopWaiter:
    """Waits in an event loop for one request's notifications. Create and use it there; any thread may drop it.

    Attributes:
        waker: the waker to notify with :attr:`tag`.
        tag: identifies this waiter.
        submission_lock: lock held while a request of the loop is being submitted.
    """

    def __init__(self) -> None:
        """Wait in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._shared: _LoopWaker | None = _loop_waker(self._loop)
        self.waker = self._shared.waker
        self.submission_lock = self._shared.submission_lock
        self.tag = next(_tags)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the waker is notified with the tag, this is woken or closed, or ``timeout_s`` has passed.

        It may return early, so check and wait again. Call it right after checking, with no await in between.
        """
        if self._shared is None:
            return
        shared, future = self._shared, self._loop.create_future()
        shared.add(self.tag, future)
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, _wake, future)
        try:
            await future
        finally:
            shared.remove(self.tag)
            del shared  # a cancelled reader's frame lives as long as the traceback
            if timer is not None:
                timer.cancel()

    async def yield_to_loop(self) -> None:
        """Let every other task that is ready run once."""
        await asyncio.sleep(0)

    @property
    def is_open(self) -> bool:
        """False once it was closed: there are no more notifications."""
        return self._shared is not None

    @property
    def is_in_running_loop(self) -> bool:
        """True in the event loop that it was created in."""
        return asyncio.get_running_loop() is self._loop

    def wake(self) -> None:
        """Wake the waiting reader, if any. Any thread may call it."""
        shared = self._shared
        if shared is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no reader waits
                self._loop.call_soon_threadsafe(lambda: _wake(shared.futures.get(self.tag)))

    def close(self) -> None:
        """Wake the waiting reader, if any, and release the descriptor. Call it in the loop; safe to call again."""
        if self._shared is not None:
            _wake(self._shared.futures.get(self.tag))
            self._shared = None
            del self.waker


class _LoopWaker:
    """A waker whose descriptor one loop watches as long as it has waiters.

    Attributes:
        waker: the waker.
        futures: the futures of readers that wait, by their waiters' tags.
        submission_lock: lock held while a request of the loop is being submitted.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waker = Waker()
        self.futures: dict[int, asyncio.Future[None]] = {}
        self.submission_lock = asyncio.Lock()
        self._registration = _ReaderRegistration(self, loop)

    def add(self, tag: int, future: asyncio.Future[None]) -> None:
        """Add the future of a reader that waits."""
        self.futures[tag] = future
        self._registration.loop_waker = self

    def remove(self, tag: int) -> None:
        """Remove the future of a reader."""
        self.futures.pop(tag, None)
        if not self.futures:
            self._registration.loop_waker = None

    def dispatch(self) -> None:
        """Wake the readers whose tags were notified; the loop calls again if this leaves any behind."""
        for tag in self.waker.take():
            _wake(self.futures.get(tag))

    def disown_in_child(self) -> None:
        """Wake the readers of a forked child, and leave the descriptor to the parent."""
        self._registration.is_inherited = True
        for future in list(self.futures.values()):
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no reader waits
                _wake(future)


class _ReaderRegistration:
    """The registration of a waker's descriptor with a loop (``add_reader``), and its end.

    The loop refers to this object, which keeps the descriptor open until the loop has stopped watching it: a new
    descriptor with the same number would be confused with it. That also holds when the garbage collector finds the
    waker in a cycle.

    Attributes:
        loop_waker: the waker, while readers wait.
        is_inherited: True in a forked child, where the registration belongs to the parent.
    """

    def __init__(self, loop_waker: _LoopWaker, loop: asyncio.AbstractEventLoop) -> None:
        self.loop_waker: _LoopWaker | None = None
        self.is_inherited = False
        self._waker = loop_waker.waker
        self._loop = weakref.ref(loop)
        self._reference = weakref.ref(loop_waker, self._end)
        loop.add_reader(self._waker.fd, self._on_readable)

    def _on_readable(self) -> None:
        loop_waker = self._reference()
        if loop_waker is not None and not self.is_inherited:  # inherited, it is readable until the parent reads
            loop_waker.dispatch()

    # weakref.finalize would do nothing once the interpreter shuts down, while loops of daemon threads still run: uvloop
    # aborts if a descriptor is closed that it was told to watch and has not polled yet. The default argument keeps
    # sys.is_finalizing, since the module's own names are gone at the very end.
    def _end(self, _: object = None, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Stop watching, in the loop's thread. The garbage collector may call it in any thread."""
        if is_finalizing() or self.is_inherited:
            return
        loop = self._loop()
        if loop is None:
            return  # the loop was collected, and its registration with it
        if asyncio._get_running_loop() is loop:
            loop.remove_reader(self._waker.fd)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, which ended the registration
                loop.call_soon_threadsafe(self._end)


# A loop often refers to its tasks, through an exception handler or an application, and they refer to their waiters. So
# a strong reference here would keep the loop, its tasks and their requests alive forever.
_loop_wakers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_LoopWaker]] = (
    weakref.WeakKeyDictionary()
)


def _loop_waker(loop: asyncio.AbstractEventLoop) -> _LoopWaker:
    reference = _loop_wakers.get(loop)
    found = None if reference is None else reference()
    if found is None:
        found = _LoopWaker(loop)
        _loop_wakers[loop] = weakref.ref(found)
    return found


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _disown_all_in_child() -> None:
    for reference in list(_loop_wakers.values()):
        if loop_waker := reference():
            loop_waker.disown_in_child()
    _loop_wakers.clear()


call_in_forked_child(_disown_all_in_child)

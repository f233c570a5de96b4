"""How requests notify an event loop: through one descriptor for all of them, without a thread.

1. The first request of a loop creates a :class:`_LoopWaker`: a native waker whose descriptor the loop watches. Every
   further request of that loop, whatever its engine, opens a :class:`Line` to the same one.
2. A reader that found no tokens awaits :meth:`Line.news`, which stores a future under the line's tag.
3. The engine's thread passes the tag to the waker, the descriptor becomes readable, and the loop sets the future.
4. Lines keep the waker alive, and so does the loop while a reader waits, as it does for a reader of a socket: a task
   that nobody else refers to must not be collected. When the last line is closed or dropped, the loop stops watching
   and the descriptor is closed. So a loop that ends, even with work in flight, leaves nothing behind.
5. A forked child inherits the loop, and shares what the loop watches with its parent (epoll): it must take nothing out
   of it. Its copies of the readers are woken, to find that their requests are the parent's.

This module imports asyncio, which takes longer than the rest of the package, so it is itself imported only when needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import weakref
from collections.abc import Callable

from pyggml.generation.waker import Waker

_tags = itertools.count()


class Line:
    """Receives one request's notifications. Create and use it in its event loop; any thread may drop it.

    Attributes:
        waker: the waker to notify with :attr:`tag`.
        tag: identifies this line.
        beginning: lock held while a request of the loop is being submitted.
    """

    def __init__(self) -> None:
        """Opens a line to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._shared: _LoopWaker | None = _loop_waker(self._loop)
        self.waker = self._shared.waker
        self.beginning = self._shared.beginning
        self.tag = next(_tags)

    async def news(self, timeout_s: float | None = None) -> None:
        """Waits until the waker is notified with the tag, the line is closed, or ``timeout_s`` has passed.

        It may return without news, so check and wait again. Call it right after checking, with no await in between.
        """
        if self._shared is None:
            return
        shared, future = self._shared, self._loop.create_future()
        shared.wait(self.tag, future)
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, _wake, future)
        try:
            await future
        finally:
            shared.wait_no_more(self.tag)
            del shared  # a cancelled reader's frame lives as long as the traceback
            if timer is not None:
                timer.cancel()

    async def turn(self) -> None:
        """Lets everything else in the loop that is ready run once."""
        await asyncio.sleep(0)

    @property
    def is_open(self) -> bool:
        """Whether news may still come."""
        return self._shared is not None

    @property
    def is_here(self) -> bool:
        """Whether the running event loop is the line's own."""
        return asyncio.get_running_loop() is self._loop

    def nudge(self) -> None:
        """Wakes the waiting reader, if any. Any thread may call it."""
        shared = self._shared
        if shared is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(lambda: _wake(shared.waiting.get(self.tag)))

    def close(self) -> None:
        """Wakes the waiting reader, if any, and releases the descriptor. Call it in the loop; safe to call again."""
        if self._shared is not None:
            _wake(self._shared.waiting.get(self.tag))
            self._shared = None
            del self.waker


class _LoopWaker:
    """A waker whose descriptor one loop watches as long as there are lines to it.

    Attributes:
        waker: the waker.
        waiting: the futures of readers that wait, by their lines' tags.
        beginning: lock held while a request of the loop is being submitted.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waker = Waker()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.beginning = asyncio.Lock()
        self._watch = _Watch(self, loop)

    def wait(self, tag: int, future: asyncio.Future[None]) -> None:
        """Takes the future of a reader that waits."""
        self.waiting[tag] = future
        self._watch.held = self

    def wait_no_more(self, tag: int) -> None:
        """Forgets it."""
        self.waiting.pop(tag, None)
        if not self.waiting:
            self._watch.held = None

    def pass_on(self) -> None:
        """Wakes the readers that the tags taken are for; the loop calls again if this leaves any behind."""
        for tag in self.waker.take():
            _wake(self.waiting.get(tag))

    def leave_to_parent(self) -> None:
        """Ends the part that a forked child has in it."""
        self._watch.is_ours = False
        for future in list(self.waiting.values()):
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                _wake(future)


class _Watch:
    """What a loop has of a waker, and the end of it.

    The loop holds this, and so the descriptor stays open until the loop has been told to watch it no more: another one
    by the same number would be taken for it. That is also so where the collector finds the waker in a cycle.

    Attributes:
        held: the waker, while readers wait.
        is_ours: False in a forked child, which has to leave the watch to its parent.
    """

    def __init__(self, shared: _LoopWaker, loop: asyncio.AbstractEventLoop) -> None:
        self.held: _LoopWaker | None = None
        self.is_ours = True
        self._waker = shared.waker
        self._loop = weakref.ref(loop)
        self._shared = weakref.ref(shared, self._end)
        loop.add_reader(self._waker.fd, self._pass_on)

    def _pass_on(self) -> None:
        """Called by the loop while the descriptor is readable."""
        shared = self._shared()
        if shared is not None and self.is_ours:  # inherited, it is readable until the parent reads
            shared.pass_on()

    # Not by weakref.finalize, which does nothing once the interpreter begins to end, while loops of daemon threads go
    # on: uvloop's would end the process if a descriptor were closed that it was told of and has not looked at yet. The
    # name is bound here, since at the very end the module's own are gone.
    def _end(self, _: object = None, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Stops watching, in the loop's thread. The collector may call it in any."""
        if is_finalizing() or not self.is_ours:
            return
        loop = self._loop()
        if loop is None:
            return  # nobody watches any more
        if asyncio._get_running_loop() is loop:
            loop.remove_reader(self._waker.fd)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, which ended the watch
                loop.call_soon_threadsafe(self._end)


# A loop often knows its tasks, through an exception handler or an application, and they know their lines. So whatever
# would keep the loop alive here would keep it, its tasks and their requests for good.
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


def _leave_all_to_parent() -> None:
    for reference in list(_loop_wakers.values()):
        if shared := reference():
            shared.leave_to_parent()
    _loop_wakers.clear()


os.register_at_fork(after_in_child=_leave_all_to_parent)

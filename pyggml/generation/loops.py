"""How an event loop hears from its requests: one descriptor for all of them, and no thread.

1. The first request of a loop makes a :class:`_LoopWaker`: a native waker whose descriptor the loop watches. Every
   further request of that loop, of whatever engine, opens a :class:`Line` to the same one.
2. A reader that found nothing awaits :meth:`Line.news`, which leaves a future under the line's tag.
3. The engine's thread tells the tag to the waker, the descriptor becomes readable, and the loop sets the future.
4. Lines hold the waker, the loop does not: when the last line is closed or dropped, the loop stops watching and the
   descriptor goes. So nothing is left of a loop that comes and goes, or that is closed with work in flight.

Importing this imports asyncio, which costs more than the rest of the package, so it is imported when first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import weakref

from pyggml.generation.waker import Waker

_tags = itertools.count()


class Line:
    """What one request hears through. Made and used in the loop it belongs to; may be dropped anywhere.

    Attributes:
        waker: to be told :attr:`tag`.
        tag: this line's own.
        beginning: held by the one request of the loop that is being submitted.
    """

    def __init__(self) -> None:
        """Opens a line to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._shared: _LoopWaker | None = _loop_waker(self._loop)
        self.waker = self._shared.waker
        self.beginning = self._shared.beginning
        self.tag = next(_tags)

    async def news(self, timeout_s: float | None = None) -> None:
        """Waits until the tag is told, the line is closed, or ``timeout_s`` is over.

        It may come without news, so look and wait again; call it right after looking, before anything is awaited.
        """
        if self._shared is None:
            return
        waiting, future = self._shared.waiting, self._loop.create_future()
        waiting[self.tag] = future
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, _wake, future)
        try:
            await future
        finally:
            waiting.pop(self.tag, None)
            if timer is not None:
                timer.cancel()

    def nudge(self) -> None:
        """Wakes who waits. From any thread."""
        shared = self._shared
        if shared is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(lambda: _wake(shared.waiting.get(self.tag)))

    def close(self) -> None:
        """Wakes who waits, and lets go of the descriptor. In the loop; may be repeated."""
        if self._shared is not None:
            _wake(self._shared.waiting.get(self.tag))
            self._shared = None
            del self.waker


class _LoopWaker:
    """A waker whose descriptor one loop watches, for as long as there are lines to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waker = Waker()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.beginning = asyncio.Lock()
        loop.add_reader(self.waker.fd, _pass_on, weakref.ref(self))
        weakref.finalize(self, _retire, loop, self.waker).atexit = False


_loop_wakers: weakref.WeakValueDictionary[asyncio.AbstractEventLoop, _LoopWaker] = weakref.WeakValueDictionary()


def _loop_waker(loop: asyncio.AbstractEventLoop) -> _LoopWaker:
    found = _loop_wakers.get(loop)
    if found is None:
        found = _loop_wakers[loop] = _LoopWaker(loop)
    return found


def _pass_on(reference: weakref.ref[_LoopWaker]) -> None:
    """The loop calls this when the descriptor is readable; what is not taken now, it is called for again."""
    shared = reference()
    if shared is not None:
        for tag in shared.waker.take():
            _wake(shared.waiting.get(tag))


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _retire(loop: asyncio.AbstractEventLoop, waker: Waker) -> None:
    """Ends the watch, in the loop's own thread, and only then lets the descriptor go. Garbage may die anywhere."""
    if asyncio._get_running_loop() is loop:
        loop.remove_reader(waker.fd)
    else:
        with contextlib.suppress(RuntimeError):  # the loop is closed, which ended the watch
            loop.call_soon_threadsafe(_retire, loop, waker)

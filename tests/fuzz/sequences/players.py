"""The threads that do the steps: plain ones, and ones with an event loop, where a step is a task."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from fuzz.sequences.world import World

Work = Callable[[], None]


class Worker:
    """A thread that does one step after the other."""

    def __init__(self, world: World, name: str, *, daemon: bool) -> None:
        self._world = world
        self._steps: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=daemon)
        self._thread.start()

    def do(self, step: Work) -> None:
        self._steps.put(step)

    def wait(self) -> None:
        """Until everything is done that was asked for."""
        done = threading.Event()
        self._steps.put(done.set)
        done.wait()

    def end(self) -> None:
        self._steps.put(None)

    def join(self) -> None:
        self.end()
        self._thread.join()

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            step()
            if self._world.is_child:
                return  # forked in this step, which was the last


class LoopPlayer:
    """A thread that runs an event loop, and begins a task for each step."""

    def __init__(self, world: World, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._world = world
        self._name = name
        self._new_loop = new_loop
        self._tasks: list[asyncio.Task[None]] = []
        self._open()

    def do(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop, tasks = self._loop, self._tasks
        self._loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(step())))

    def cancel(self, index: int) -> None:
        """One of its tasks; the last is 0."""
        tasks = self._tasks

        def cancel() -> None:
            if tasks:
                tasks[-1 - index % len(tasks)].cancel()

        self._loop.call_soon_threadsafe(cancel)

    def wait(self) -> None:
        tasks = self._tasks

        async def all_done() -> None:
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks.clear()

        asyncio.run_coroutine_threadsafe(all_done(), self._loop).result()

    def reopen(self) -> None:
        """Closes the loop, whatever its tasks wait for, and opens another."""
        self.join()
        self._open()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        self.end()
        self._thread.join()

    def _open(self) -> None:
        self._tasks = []
        self._loop = self._new_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
        self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.set_exception_handler(self._on_trouble)
        try:
            loop.run_forever()
        finally:
            if not self._world.is_child:  # it would take the parent's selfpipe out of what both watch
                loop.close()

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A closed loop drops waiting tasks, and tasks whose failure has not been reported yet."""
        message = str(context.get("message"))
        is_dropped = "destroyed but it is pending" in message
        if not is_dropped and not (loop.is_closed() and "never retrieved" in message):
            self._world.fault(f"in a loop: {message}: {context.get('exception')!r}")

"""A case: its steps, who does them, and what must be so when all is over."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from fuzz.sequences import generating, parts, processes, tasks
from fuzz.sequences.players import LoopPlayer, Worker
from fuzz.sequences.world import Alarm, Answers, World

Step = list[Any]  # [who, what, three numbers]

THREADS = ("main", "daemon", "thread")
LOOPS = ("loop", "uvloop")
LIMIT = 1000  # of the numbers
SETTLE_SECONDS = 6.0

_Table = dict[str, tuple[float, Callable[[World, int, int, int], Any]]]
_OF_THREADS: _Table = {**generating.STEPS, **parts.STEPS, **processes.STEPS_OF_THREADS}
_OF_MAIN: _Table = {**_OF_THREADS, **processes.STEPS_OF_MAIN}
_OF_LOOPS: dict[str, tuple[float, Any]] = {**tasks.TASKS, "cancel": (4, None), "close_loop": (0.4, None)}


def make(random: np.random.Generator) -> list[Step]:
    """Steps for everybody, which wait for each other always, sometimes or never; and an end."""
    n, waits = int(random.integers(3, 30)), float(random.choice([0.0, 0.1, 0.5, 1.0]))
    case: list[Step] = [["main", "load", *_numbers(random)]]
    for _ in range(n):
        who = str(random.choice([*THREADS, *LOOPS], p=[0.3, 0.2, 0.2, 0.2, 0.1]))
        table: dict[str, Any] = _OF_LOOPS if who in LOOPS else _OF_MAIN if who == "main" else _OF_THREADS
        weights = np.array([weight for weight, _ in table.values()])
        case.append([who, str(random.choice(list(table), p=weights / weights.sum())), *_numbers(random)])
        if random.random() < waits:
            case.append(["main", "wait", 0, 0, 0])
    if random.random() < 0.5:
        case.append(["main", "end", *_numbers(random)])
    return case


def _numbers(random: np.random.Generator) -> list[int]:
    return [int(number) for number in random.integers(0, LIMIT, 3)]


class Case:
    """Plays the steps of a case, in a process that has nothing else to do."""

    def __init__(self, answers: Answers, folder: Path) -> None:
        self._before = holdings()
        self.world = World(answers, folder)
        self._workers = {
            "daemon": Worker(self.world, "daemon", daemon=True),
            "thread": Worker(self.world, "thread", daemon=False),
        }
        self._loops = {
            "loop": LoopPlayer(self.world, "loop", asyncio.new_event_loop),
            "uvloop": LoopPlayer(self.world, "uvloop", _uvloop),
        }
        processes.watch_signals(self.world)
        sys.unraisablehook = self._on_unraisable
        threading.excepthook = self._on_dead_thread

    def play(self, steps: list[Step]) -> None:
        for step in steps:
            if step[1] == "end":
                self.world.is_ending = True
                signal.setitimer(signal.ITIMER_REAL, 0)  # at the end, Python gives up its handlers
                self._workers["thread"].end()  # the interpreter waits for this one
                processes.ENDS[step[2] % len(processes.ENDS)](self.world)
                return
            with contextlib.suppress(Alarm, KeyboardInterrupt):
                self._begin(*step)
            self.world.armed = False
        self._finish()
        self.world.expect(0)

    def _begin(self, who: str, what: str, a: int, b: int, c: int) -> None:
        if what == "wait":
            for player in self._players():
                player.wait()
        elif what == "cancel":
            self._loops[who].cancel(a)
        elif what == "close_loop":
            self._loops[who].reopen()
        elif who in self._loops:
            self._loops[who].do(functools.partial(tasks.TASKS[what][1], self.world, a, b, c))
        else:
            step = functools.partial(_OF_MAIN[what][1], self.world, a, b, c)
            step() if who == "main" else self._workers[who].do(step)

    def _finish(self) -> None:
        """Ends and closes everything; then the process holds what it held before."""
        gc.set_threshold(700)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.world.is_through = True
        self._join()
        self._close_all()
        processes.end_helpers()
        self.world.forget()
        self._loops.clear()  # their tasks are kept until here
        end = time.monotonic() + SETTLE_SECONDS
        while (left := _left(self._before, holdings())) and time.monotonic() < end:
            time.sleep(0.02)
        if left:
            self.world.fault(f"left over: {left}")
        if kept := self.world.kept_alive():
            self.world.fault(f"kept alive: {sorted(set(kept))}")

    def _players(self) -> list[Worker | LoopPlayer]:
        return [*self._loops.values(), *self._workers.values()]

    def _join(self) -> None:
        for player in self._players():
            player.join()

    def _close_all(self) -> None:
        for thing in self.world.things():
            with self.world.attempt(f"close {type(thing.object).__name__} at the end", thing, lenient=True):
                if hasattr(thing.object, "close"):
                    thing.close()

    def _on_unraisable(self, unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, RuntimeError) and _is_of_a_lock(unraisable.exc_traceback):
            return  # a task was dropped with its closed loop while it held asyncio's lock, and others waited
        if not isinstance(unraisable.exc_value, (Alarm, KeyboardInterrupt, SystemExit)):
            self.world.fault(f"no caller could catch {unraisable.exc_value!r} in {unraisable.object!r:.60}")

    def _on_dead_thread(self, failure: Any) -> None:
        if not isinstance(failure.exc_value, SystemExit):  # with which a forked child ends, in whichever thread
            self.world.fault(f"a thread ended: {failure.exc_value!r}")


def holdings() -> dict[str, int]:
    """Count what the process holds: native objects by kind, threads, descriptors."""
    from pyggml import lib

    gc.collect()
    kinds = [name for name in dir(lib) if name.startswith("PYG_HANDLE_") and name != "PYG_HANDLE_KINDS"]
    held = {name: int(lib.pyg_live_handles(getattr(lib, name))) for name in kinds}
    for name, folder in {"threads": "task", "descriptors": "fd"}.items():
        held[name] = len(list(Path(f"/proc/self/{folder}").iterdir()))
    return held


def _is_of_a_lock(trace: TracebackType | None) -> bool:
    return any(frame.filename.endswith("asyncio/locks.py") for frame in traceback.extract_tb(trace))


def _left(before: dict[str, int], after: dict[str, int]) -> str:
    return ", ".join(f"{after[name] - n} {name}" for name, n in before.items() if after[name] > n)


def make_once() -> None:
    """Create what exists once per process, and belongs to no case."""
    for new_loop in (asyncio.new_event_loop, _uvloop):
        new_loop().close()


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop

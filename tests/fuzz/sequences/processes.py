"""Steps that concern the whole process: forks, signals, garbage, other interpreters, and its end."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from fuzz.sequences.generating import STEPS, close, generate, load
from fuzz.sequences.world import PROMPTS, Alarm, CallersError, EndOfChild, World

CHILD_SECONDS = 20.0
LOOK_SECONDS = 0.05
FEW_TICKS = 10  # what a process uses that only looks for signals now and then
# Signals come while the main thread is in a call, and hit any line of Python.
SOON = (0.0002, 0.001, 0.003, 0.01, 0.03)


def watch_signals(world: World) -> None:
    """SIGALRM and SIGINT raise where a step of the main thread is; SIGUSR1 calls the library there."""

    def alarm(_number: int, _frame: object) -> None:
        if world.armed:
            raise Alarm

    def interrupt(_number: int, _frame: object) -> None:
        if world.armed:
            raise KeyboardInterrupt

    def call(_number: int, _frame: object) -> None:
        for handler in world.handlers:
            handler()

    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGUSR1, call)


def alarm(world: World, a: int, b: int, c: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, SOON[a % len(SOON)])


def interrupt(world: World, a: int, b: int, c: int) -> None:
    time.sleep(SOON[a % len(SOON)])
    os.kill(os.getpid(), signal.SIGINT)


def call_in_handler(world: World, a: int, b: int, c: int) -> None:
    """The library from within a handler, while the main thread is in it or not."""
    name = ("close_llm", "generate", "look", "read_stream", "open_stream")[a % 5]
    world.handlers[:] = [lambda: STEPS[name][1](world, b, c, 3)]
    time.sleep(SOON[c % len(SOON)])
    os.kill(os.getpid(), signal.SIGUSR1)


def collect(world: World, a: int, b: int, c: int) -> None:
    gc.collect()


class Cycle:
    """Garbage that calls the library when it is found, in whichever thread that is, and whatever it does there."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.itself = self

    def __del__(self) -> None:
        self.work()


def call_in_collector(world: World, a: int, b: int, c: int) -> None:
    name = ("close_llm", "drop_llm", "close_stream", "drop_stream", "look")[a % 5]
    Cycle(lambda: STEPS[name][1](world, b, c, 1))
    gc.set_threshold((700, 5, 50)[c % 3])


def fork(world: World, a: int, b: int, c: int) -> None:
    """The child says whose the objects are, uses its own, and ends; the parent's are none the worse."""
    in_main = threading.current_thread() is threading.main_thread()  # which the child cannot tell any more
    child = os.fork()
    if child:
        status = ended(child, CHILD_SECONDS)
        if status != 0:
            world.fault(f"a forked child ended with {status}")
        return
    world.become_child()
    signal.setitimer(signal.ITIMER_REAL, 0)
    for name in ("look", "generate", "read_stream", "open_stream", "cancel_stream", "chat", "embed"):
        STEPS[name][1](world, b, c, 0)
    if a % 2:
        for kind in ("llm", "stream"):
            close(kind)(world, b, 0, 0)
    if a % 3 == 0:
        world.forget()
        gc.collect()
    if a % 3 != 1:
        load(world, 0, 0, 6)
        generate(world, 0, b, c)
    leave(b, in_main)


def leave(how: int, in_main: bool) -> None:
    """Ends a child, as children do; but the end of a thread does not end a process in which numpy has another."""
    if how % 2 or not in_main:
        os._exit(0)
    raise EndOfChild(0)


def ended(child: int, seconds: float) -> int:
    """The status of a child; one that does nothing for that long is told to say where it is, and dies.

    Neither a machine that is paused nor one that has no time for it makes a process hang; one that turns in circles has
    ten times as long.
    """
    idle, looks, used = 0, 0, 0
    while idle < seconds / LOOK_SECONDS and looks < 10 * seconds / LOOK_SECONDS:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(LOOK_SECONDS)
        looks, idle = looks + 1, idle + 1
        if (now := _ticks(child)) > used + FEW_TICKS:
            idle, used = 0, now
    os.kill(child, signal.SIGABRT)  # faulthandler shows its threads
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _ticks(process: int) -> int:
    """Processor time that it and those it waited for have used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def answer(prompt: int) -> list[int]:
    """Generate an answer in a process of multiprocessing."""
    import pyggml

    with pyggml.load(n_threads=1, n_ctx=512, n_parallel=1) as llm:
        return llm.generate(PROMPTS[prompt], max_tokens=9, ignore_eos=True).token_ids


def other_process(world: World, a: int, b: int, c: int) -> None:
    method = ("fork", "spawn", "forkserver")[a % 3]
    with world.attempt(f"multiprocessing, {method}"), multiprocessing.get_context(method).Pool(1) as pool:
        world.judge(b, pool.apply(answer, (b % len(PROMPTS),)), 9)


def end_helpers() -> None:
    """End the processes that multiprocessing starts once and keeps descriptors for, as its own tests do."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def at_exit(world: World, a: int, b: int, c: int) -> None:
    """A handler of the interpreter's end, before or after pyggml's own."""

    def handle() -> None:
        world.is_ending = True
        if a % 2:
            generate(world, b, b, c)
        if a % 3 == 0:
            load(world, b, 0, 6)
            generate(world, b, b, c)
        if a % 3 == 1:
            close("llm")(world, b, 0, 0)

    if c % 2:
        atexit.register(handle)
    else:
        world.late.append(handle)


def loads_at_the_end(world: World, a: int, b: int, c: int) -> None:
    """A thread that the end of the interpreter meets in a callback of the library."""
    import pyggml

    def forever() -> None:
        while not world.is_through:
            try:
                pyggml.load(n_threads=1, n_ctx=512, progress=lambda _fraction: time.sleep(0.0005 * (a % 5))).close()
            except pyggml.InferError:
                return

    threading.Thread(target=forever, daemon=True).start()


# --- the end ------------------------------------------------------------------------------------------------------


def end_by_exit(world: World) -> None:
    world.expect(3)
    sys.exit(3)


def end_by_error(world: World) -> None:
    world.expect(1)
    raise CallersError("the end, as the case wants it")


def end_at_once(world: World) -> None:
    world.expect(4)
    os._exit(4)


def end_by_interrupt(world: World) -> None:
    world.expect(-signal.SIGINT)
    raise KeyboardInterrupt


def end_by_signal(world: World) -> None:
    world.expect(-signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(CHILD_SECONDS)


def end_quietly(world: World) -> None:
    """As a script ends, with everything as it is."""
    world.expect(0)


ENDS: list[Callable[[World], None]] = [
    end_quietly,
    end_by_exit,
    end_by_error,
    end_at_once,
    end_by_interrupt,
    end_by_signal,
]

STEPS_OF_MAIN: dict[str, tuple[float, Callable[[World, int, int, int], Any]]] = {
    "alarm": (6, alarm),
    "fork": (0.7, fork),
    "other_process": (0.06, other_process),
}
STEPS_OF_THREADS: dict[str, tuple[float, Callable[[World, int, int, int], Any]]] = {
    "interrupt": (2, interrupt),
    "call_in_handler": (1, call_in_handler),
    "collect": (1, collect),
    "call_in_collector": (0.7, call_in_collector),
    "fork": (0.3, fork),
    "at_exit": (0.5, at_exit),
    "loads_at_the_end": (0.3, loads_at_the_end),
}

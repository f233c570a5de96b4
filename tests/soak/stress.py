"""Many threads and tasks on models that come and go: nothing hangs, nothing is lost, nothing grows.

    python tests/soak/stress.py --minutes 10 --threads 32 [--seed N]

It works in rounds. Each loads a few models, lets every user loose on them, and then checks in silence that the
engines have ended what was asked of them and that closing gives everything back. What users do is in two
tables of stress_actions.py, what they ask for in FORMS of stress_asks.py, and how models are loaded in OPTIONS of
stress_world.py.

Exit status: 0 all is well, 1 a check failed, 2 something hung (every thread's stack is shown).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/

import argparse
import asyncio
import ctypes
import faulthandler
import gc
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median

from soak.stress_actions import ACTIONS, TASKS, User
from soak.stress_requests import chosen
from soak.stress_world import Loaded, Watch, World, until

import pyggml
from pyggml import lib

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
with suppress(ImportError):
    import uvloop

    LOOPS.append(uvloop.new_event_loop)

ROUND_S = 15.0
LOOK_S = 5.0  # between two looks of who watches the run
SLACK_BYTES = 16_000_000  # what is resident of the allocator's free memory goes up and down by as much
TASKS_PER_LOOP = 6
HANDLE_KINDS = {name: getattr(lib, name) for name in dir(lib) if name.startswith("PYG_HANDLE_")}
del HANDLE_KINDS["PYG_HANDLE_KINDS"]


@contextmanager
def attempt(user: User, action: Callable[..., object]) -> Iterator[Loaded]:
    """One action: it returns, or raises what its model entitles it to."""
    world = user.world
    loaded = world.some_model(user.rng)
    world.count("actions")
    try:
        with world.watch.doing(f"{user.name} {action.__name__} {loaded.options}", loaded):
            yield loaded
    except pyggml.ClosedError:
        world.count("closed")
        if not loaded.closing:
            world.fault(f"{action.__name__}: ClosedError, but it was not closed")
    except pyggml.RequestTimeout:
        world.count("timed out in the queue")
        if loaded.options.get("queue_full") != "wait":
            world.fault(f"{action.__name__}: RequestTimeout with {loaded.options}")
    except pyggml.QueueFullError:
        world.count("full")
        if loaded.options.get("queue_full") != "raise":
            world.fault(f"{action.__name__}: QueueFullError with {loaded.options}")
    except Exception:
        world.fault(f"{action.__name__} with {loaded.options}:\n{traceback.format_exc()}")


def act_in_thread(user: User) -> None:
    while not user.world.pausing:
        action = chosen(user.rng, ACTIONS)
        with attempt(user, action) as loaded:
            action(user, loaded)


def act_in_loop(user: User) -> None:
    """An event loop of its own, for as long as the round is."""

    async def act(each: User) -> None:
        while not each.world.pausing:
            action = chosen(each.rng, TASKS)
            with attempt(each, action) as loaded:
                await action(each, loaded)

    async def all_together() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: user.world.fault(f"in a loop: {context}")
        )
        users = [User(user.world, random.Random(user.rng.random()), user.name) for _ in range(TASKS_PER_LOOP)]
        await asyncio.gather(*map(act, users))

    loop = user.rng.choice(LOOPS)()
    try:
        loop.run_until_complete(all_together())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def live(user: User, act: Callable[[User], None], gate: threading.Barrier) -> None:
    while True:
        gate.wait()
        if user.world.over:
            return
        act(user)
        gate.wait()


@dataclass(frozen=True)
class Holdings:
    """The resources that the process holds."""

    handles: dict[str, int]  # native objects, by kind
    threads: int
    descriptors: int
    rss_bytes: int
    allocated_bytes: int  # by malloc, whatever is resident of it; 0 where that cannot be known

    @staticmethod
    def now() -> Holdings:
        gc.collect()
        give_back_free_memory()
        status = Path("/proc/self/status").read_text()
        rss_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        return Holdings(
            {name: n for name, kind in HANDLE_KINDS.items() if (n := lib.pyg_live_handles(kind))},
            len(list(Path("/proc/self/task").iterdir())),
            len(list(Path("/proc/self/fd").iterdir())),
            rss_kib * 1024,
            allocated_bytes(),
        )

    def no_more_than(self, other: Holdings) -> bool:
        """Memory aside, which is never the same; a thread that ends late may have been counted in `other`."""
        return self.handles == other.handles and self.threads <= other.threads and self.descriptors <= other.descriptors


def run(args: argparse.Namespace, look: Callable[[World, bool], None] = lambda _world, _quiet: None) -> int:
    """Runs the test; `look` is called every few seconds, and in the silence (True) after each round."""
    pyggml.load().close()  # makes what exists once per process
    for new_loop in LOOPS:
        new_loop().close()
    rng = random.Random(args.seed)
    world = World(Watch(args.patience), rng)
    # Python only prints these two, and goes on.
    sys.unraisablehook = lambda unraisable: world.fault(f"no caller could catch {unraisable}")
    threading.excepthook = lambda failure: world.fault(f"a thread ended: {failure}")
    gate = threading.Barrier(args.threads + 1)
    for i in range(args.threads):
        user = User(world, random.Random(rng.random()), f"user {i}")
        act = act_in_loop if i % 4 == 3 else act_in_thread
        threading.Thread(target=live, args=(user, act, gate), name=user.name).start()
    before = Holdings.now()
    quiet: list[Holdings] = []
    started = next_line = time.monotonic()
    while time.monotonic() < started + 60 * args.minutes and world.n_faults < 10:
        round_s = min(ROUND_S, 60 * args.minutes / 4)
        one_round(world, gate, round_s, look)
        quiet.append(settled(world, before))
        look(world, True)
        if time.monotonic() - next_line >= 60 - round_s / 2:
            next_line = time.monotonic()
            print(summary(world, quiet[-1], next_line - started), flush=True)
    world.over = True
    gate.wait()
    require_no_growth(world, quiet)
    print(summary(world, quiet[-1], time.monotonic() - started))
    print("FAILED" if world.n_faults else "OK", f"seed {args.seed}", flush=True)
    return 1 if world.n_faults else 0


def one_round(world: World, gate: threading.Barrier, seconds: float, look: Callable[[World, bool], None]) -> None:
    world.pausing = False
    world.open_models()
    gate.wait()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_S))
        look(world, False)
    with world.watch.doing("the end of the round"):
        world.pausing = True
        gate.wait()
        world.close_models()


def settled(world: World, before: Holdings) -> Holdings:
    """After everything was closed: the process holds no more than it held before."""
    if not until(lambda: Holdings.now().no_more_than(before)):
        world.fault(f"not everything came back: {Holdings.now()} and before {before}")
    return Holdings.now()


def require_no_growth(world: World, quiet: Sequence[Holdings]) -> None:
    """From the second fifth of the time to the last: in the first, allocator and caches take what they need."""
    if len(quiet) < 20:
        return  # too short to tell growth from that
    fifth = len(quiet) // 5
    early, late = (median(each.rss_bytes for each in part) for part in (quiet[fifth : 2 * fifth], quiet[-fifth:]))
    if late > 1.02 * early + SLACK_BYTES:
        world.fault(f"the process grew from {early / 1e6:.0f} to {late / 1e6:.0f} MB")


def give_back_free_memory() -> None:
    """Return free memory of the allocator, which is no growth and depends on how many threads allocated at once."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


class Mallinfo2(ctypes.Structure):
    """glibc's, from its malloc.h."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    )


def allocated_bytes() -> int:
    """Return the bytes that glibc's malloc has in use: unlike resident memory, without free blocks between."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    mallinfo2.restype = Mallinfo2
    now = mallinfo2()
    return int(now.uordblks + now.hblkhd)


def summary(world: World, now: Holdings, seconds: float) -> str:
    counts = " ".join(f"{what}={n}" for what, n in sorted(world.tally.items()))
    held = f"handles={sum(now.handles.values())} threads={now.threads} descriptors={now.descriptors}"
    memory = f"rss={now.rss_bytes / 1e6:.0f}MB allocated={now.allocated_bytes / 1e6:.1f}MB"
    gap = f"widest_gap={world.widest_gap:.3f}"
    return f"{seconds / 60:5.1f} min: {counts} {gap} | {held} {memory} faults={world.n_faults}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--patience", type=float, default=60.0, help="seconds that an engine with work may stand still")
    args = parser.parse_args()
    faulthandler.enable()
    return run(args)


if __name__ == "__main__":
    sys.exit(main())

"""Mixed traffic on the library and on the worker, for hours: what they hold must stay what it is.

    python tests/soak/soak.py --hours 2 [--users 8] [--clients 8] [--seed N] [--out FOLDER]

The library's part is the stress test (stress.py: streams, batches, chats, grammars, cancels, deadlines, caches that are
too small, models opened and closed by threads and tasks) with forks of tasks besides; the worker's part has clients
that stream, leave and are refused (soak_traffic.py). Each runs in a separate process and writes what it holds to
FOLDER/library.csv and FOLDER/worker.csv every few seconds, and after each round in silence. From these rows come the
plots FOLDER/library.svg and FOLDER/worker.svg and the verdict.

Both run with a glibc that gives free memory back (GIVE_BACK), so that resident memory is what is held.

Exit status: 0 all is well; 1 an answer was wrong, or the last hour (the last sixth of a shorter time) holds more than
the second.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

from soak import stress, stress_actions
from soak.samples import HELD, MEMORY, Sample, Totals, growth, parts, read, writer
from soak.stress_actions import User
from soak.stress_world import Loaded, World, until
from soak.traffic import MODELS, WrongAnswerError, settled, traffic

import pyggml
from pyggml.server import Settings, create_app, run
from pyggml.server.settings.options import ModelSpec

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "common"))

import plot

FOLDER = Path("build") / "soak"
PARTS = ("library", "worker")
ROUND_S = 30.0
LOOK_S = 5.0
# Two models on room for one: either is unloaded when the other is asked for. Eight long answers need more cells.
LOADING: dict[str, Any] = {"n_parallel": 8, "n_ctx": 512, "n_threads": 1}
# glibc raises this limit to twice the largest block that was ever freed, and keeps as much at the end of each thread's
# arena, where malloc_trim does not look: tens of MB that depend on who was at which arena at once.
GIVE_BACK = {"MALLOC_TRIM_THRESHOLD_": str(128 * 1024)}

# --- the library ------------------------------------------------------------------------------------------------


async def forked(user: User, loaded: Loaded) -> None:
    """In the middle of a stream; the child is refused, and ends."""
    async with loaded.llm.astream("Once upon a time", max_tokens=20) as stream:
        child = os.fork()
        if not child:
            try:
                loaded.llm.generate("Once", max_tokens=3)
            except (pyggml.EngineError, pyggml.ClosedError):
                os._exit(0)
            finally:
                os._exit(3)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        if status:
            user.world.fault(f"a forked child ended with status {status}")
        user.world.count("forks")
        async for _ in stream:
            pass


def library(arguments: argparse.Namespace) -> int:
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # forks
    stress_actions.TASKS.append((0.3, forked))
    add = writer(arguments.out / "library.csv")
    begun = time.monotonic()

    def look(world: World, quiet: bool) -> None:
        tally = world.tally
        add(Sample.now(time.monotonic() - begun, quiet, tally["answers"], tally["tokens"], tally["preempted"]))

    of_stress = argparse.Namespace(
        minutes=arguments.hours * 60, threads=arguments.users, seed=arguments.seed, patience=300.0
    )
    return stress.run(of_stress, look)


# --- the worker -------------------------------------------------------------------------------------------------


def worker(arguments: argparse.Namespace) -> int:
    """Serves; writes rows, and one in silence for each line that it is sent, once nothing is running."""
    models = tuple(ModelSpec(None, name=name) for name in MODELS)
    app = create_app(Settings(models=models, load=LOADING, max_loaded_models=1, port=0, log_level="error"))
    add = writer(arguments.out / "worker.csv")
    begun = time.monotonic()
    turn = threading.Lock()
    totals = Totals()

    def look(quiet: bool) -> None:
        with turn:
            for model in app.state.worker.models.loaded:
                if (stats := model.stats()) is not None:
                    totals.see(id(model), (stats.n_finished, stats.n_generated_tokens, stats.n_preemptions))
            add(Sample.now(time.monotonic() - begun, quiet, *totals.counts))

    def look_around() -> None:
        while True:
            time.sleep(LOOK_S)
            look(False)

    def answer() -> None:
        for _ in sys.stdin:
            is_idle = until(lambda: not is_busy(app.state.worker), 60)
            look(True)
            print(json.dumps(is_idle), flush=True)

    for each in (look_around, answer):
        threading.Thread(target=each, daemon=True).start()
    run(app, app.state.worker.settings, lambda url: print(url, flush=True))
    return 0


def is_busy(worker: Any) -> bool:
    """With calls, or with what they have left to the engine, or with a model that goes or comes."""
    stats = [each.stats() for each in worker.models.loaded]
    return bool(worker.calls) or not stats or any(each is None or each.n_running or each.n_queued for each in stats)


def ask_the_worker(arguments: argparse.Namespace, end: float) -> Iterator[str]:
    """Starts it, and is its clients; returns what is wrong."""
    rng, tally = random.Random(arguments.seed), Counter[str]()
    process = started(arguments, "worker", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline().rpartition(":")[2])
        while time.monotonic() < end:
            asyncio.run(traffic(port, rng, min(ROUND_S, end - time.monotonic()), arguments.clients, tally))
            asyncio.run(settled(port))
            print(file=process.stdin, flush=True)
            if json.loads(process.stdout.readline()) is not True:
                yield "the worker is busy a minute after its clients have left"
                return
        print("worker:", " ".join(f"{what}={n}" for what, n in sorted(tally.items())), flush=True)
    except (WrongAnswerError, OSError, ValueError, asyncio.TimeoutError) as error:
        yield f"the worker: {type(error).__name__}: {error}"
    finally:
        process.terminate()
        if process.wait(120) != -signal.SIGTERM:  # what runs is finished first
            yield f"the worker ended with status {process.returncode}"


# --- both -------------------------------------------------------------------------------------------------------


def started(arguments: argparse.Namespace, part: str, **pipes: Any) -> subprocess.Popen[str]:
    given = [f"--{name}={getattr(arguments, name)}" for name in ("hours", "users", "clients", "seed", "out")]
    command = [sys.executable, __file__, *given, "--part", part]
    return subprocess.Popen(command, env=os.environ | GIVE_BACK, **pipes)


def soak(arguments: argparse.Namespace) -> list[str]:
    """Runs both parts, and returns what is wrong."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + arguments.hours * 3600
    process = started(arguments, "library")
    try:
        wrong = list(ask_the_worker(arguments, end))
        if process.wait() != 0:
            wrong.append(f"the library's part ended with status {process.returncode}")
    finally:
        process.kill()
    return wrong + [f"the {part} grew: {each}" for part in PARTS for each in report(arguments.out, part)]


def report(folder: Path, part: str) -> list[str]:
    """Prints and draws what a part held; returns what grew."""
    samples = read(folder / f"{part}.csv")
    quiet = [each for each in samples if each.quiet]
    for i, some in enumerate(parts(samples) if quiet else []):
        if some:
            figures = "  ".join(f"{what} {median(getattr(each, what) for each in some):g}" for what in HELD)
            rss, allocated = (median(getattr(each, what) for each in some) / 1e6 for what in MEMORY)
            memory = f"{rss:.1f} MB, {allocated:.1f} MB allocated"
            print(f"{part} part {i + 1}: {memory}  {figures}  ({len(some)} samples in silence)")
    if quiet:
        last = samples[-1]
        print(f"{part}: {last.requests} requests, {last.tokens} tokens, {last.preemptions} preemptions")
        (folder / f"{part}.svg").write_text(drawn(quiet))
    return list(growth(samples))


def drawn(quiet: list[Sample]) -> str:
    """Plot the resources held in silence, each as a percentage of its median."""
    lines: dict[str, dict[int, float]] = {}
    for what, name in (*MEMORY.items(), *((each, each) for each in HELD)):
        usual = median(getattr(each, what) for each in quiet) or 1
        lines[name] = {round(each.seconds): 100 * getattr(each, what) / usual for each in quiet}
    return plot.svg(lines, x="seconds", y="% of the median", linear=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--users", type=int, default=8, help="threads on the library, a quarter with an event loop")
    parser.add_argument("--clients", type=int, default=8, help="of the worker, at once")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        return library(arguments) if arguments.part == "library" else worker(arguments)
    wrong = soak(arguments)
    print("\n".join(wrong) or f"all is well, seed {arguments.seed}; plots and rows are in {arguments.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

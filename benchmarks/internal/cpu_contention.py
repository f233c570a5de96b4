"""A neighbour that wants a core: one stream's decode speed while something else computes, and after that has ended.

On two cores (if there are more, the script restricts itself to two) one stream decodes continuously. A neighbour that
never stops computing comes and goes: first another process, then a Python thread of this one. The engine's counters
give the speed before and during the visit, from its first moment, and the time until full speed is back. Upstream's
llama-bench, with its default of one thread per core, meets the same neighbour process in the same round. The speed of
one undisturbed compute thread is the most that can be kept while the neighbour has the other core.

Then every core gets such a process, the model is loaded, and its first request is compared with later ones.

    python benchmarks/internal/cpu_contention.py [--rounds 5] [--model smollm2-135m tinyllama-1.1b]
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
import llama_cpp_programs
from synthetic_models import model_file

import pyggml

CALM_S = 3.0
BUSY_S = 5.0
AFTER_S = 4.0
N_LATER = 3  # requests that the first one is compared with
FULL_SPEED = 0.95  # fraction of the calm speed that counts as full speed
N_UPSTREAM = 32  # tokens; with a neighbour they can take long
_SAMPLE_S = 0.02


@dataclass(frozen=True)
class Visit:
    """One visit of a neighbour: tokens per second, and seconds from its end until full speed."""

    calm: float
    busy: float
    back_s: float

    def __str__(self) -> str:
        back = "" if math.isnan(self.back_s) else f", back after {self.back_s:.2f} s"
        return f"{self.calm:.1f} tokens/s, then {self.busy:.1f} ({self.busy / self.calm:.0%}){back}"


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    """Another process that computes on one core."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """A thread of this process that works without pause."""
    done = threading.Event()

    def work_on() -> None:
        while not done.is_set():
            work()

    thread = threading.Thread(target=work_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def busy_thread() -> AbstractContextManager[None]:
    """A Python thread that computes."""
    return meanwhile(lambda: sum(range(1000)))


def decoding(llm: pyggml.LLM) -> AbstractContextManager[None]:
    """One stream that decodes, request after request."""
    return meanwhile(lambda: llm.generate([1], max_tokens=256, ignore_eos=True))


Samples = list[tuple[float, int]]  # seconds, tokens generated so far


def sample(llm: pyggml.LLM, seconds: float) -> Samples:
    """Sample the engine's count of tokens."""
    samples: Samples = []
    end = time.perf_counter() + seconds
    while not samples or samples[-1][0] < end:
        samples.append((time.perf_counter(), llm.stats().n_generated_tokens))
        time.sleep(_SAMPLE_S)
    return samples


def speed(samples: Samples) -> float:
    """Tokens per second between the first and the last sample."""
    (start, first), (end, last) = samples[0], samples[-1]
    return (last - first) / (end - start)


def time_until(samples: Samples, wanted: float) -> float:
    """Seconds from the first sample to the first stretch of at least that speed; infinite if there is none.

    A stretch is 20 tokens or half a second, so that one token more or less makes no difference.
    """
    stretch_s = max(0.5, 20 / wanted)
    for i, (start, _) in enumerate(samples):
        stretch = [later for later in samples[i:] if later[0] <= start + stretch_s]
        if samples[-1][0] < start + stretch_s:
            break
        if speed(stretch) >= wanted:
            return start - samples[0][0]
    return math.inf


def visit(llm: pyggml.LLM, neighbour: AbstractContextManager[None]) -> Visit:
    """Decode speed before, during and after a neighbour."""
    with decoding(llm):
        sample(llm, 1.0)
        calm = speed(sample(llm, CALM_S))
        if not calm:
            raise RuntimeError(f"no token in {CALM_S:g} s: other programs keep this machine too busy to measure")
        with neighbour:
            busy = speed(sample(llm, BUSY_S))
        return Visit(calm, busy, time_until(sample(llm, AFTER_S), FULL_SPEED * calm))


def calm_speed(llm: pyggml.LLM) -> float:
    """Decode speed of one undisturbed stream."""
    with decoding(llm):
        sample(llm, 1.0)
        return speed(sample(llm, CALM_S))


def visit_upstream(model: Path) -> Visit:
    """The same for llama-bench with its default threads; it exits before full speed could return."""
    calm = llama_cpp_programs.decode_speed(model, N_UPSTREAM, harness.n_cpus())
    with busy_process():
        busy = llama_cpp_programs.decode_speed(model, N_UPSTREAM, harness.n_cpus())
    return Visit(calm, busy, math.nan)


def first_request(model: Path) -> float:
    """Duration of the first request after loading while a process per core is busy, relative to later ones."""
    seconds = []
    with contextlib.ExitStack() as stack:
        for _ in range(harness.n_cpus()):
            stack.enter_context(busy_process())
        time.sleep(1)
        llm = stack.enter_context(pyggml.load(model, n_ctx=512))
        for number in range(1 + N_LATER):
            start = time.perf_counter()
            llm.generate([number + 1] * 64, max_tokens=16, ignore_eos=True)
            seconds.append(time.perf_counter() - start)
    return seconds[0] / statistics.median(seconds[1:])


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure both neighbours on one model."""
    model = model_file(name)
    visits: dict[str, list[Visit]] = {"process": [], "thread": [], "llama-bench, process": []}
    print(f"{name}: decode of one stream with a neighbour on {harness.n_cpus()} cores")
    one_thread: list[float] = []
    with pyggml.load(model, n_ctx=512) as llm, pyggml.load(model, n_ctx=512, n_threads=1) as modest:
        for n in range(rounds):
            visits["process"].append(visit(llm, busy_process()))
            visits["thread"].append(visit(llm, busy_thread()))
            visits["llama-bench, process"].append(visit_upstream(model))
            one_thread.append(calm_speed(modest) / visits["process"][-1].calm)
            for neighbour, seen in visits.items():
                print(f"  round {n + 1}, {neighbour}: {seen[-1]}", flush=True)
    first = [first_request(model) for _ in range(rounds)]
    print(f"  first request after loading, busy processes on all cores: {' '.join(f'{each:.2f}' for each in first)}")
    kept = {neighbour: statistics.median(v.busy / v.calm for v in seen) for neighbour, seen in visits.items()}
    back = {neighbour: statistics.median(v.back_s for v in seen) for neighbour, seen in visits.items()}
    print(f"  llama-bench keeps {kept['llama-bench, process']:.0%} with the process")
    print(f"  one compute thread, undisturbed, is {statistics.median(one_thread):.0%} of full speed")
    return [
        harness.at_least(f"{name}: speed kept with a busy process", kept["process"], 0.75, "x"),
        harness.at_least(f"{name}: speed kept with a busy Python thread", kept["thread"], 0.75, "x"),
        harness.at_most(f"{name}: full speed back after the process", back["process"], 2.0, " s"),
        harness.at_most(f"{name}: full speed back after the thread", back["thread"], 2.0, " s"),
        harness.at_most(f"{name}: first request with busy processes", statistics.median(first), 1.5, "x"),
    ]


if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    chosen = harness.options(__doc__, rounds=5, models=["smollm2-135m", "tinyllama-1.1b"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

"""64 asyncio tasks on one model: does the event loop stay quick, and does anything pile up?

A ticker asks the loop to wake it every millisecond and records how late it was at most: while the loop is idle; while a
plain thread generates, so that the compute threads need the same cores; while 64 tasks of the loop generate, or stream.
Any stall beyond the idle loop's is pyggml's.

Then 1,000 requests from 64 tasks: threads, file descriptors, native handles and resident bytes after the first 100
and after all. Reads /proc, so Linux only.

    python benchmarks/internal/asyncio_load.py [--rounds 3] [--model smollm2-135m]
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml import SamplingParams, lib
from pyggml.cli.bench.measure import random_prompts

N_TASKS = 64
N_REQUESTS = 1000
N_FIRST = 100
TICK_S = 0.001
QUIET_S = 5.0
REQUEST = SamplingParams(max_tokens=16, ignore_eos=True)


@dataclass(frozen=True)
class Held:
    """The resources that the process holds."""

    threads: int
    descriptors: int
    handles: int
    rss_bytes: int


def held() -> Held:
    """Counts after a garbage collection; threads are the kernel's, to include native ones."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    handles = sum(lib.pyg_live_handles(kind) for kind in range(lib.PYG_HANDLE_KINDS))
    n_descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return Held(int(status["Threads"]), n_descriptors, handles, 1024 * int(status["VmRSS"].split()[0]))


async def longest_stall(work: Awaitable[object]) -> float:
    """The most milliseconds by which the ticker was late during the work."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            worst = max(worst, time.perf_counter() - before - TICK_S)

    ticker = asyncio.create_task(tick())
    await work
    ticker.cancel()
    return 1e3 * worst


async def from_tasks(llm: pyggml.LLM, prompts: list[list[int]]) -> None:
    """Complete every prompt; 64 tasks take them in turn."""
    waiting = iter(prompts)

    async def work() -> None:
        for prompt in waiting:
            done = await llm.agenerate(prompt, REQUEST)
            assert len(done.token_ids) == REQUEST.max_tokens

    await asyncio.gather(*(work() for _ in range(N_TASKS)))


async def stream_from_tasks(llm: pyggml.LLM, prompts: list[list[int]]) -> None:
    """Stream all prompts at once, one task each."""

    async def work(prompt: list[int]) -> None:
        async for _ in llm.astream(prompt, REQUEST):
            pass

    await asyncio.gather(*map(work, prompts))


async def from_a_thread(llm: pyggml.LLM) -> None:
    """Generate in a plain thread; the loop only waits for its end."""

    def generate() -> None:
        end = time.perf_counter() + QUIET_S
        while time.perf_counter() < end:
            llm.generate([1], max_tokens=256, ignore_eos=True)

    await asyncio.to_thread(generate)


def stalls(llm: pyggml.LLM, rounds: int) -> harness.Figures:
    """The longest stall of each kind of work, round by round."""

    def prompts(n: int) -> list[list[int]]:
        return random_prompts(llm.model.vocab, 2 * N_TASKS, 32, random.Random(n))

    def side(work: Callable[[int], Awaitable[object]]) -> Callable[[int], float]:
        async def run(n: int) -> float:
            return await longest_stall(work(n))

        return lambda n: asyncio.run(run(n))

    sides = {
        "idle loop": side(lambda _: asyncio.sleep(QUIET_S)),
        "with a busy thread": side(lambda _: from_a_thread(llm)),
        "64 tasks": side(lambda n: from_tasks(llm, prompts(n))),
        "64 streams": side(lambda n: stream_from_tasks(llm, prompts(n)[:N_TASKS])),
    }
    return harness.interleaved(sides, rounds, "ms late at most")


def growth(llm: pyggml.LLM) -> tuple[Held, Held]:
    """The resources held after the first requests and after all."""
    prompts = random_prompts(llm.model.vocab, N_REQUESTS, 32, random.Random(1))

    async def run() -> tuple[Held, Held]:
        await from_tasks(llm, prompts[:N_FIRST])
        first = held()
        await from_tasks(llm, prompts[N_FIRST:])
        return first, held()

    return asyncio.run(run())


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure stalls, then growth, on one model."""
    print(f"{name}: {N_TASKS} asyncio tasks on one model")
    with pyggml.load(model_file(name), n_ctx=8192, n_parallel=8) as llm:
        figures = stalls(llm, rounds)
        first, last = growth(llm)
    harness.table(figures, "ms late at most")
    print(f"  after {N_FIRST:4} requests: {first}\n  after {N_REQUESTS:4} requests: {last}")
    idle = max(figures["idle loop"])
    return [
        harness.at_most(f"{name}: {side}, stall beyond the idle loop's", max(figures[side]) - idle, 10, " ms")
        for side in ("64 tasks", "64 streams")
    ] + [
        harness.at_most(f"{name}: more threads", last.threads - first.threads, 0),
        harness.at_most(f"{name}: more descriptors", last.descriptors - first.descriptors, 0),
        harness.at_most(f"{name}: more native handles", last.handles - first.handles, 0),
        harness.at_most(
            f"{name}: resident bytes relative to after {N_FIRST}", last.rss_bytes / first.rss_bytes, 1.02, "x"
        ),
    ]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=3, models=["smollm2-135m"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

"""The host's part of a decode step on a device: scheduling, sampling, publishing, waking readers, Python.

A device that costs nothing (internal/null_backend.cpp) takes the place of a GPU: a graph has been computed as soon as
it is submitted, and copies take no time. All the time of a step is then the host's, in microseconds:

    llama_decode    the engine's host part: building batch and graph, finding cells, submitting
    ours            sampling and publishing, and scheduling (sample_s and schedule_s of llm.stats())
    rest            of the wall clock: waiting for locks and for a core
    readers         CPU time of all other threads per token: Python, and helper threads that sample

Greedy requests and those with a temperature of 0.8 and top_k 40 are sampled from what the device finds in the logits
(backend_sampling), which are ids of ordinary words, or by the host from whole rows, on as many threads as there are
CPUs. The KV cache has a stream for each request, or is unified. The logits are one pattern of normally distributed
numbers, over the vocabulary of Llama 3 (128,256 tokens). Requests are read by generate_batch, which waits for the whole
texts; those sampled on the device also by one thread per stream, and by one task per stream in an event loop.

    python benchmarks/host_overhead.py [--rounds 3] [--sequences 1 8 32 128 256]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
from large_models import model_file, shape_of
from null_device import null_device

import pyggml
from pyggml.cli.bench.measure import random_prompts

MODEL = "llama-3-vocabulary"
N_PROMPT = 8
SEQUENCES = (1, 8, 32, 128, 256)
ENGINE_THREAD = "pyggml-engine"

DEVICE, UNIFIED, TOP_K = "greedy, device", "the same, unified", "top_k 40, device"
HOST, TOP_K_HOST = "greedy, host", "top_k 40, host"
_TOP_K = {"temperature": 0.8, "top_k": 40, "seed": 1, "ignore_eos": True}
#: Parameters of the requests. Random logits can choose an end-of-turn token, which a bias forbids on the host.
WAYS: dict[str, dict[str, Any]] = {
    DEVICE: {"temperature": 0},
    UNIFIED: {"temperature": 0},
    HOST: {"temperature": 0},
    TOP_K: _TOP_K,
    TOP_K_HOST: _TOP_K,
}

ON_DEVICE = (DEVICE, UNIFIED, TOP_K)

BATCH, THREADS, TASKS = "generate_batch", "threads", "tasks"

#: Bounds in microseconds per step: a constant, and so much for each sequence.
PER_STEP, PER_SEQUENCE, MORE_WITH_TOP_K = 30, 1.5, 8


@dataclass(frozen=True)
class Host:
    """Microseconds per step, and of ``readers`` per token."""

    llama_decode: float
    ours: float
    rest: float
    readers: float


@dataclass(frozen=True)
class Snapshot:
    """Counters at one time, in seconds."""

    wall_s: float
    engine_cpu_s: float
    process_cpu_s: float
    stats: pyggml.EngineStats

    @classmethod
    def take(cls, llm: pyggml.LLM) -> Snapshot:
        return cls(time.perf_counter(), engine_cpu_seconds(), time.process_time(), llm.stats())


def engine_cpu_seconds() -> float:
    """CPU time of the engine's thread so far."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == ENGINE_THREAD:
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise RuntimeError("there is no thread of an engine")


def between(a: Snapshot, b: Snapshot) -> Host:
    n_steps = b.stats.n_decode_steps - a.stats.n_decode_steps
    n_tokens = b.stats.n_generated_tokens - a.stats.n_generated_tokens
    change = {name: getattr(b.stats, name) - getattr(a.stats, name) for name in ("decode_s", "sample_s", "schedule_s")}
    ours = change["sample_s"] + change["schedule_s"]
    others = (b.process_cpu_s - a.process_cpu_s) - (b.engine_cpu_s - a.engine_cpu_s)
    return Host(
        1e6 * change["decode_s"] / n_steps,
        1e6 * ours / n_steps,
        1e6 * (b.wall_s - a.wall_s - change["decode_s"] - ours) / n_steps,
        1e6 * others / n_tokens,
    )


# --- readers ---------------------------------------------------------------------------------------------------------


def read_batch(llm: pyggml.LLM, prompts: list[list[int]], params: dict[str, Any]) -> None:
    for completion in llm.generate_batch(prompts, progress=False, **params):
        require_whole(completion.finish_reason)


def read_in_threads(llm: pyggml.LLM, prompts: list[list[int]], params: dict[str, Any]) -> None:
    def read(index: int) -> None:
        chunks = list(llm.stream(prompts[index], **params))
        require_whole(chunks[-1].finish_reason)

    harness.together(read, len(prompts))


def read_in_tasks(llm: pyggml.LLM, prompts: list[list[int]], params: dict[str, Any]) -> None:
    async def read(prompt: list[int]) -> None:
        chunks = [chunk async for chunk in llm.astream(prompt, **params)]
        require_whole(chunks[-1].finish_reason)

    async def read_all() -> None:
        await asyncio.gather(*map(read, prompts))

    asyncio.run(read_all())


def require_whole(finish_reason: str | None) -> None:
    if finish_reason != "length":
        raise RuntimeError(f"a generation ended early: {finish_reason}")


READERS: dict[str, Callable[[pyggml.LLM, list[list[int]], dict[str, Any]], None]] = {
    BATCH: read_batch,
    THREADS: read_in_threads,
    TASKS: read_in_tasks,
}


# --- measuring -------------------------------------------------------------------------------------------------------


def n_tokens_of(n_sequences: int) -> int:
    """Tokens of each request, with its prompt at most a multiple of 256, as many as a stream of the KV cache has."""
    return max(256, 2048 // n_sequences) - N_PROMPT


def steady(llm: pyggml.LLM, read: Callable[[], None], n_tokens: int) -> Host:
    """Measure while all requests decode, from an eighth to seven eighths of their tokens."""
    before = llm.stats().n_generated_tokens
    failures: list[BaseException] = []

    def run() -> None:
        try:
            read()
        except BaseException as error:
            failures.append(error)

    def snapshot_at(n: float) -> Snapshot:
        while llm.stats().n_generated_tokens - before < n and reader.is_alive():
            time.sleep(0.0005)
        return Snapshot.take(llm)

    reader = threading.Thread(target=run)
    reader.start()
    first, last = snapshot_at(n_tokens / 8), snapshot_at(7 * n_tokens / 8)
    reader.join()
    if failures:
        raise failures[0]
    return between(first, last)


def measured(n_sequences: int, ways: Sequence[str], rounds: int) -> Iterator[tuple[str, str, Host]]:
    """Medians of each way and reader with so many sequences at once."""
    n_tokens = n_tokens_of(n_sequences)
    options: dict[str, Any] = {
        "device": null_device(),
        "n_parallel": n_sequences,
        "n_ctx": n_sequences * (N_PROMPT + n_tokens),
        "n_batch": 2048,
        "backend_sampling": ways[0] in ON_DEVICE,
        "kv_unified": True if ways == [UNIFIED] else None,
    }
    with pyggml.load(model_file(shape_of(MODEL), "f16"), **options) as llm:
        for way in ways:
            readers = READERS if way == DEVICE else {BATCH: read_batch}  # readers cost the same whoever samples
            for reader, read in readers.items():
                hosts = []
                for n in range(rounds + 1):
                    prompts = random_prompts(llm.model.vocab, n_sequences, N_PROMPT, random.Random(n))
                    params = {**WAYS[way], "max_tokens": n_tokens}
                    host = steady(llm, partial(read, llm, prompts, params), n_sequences * n_tokens)
                    if n:  # round 0 warms up
                        hosts.append(host)
                yield way, reader, median(hosts)
        if ways[0] in ON_DEVICE and llm.stats().n_sampled_on_device == 0:
            raise RuntimeError("nothing was sampled on the device")


def median(hosts: Sequence[Host]) -> Host:
    return Host(*(statistics.median(getattr(host, each.name) for host in hosts) for each in fields(Host)))


def report(n_sequences: int, rounds: int) -> dict[tuple[str, str], Host]:
    found = {}
    for ways in ([DEVICE], [UNIFIED], [TOP_K], [HOST, TOP_K_HOST]):
        for way, reader, host in measured(n_sequences, ways, rounds):
            found[way, reader] = host
            numbers = " ".join(f"{getattr(host, each.name):12.1f}" for each in fields(Host))
            print(f"  {n_sequences:9}  {way:17}  {reader:14} {numbers}", flush=True)
    return found


def claims(n: int, found: dict[tuple[str, str], Host]) -> list[harness.Claim]:
    greedy, top_k = found[DEVICE, BATCH], found[TOP_K, BATCH]
    more = (top_k.ours - greedy.ours) / n
    more_on_host = (found[TOP_K_HOST, BATCH].ours - found[HOST, BATCH].ours) / n
    return [
        harness.at_most(f"{n} greedy: ours per step", greedy.ours, PER_STEP + PER_SEQUENCE * n, " us"),
        harness.at_most(f"{n} with top_k 40: more per step and sequence", more, MORE_WITH_TOP_K, " us"),
        harness.at_most(f"{n} with top_k 40, on the host: the same", more_on_host, MORE_WITH_TOP_K, " us"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--sequences", type=int, nargs="+", default=SEQUENCES, help="default 1 8 32 128 256")
    chosen = parser.parse_args()
    print(f"{harness.n_cpus()} CPUs, load average {os.getloadavg()[0]:.2f} before the start")
    print("microseconds per step; readers: per token")
    print(f"  {'sequences':9}  {'chosen':17}  {'read by':14} {' '.join(f'{each.name:>12}' for each in fields(Host))}")
    return harness.verdict([claim for n in chosen.sequences for claim in claims(n, report(n, chosen.rounds))])


if __name__ == "__main__":
    sys.exit(main())

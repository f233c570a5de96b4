"""One stream: pyggml's decode and upstream's llama-bench tg128, and streaming compared with waiting for the whole.

llama-bench runs with each number of threads, and the best counts; pyggml chooses its number itself. The last line shows
how much of its speed a Python thread of the same process keeps meanwhile; no claim depends on it.

    python benchmarks/single_stream.py [--rounds 5] [--model smollm2-135m tinyllama-1.1b qwen3-0.6b]
"""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import llama_cpp_programs
from synthetic_models import SHAPES, model_file

import pyggml
from pyggml import SamplingParams
from pyggml.cli.bench.measure import Case, seconds_of

CASE = Case("generate", 128)  # like tg128: 128 forward passes, from an empty context
REQUEST = SamplingParams(max_tokens=CASE.n_tokens, ignore_eos=True)


def decode(llm: pyggml.LLM, seed: int) -> float:
    """Tokens per second as "pyggml bench" measures them, after a warm-up like llama-bench's."""
    llm.generate([1], REQUEST, max_tokens=16)
    return CASE.speed(seconds_of(llm, CASE, random.Random(seed)))


def whole(llm: pyggml.LLM) -> float:
    """Tokens per second as the caller of generate() sees them: from the call to its return."""
    start = time.perf_counter()
    n = len(llm.generate([1], REQUEST).token_ids)
    return n / (time.perf_counter() - start)


def streamed(llm: pyggml.LLM) -> float:
    """Tokens per second as the reader of stream() sees them: from the call to the last chunk."""
    start = time.perf_counter()
    n = sum(len(chunk.token_ids) for chunk in llm.stream([1], REQUEST))
    return n / (time.perf_counter() - start)


def llama_bench(model: Path, n_threads: int) -> Callable[[int], float]:
    return lambda _round: llama_cpp_programs.decode_speed(model, CASE.n_tokens, n_threads)


def python_speed_during(llm: pyggml.LLM, seconds: float) -> float:
    """The share of its speed that a Python thread keeps while the model generates."""

    def turns() -> int:
        n, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            n += 1
        return n

    def generate() -> None:
        while not done.is_set():
            llm.generate([1], max_tokens=64, ignore_eos=True)

    done, worker = threading.Event(), threading.Thread(target=generate)
    alone = turns()
    worker.start()
    try:
        return turns() / alone
    finally:
        done.set()
        worker.join()


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure all sides on one model."""
    model = model_file(name)
    threads = {f"llama-bench -t {n}": n for n in range(1, harness.n_cpus() + 1)}
    print(f"{name}: {CASE.n_tokens} tokens of one stream")
    # One stream, and nothing kept of earlier ones: attention would pass over that, too.
    with pyggml.load(model, n_ctx=512, n_parallel=1, speculative="off") as llm:
        sides: dict[str, Callable[[int], float]] = {"pyggml": lambda seed: decode(llm, seed)}
        sides |= {side: llama_bench(model, n) for side, n in threads.items()}
        figures = harness.interleaved(sides, rounds, "tokens/s")
        # Separate from llama-bench: whatever runs first after another process has ended is slower.
        readers = {"whole": lambda _round: whole(llm), "streamed": lambda _round: streamed(llm)}
        figures |= harness.interleaved(readers, rounds, "tokens/s")
        stats = llm.stats()
    harness.table(figures, "tokens/s")
    print(f"  pyggml chose {stats.n_threads} threads to decode with")
    theirs = harness.best(figures, list(threads))
    return [
        harness.at_least(f"{name}: decode / {theirs}", harness.ratio(figures, "pyggml", theirs), 0.98, "x"),
        harness.at_least(f"{name}: streamed / whole", harness.ratio(figures, "streamed", "whole"), 0.97, "x"),
    ]


def main() -> int:
    chosen = harness.options(__doc__, rounds=5, models=list(SHAPES))
    claims = [claim for name in chosen.model for claim in compare(name, chosen.rounds)]
    status = harness.verdict(claims)
    with pyggml.load(model_file(chosen.model[0]), n_ctx=512, n_threads=1, speculative="off") as llm:
        share = statistics.median(python_speed_during(llm, 2.0) for _ in range(3))
    print(f"a Python thread keeps {share:.0%} of its speed during a generation on one compute thread")
    return status


if __name__ == "__main__":
    sys.exit(main())

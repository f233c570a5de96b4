"""A long prompt during a running stream: the stream's longest gap between two tokens.

A gap is measured where it hurts, in the thread that reads the stream. Each round also times one full step of the
configured batch: an idle engine prefills a prompt of exactly that many tokens.

    python benchmarks/internal/prefill_stall.py [--rounds 5] [--model smollm2-135m tinyllama-1.1b]
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_BATCH = 512
N_LONG = 1500
N_CTX = 4096


def longest_gap(llm: pyggml.LLM, prompt: list[int]) -> float:
    """The longest pause of a stream while a prompt is prefilled, in seconds."""
    times: list[float] = []
    is_running, is_done = threading.Event(), threading.Event()

    def read() -> None:
        with llm.stream([1], max_tokens=N_CTX // 2, ignore_eos=True) as stream:
            for n, _chunk in enumerate(stream):
                times.append(time.perf_counter())
                if n == 8:
                    is_running.set()
                if is_done.is_set():
                    return

    reader = threading.Thread(target=read)
    reader.start()
    is_running.wait()
    start = time.perf_counter()
    timings = llm.generate(prompt, max_tokens=1).timings
    end = time.perf_counter()
    time.sleep(0.2)
    is_done.set()
    reader.join()
    gaps = [b - a for a, b in itertools.pairwise(times) if b > start and a < end]
    assert len(gaps) > 1, "the stream had to wait for the whole prompt, or ended before it"
    print(f"  the prompt: {timings.queue_s:.3f} s in the queue, {timings.prefill_s:.3f} s of prefill; ", end="")
    print(f"the stream got {len(gaps) - 1} tokens meanwhile")
    return max(gaps)


def full_step(llm: pyggml.LLM, prompt: list[int]) -> float:
    """Seconds of one step that fills the batch with one prompt."""
    return llm.generate(prompt, max_tokens=1).timings.prefill_s


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure gap and step on one model."""
    print(f"{name}: {N_LONG} tokens of prompt during a running stream, batches of {N_BATCH}")
    with pyggml.load(model_file(name), n_ctx=N_CTX, n_parallel=4, n_batch=N_BATCH, n_ubatch=N_BATCH) as llm:
        vocab = llm.model.vocab

        def gap(n: int) -> float:
            return 1e3 * longest_gap(llm, *random_prompts(vocab, 1, N_LONG, random.Random(100 + n)))

        def step(n: int) -> float:
            return 1e3 * full_step(llm, *random_prompts(vocab, 1, N_BATCH, random.Random(200 + n)))

        figures = harness.interleaved({"longest gap": gap, "full step": step}, rounds, "ms")
    harness.table(figures, "ms")
    worst = max(harness.ratios(figures, "longest gap", "full step"))
    return [harness.at_most(f"{name}: longest gap, of one full step, worst", worst, 1.5, "x")]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=5, models=["smollm2-135m", "tinyllama-1.1b"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

"""The engine's own choice of threads against each fixed number, on an idle machine: prompts and generating.

python benchmarks/internal/thread_choice.py [--rounds 5] [--model smollm2-135m tinyllama-1.1b]
"""

from __future__ import annotations

import contextlib
import random
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import Case, seconds_of

CASES = (Case("prompt", 512), Case("generate", 64))
ADAPTIVE = "adaptive"


def speed(llm: pyggml.LLM, case: Case, seed: int) -> float:
    """Tokens per second."""
    return case.speed(seconds_of(llm, case, random.Random(seed)))


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure prompts and generating with all thread counts on one model."""
    counts = {ADAPTIVE: None} | {f"{n} threads": n for n in range(1, harness.n_cpus() + 1)}
    fixed = [count for count in counts if count != ADAPTIVE]
    claims = []
    with contextlib.ExitStack() as stack:
        # All are loaded at once, so that they can take turns: the file is mapped once, and an idle engine uses no CPU.
        llms = {
            count: stack.enter_context(pyggml.load(model_file(name), n_ctx=1024, n_threads=n_threads))
            for count, n_threads in counts.items()
        }
        for case in CASES:
            print(f"{name}: {case.name}")
            sides = {count: partial(speed, llm, case) for count, llm in llms.items()}
            figures = harness.interleaved(sides, rounds, "tokens/s")
            harness.table(figures, "tokens/s")
            best = harness.best(figures, fixed)
            share = harness.ratio(figures, ADAPTIVE, best)
            claims.append(harness.at_least(f"{name}: {case.name}, adaptive relative to {best}", share, 0.97, "x"))
        stats = llms[ADAPTIVE].stats()
        print(f"  chosen: {stats.n_threads} threads to decode with, {stats.n_threads_batch} to prefill with")
    return claims


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=5, models=["smollm2-135m", "tinyllama-1.1b"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

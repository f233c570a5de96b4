"""Cost of the prefix cache's tiers where nothing is reused: snapshots and checkpoints against neither.

Prompts that never come again: one of 512 tokens, which evicts an earlier one, and an answer of 128 tokens. Three models
in one process, with one thread, take turns: with the default snapshots, without any, and once more without, which shows
what the method resolves. The figure is the processor time of the process, in which neighbours on the machine show
little, as the median of the ratios within each round; its interval has 95 of 100 medians of resampled rounds.

    python benchmarks/internal/prefix_cache_cost.py [--rounds 40] [--model smollm2-135m]
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

OPTIONS: dict[str, Any] = {"n_ctx": 2048, "n_parallel": 4, "n_threads": 1, "speculative": "off"}
SIDES: dict[str, dict[str, Any]] = {
    "snapshots": {},
    "without": {"prefix_cache_bytes": 0},
    "without again": {"prefix_cache_bytes": 0},
}
WORK = {"prefill of 512 tokens": (512, 1), "decoding of 128 tokens": (16, 128)}
N_RESAMPLED = 2000


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure all on one model."""
    claims = []
    with ExitStack() as stack:
        llms = {
            side: stack.enter_context(pyggml.load(model_file(name), **OPTIONS, **options))
            for side, options in SIDES.items()
        }
        for work, (n_prompt, n_tokens) in WORK.items():
            print(f"{name}: {work}")
            sides = {side: cpu_seconds(llm, n_prompt, n_tokens) for side, llm in llms.items()}
            figures = harness.interleaved(sides, rounds, "s of processor time")
            for side in ("snapshots", "without again"):
                ratios = harness.ratios(figures, side, "without")
                low, high = interval(ratios)
                print(f"  {side} / without: {statistics.median(ratios):.4f} ({low:.4f} to {high:.4f})")
            claims.append(harness.at_most(f"{name}: {work}", harness.ratio(figures, "snapshots", "without"), 1.01, "x"))
        stats = llms["snapshots"].stats()
    print(f"  {stats.n_snapshots} snapshots of {stats.snapshot_bytes / 1e6:.0f} MB, {stats.n_snapshot_hits} hits")
    assert stats.n_snapshots > 0
    return claims


def cpu_seconds(llm: pyggml.LLM, n_prompt: int, n_tokens: int) -> Callable[[int], float]:
    def run(n: int) -> float:
        (prompt,) = random_prompts(llm.model.vocab, 1, n_prompt, random.Random(f"{n} {n_prompt}"))
        start = time.process_time()
        done = llm.generate(prompt, max_tokens=n_tokens, ignore_eos=True)
        seconds = time.process_time() - start
        assert done.cached_tokens <= 1, done.cached_tokens
        return seconds

    return run


def interval(ratios: list[float]) -> tuple[float, float]:
    """Range of 95 of 100 medians of resampled rounds."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(N_RESAMPLED))
    return medians[N_RESAMPLED // 40], medians[-N_RESAMPLED // 40]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=40, models=["smollm2-135m"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

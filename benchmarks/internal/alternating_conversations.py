"""More conversations than the KV cache holds, with snapshots of evicted cells and without.

32 conversations of 2,000 tokens alternate in a context of 16,384 cells: every turn adds a question of 20 tokens and an
answer of 8. Without snapshots every turn computes the whole conversation. And prompts of which none comes again, which
shows what the copies cost.

    python benchmarks/internal/alternating_conversations.py [--rounds 1] [--model smollm2-135m]
"""

from __future__ import annotations

import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_CONVERSATIONS = 32
N_FIRST = 2000
N_QUESTION = 20
N_ANSWER = 8
N_TURNS = 4
N_CTX = 16384
SNAPSHOT_BYTES = 2 << 30  # all of them are 1.5 GB
N_NEW = 24  # prompts that do not come again, for each side and round


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure both kinds of work on one model."""
    options: dict[str, Any] = {"n_ctx": N_CTX, "n_parallel": 4, "n_threads": harness.n_cpus()}
    with (
        pyggml.load(model_file(name), prefix_cache_bytes=SNAPSHOT_BYTES, **options) as snapshots,
        pyggml.load(model_file(name), prefix_cache_bytes=0, **options) as without,
    ):
        sides = {"snapshots": snapshots, "without": without}
        print(f"{name}: {N_NEW} prompts of {N_FIRST} tokens that do not come again")
        new = harness.interleaved({side: partial(new_prompts, llm) for side, llm in sides.items()}, 2 * rounds, "s")
        print(f"{name}: {N_CONVERSATIONS} conversations of {N_FIRST} tokens, {N_TURNS} turns each")
        total: harness.Figures = {side: [] for side in sides}
        cached: harness.Figures = {side: [] for side in sides}
        for n in range(rounds):
            for side, llm in sides.items():
                seconds, share = alternate(llm, n)
                total[side].append(seconds)
                cached[side].append(share)
        stats = snapshots.stats()
    harness.table(total, "s in total")
    harness.table(cached, "share of later prompts' tokens from the prefix cache")
    print(f"  {stats.n_snapshots} snapshots of {stats.snapshot_bytes / 1e6:.0f} MB, {stats.n_snapshot_hits} hits")
    return [
        harness.at_most(f"{name}: total time, relative", harness.ratio(total, "snapshots", "without"), 0.5, "x"),
        harness.at_most(
            f"{name}: time of new prompts, relative", harness.ratio(new, "snapshots", "without"), 1.01, "x"
        ),
    ]


def alternate(llm: pyggml.LLM, seed: int) -> tuple[float, float]:
    """Seconds of all turns, and the share of cached tokens from the second turn on."""
    llm.reset()
    rng = random.Random(seed)
    chats = random_prompts(llm.model.vocab, N_CONVERSATIONS, N_FIRST, rng)
    n_cached = n_tokens = 0
    start = time.perf_counter()
    for turn in range(N_TURNS):
        for i, chat in enumerate(chats):
            done = llm.generate(chat, max_tokens=N_ANSWER, ignore_eos=True)
            if turn > 0:
                n_cached += done.cached_tokens
                n_tokens += done.prompt_tokens
            (question,) = random_prompts(llm.model.vocab, 1, N_QUESTION, rng)
            chats[i] = [*chat, *done.token_ids, *question]
    return time.perf_counter() - start, n_cached / n_tokens


def new_prompts(llm: pyggml.LLM, seed: int) -> float:
    """Seconds of prompts that have nothing in common."""
    prompts = random_prompts(llm.model.vocab, N_NEW, N_FIRST, random.Random(1000 + seed))
    start = time.perf_counter()
    for prompt in prompts:
        llm.generate(prompt, max_tokens=N_ANSWER, ignore_eos=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=1, models=["smollm2-135m"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

"""Cancelling during a long prefill: how soon the sequence is free.

Each round cancels a prompt of 4,000 tokens at another point of its prefill; the clock runs until the engine reports
nothing running. For comparison: the time of the whole prefill, and of one batch of it.

    python benchmarks/internal/cancel_latency.py [--rounds 20] [--model smollm2-135m]
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_PROMPT = 4000
N_BATCH = 512
_POLL_S = 0.0005


def time_to_return(llm: pyggml.LLM, prompt: list[int], wait_s: float) -> float:
    """Seconds from the cancel until no request is running."""
    stream = llm.stream(prompt, max_tokens=8)
    time.sleep(wait_s)
    assert llm.stats().n_running == 1, "the prefill is no longer running"
    start = time.perf_counter()
    stream.cancel()
    while llm.stats().n_running:
        time.sleep(_POLL_S)
    seconds = time.perf_counter() - start
    done = stream.finish()
    assert done.finish_reason == "cancelled"
    assert not done.token_ids, "it was cancelled after the prefill"
    return seconds


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure cancels and, once, the whole prefill on one model."""
    print(f"{name}: {N_PROMPT} tokens of prompt, batches of {N_BATCH}")
    rng = random.Random(0)
    figures: dict[str, list[float]] = {"sequence free": [], "whole prefill": [], "one batch of it": []}
    with pyggml.load(model_file(name), n_ctx=N_PROMPT + 96, n_batch=N_BATCH, n_ubatch=N_BATCH) as llm:
        prompts = random_prompts(llm.model.vocab, rounds + 1, N_PROMPT, rng)
        prefill_s = llm.generate(prompts.pop(), max_tokens=1).timings.prefill_s
        figures["whole prefill"].append(1e3 * prefill_s)
        figures["one batch of it"].append(1e3 * prefill_s * N_BATCH / N_PROMPT)
        for prompt in prompts:
            figures["sequence free"].append(1e3 * time_to_return(llm, prompt, prefill_s * rng.uniform(0.05, 0.6)))
    harness.table(figures, "ms")
    return [harness.at_most(f"{name}: sequence free after a cancel, worst", max(figures["sequence free"]), 50, " ms")]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=20, models=["smollm2-135m"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

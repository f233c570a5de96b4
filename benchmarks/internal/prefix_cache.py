"""A shared prefix: how soon the second of two requests with the same first 1,500 tokens answers.

Each round takes a new prefix, so that the first request finds nothing cached. Three requests follow each other: the
first, a second after it, and one more while a stream with the same prefix is still running (no claim depends on it).

    python benchmarks/internal/prefix_cache.py [--rounds 3] [--model smollm2-135m tinyllama-1.1b qwen3-0.6b]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import SHAPES, model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_PREFIX = 1500
N_TAIL = 16  # what each request adds, such as a question
N_TOKENS = 8


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure first and second requests on one model."""
    requests = ("first", "second", "during another")
    ttft: dict[str, list[float]] = {request: [] for request in requests}
    cached: dict[str, list[float]] = {request: [] for request in requests}

    def ask(request: str, prompt: list[int]) -> None:
        done = llm.generate(prompt, max_tokens=N_TOKENS, ignore_eos=True)
        ttft[request].append(1e3 * done.timings.ttft_s)
        cached[request].append(done.cached_tokens)

    with pyggml.load(model_file(name), n_ctx=4096, n_parallel=4) as llm:
        vocab, rng = llm.model.vocab, random.Random(0)
        llm.generate(random_prompts(vocab, 1, 600, rng)[0], max_tokens=N_TOKENS, ignore_eos=True)
        for _ in range(rounds):
            (prefix,) = random_prompts(vocab, 1, N_PREFIX, rng)
            tails = random_prompts(vocab, 4, N_TAIL, rng)
            ask("first", prefix + tails[0])
            ask("second", prefix + tails[1])
            with llm.stream(prefix + tails[2], max_tokens=256, ignore_eos=True) as running:
                next(running)
                ask("during another", prefix + tails[3])
    print(f"{name}: {N_PREFIX} shared tokens and {N_TAIL} of its own in each request")
    harness.table(ttft, "ms to the first token")
    harness.table(cached, "cached_tokens")
    share = harness.ratio(ttft, "second", "first")
    return [
        harness.at_most(f"{name}: second's time to first token, relative to the first's", share, 0.06, "x"),
        harness.at_least(f"{name}: second's cached_tokens, least", min(cached["second"]), N_PREFIX),
    ]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=3, models=list(SHAPES))
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

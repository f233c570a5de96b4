"""Cost of logits processors: one stream and eight, with a processor that bans a token, with an idle one, and without.

The engine's thread waits for the processors of all requests in every step.

    python benchmarks/internal/logits_processors.py [--rounds 4] [--model smollm2-135m]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
import numpy as np
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_TOKENS = 96
MOST_COST = {1: 0.92, 8: 0.92}  # least share of the speed without a processor, by number of streams


def ban(_token_ids: Any, logits: Any) -> None:
    logits[1000] = -np.inf


def nothing(_token_ids: Any, _logits: Any) -> None:
    pass


def compare(name: str, rounds: int, n_streams: int) -> harness.Claim:
    """Measure streams at once, each with its own request."""
    with pyggml.load(model_file(name), n_ctx=2048, n_parallel=n_streams, n_threads=harness.n_cpus()) as llm:

        def side(**options: Any) -> Callable[[int], float]:
            def run(n: int) -> float:
                prompts = random_prompts(llm.model.vocab, n_streams, 16, random.Random(n))

                def generate(index: int) -> None:
                    llm.generate(prompts[index], max_tokens=N_TOKENS, ignore_eos=True, **options)

                return n_streams * N_TOKENS / harness.together(generate, n_streams)

            return run

        print(f"{name}, {n_streams} streams of {N_TOKENS} tokens")
        sides = {"without": side(), "nothing": side(logits_processor=nothing), "ban": side(logits_processor=ban)}
        figures = harness.interleaved(sides, rounds, "tok/s")
    harness.table(figures, "tok/s")
    share = harness.ratio(figures, "ban", "without")
    return harness.at_least(f"{name}, {n_streams} streams: ban / without", share, MOST_COST[n_streams], "x")


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=4, models=["smollm2-135m"])
    sys.exit(harness.verdict([compare(each, chosen.rounds, n) for each in chosen.model for n in MOST_COST]))

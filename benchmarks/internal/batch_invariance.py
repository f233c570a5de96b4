"""Batch invariance: greedy tokens of concurrent requests, compared with those of each prompt alone.

Upstream adds up numbers in another order together, again after a preemption, or from a reused prefix; where two tokens
are almost equally likely, the last bit decides. Our kernels do not (docs/explanation/kernels.md). Many requests run in
a context too small for them. Every token they generate is compared with the likeliest one after the same text, computed
alone and from its beginning. Exit status 1: some differ, which PYGGML_KERNELS=off shows.

    python benchmarks/internal/batch_invariance.py [--rounds 3]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
import numpy as np

import pyggml

N_EACH = 30
MAX_TOKENS = 60
OPENINGS = ("Once upon a time", "The little dog", "One day a cat", "There was a bird", "Tim and Anna")


def prompts(llm: pyggml.LLM, seed: int) -> list[list[int]]:
    """Openings that the model knows, and as many prompts of random tokens, where it is sure of nothing."""
    rng = random.Random(seed)
    n_vocab = llm.model.vocab.n_tokens
    known = [llm.tokenize(rng.choice(OPENINGS) + rng.choice((" who", " and", " was", ""))) for _ in range(N_EACH)]
    noise = [[rng.randrange(5, n_vocab) for _ in range(rng.randrange(5, 60))] for _ in range(N_EACH)]
    return known + noise


def main() -> int:
    """Counts, and prints."""
    arguments = harness.options(__doc__, rounds=3, models=())
    n_tokens = n_flipped = n_preemptions = 0
    widest = scale = 0.0
    for seed in range(arguments.rounds):
        with (
            pyggml.load(n_ctx=256, n_parallel=8) as crowd,
            pyggml.load(n_ctx=256, n_parallel=1, prefix_cache=False) as alone,
        ):
            asked = prompts(crowd, seed)
            done = crowd.generate_batch(asked, max_tokens=MAX_TOKENS, ignore_eos=True)
            n_preemptions += crowd.stats().n_preemptions
            for prompt, completion in zip(asked, done, strict=True):
                text = [*prompt, *completion.token_ids]
                rows = alone.logits(text[:-1])[len(prompt) - 1 :]
                rows[:, list(alone.stop_tokens)] = -np.inf  # ignored, as in the requests
                gaps = rows.max(axis=1) - rows[np.arange(len(rows)), completion.token_ids]
                n_tokens += len(gaps)
                n_flipped += int((gaps > 0).sum())
                widest = max(widest, float(gaps.max()))
                scale = max(scale, float(rows.max()))
    print(f"{n_flipped} of {n_tokens} tokens are not the likeliest when computed alone ({n_flipped / n_tokens:.2%});")
    print(f"the widest gap between the two is {widest:.3f} in logits that reach {scale:.1f};")
    print(f"{n_preemptions} preemptions on the way")
    return 1 if n_flipped else 0


if __name__ == "__main__":
    sys.exit(main())

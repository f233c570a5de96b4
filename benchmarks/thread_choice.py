"""The engine's own choice of threads beside each fixed number, undisturbed: prefill and decode.

python benchmarks/thread_choice.py [--rounds 5] [--model smollm2-135m tinyllama-1.1b]
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial

import measure
from shapes import model_file

import pyggml

N_PROMPT = 512
N_STEPS = 64
ADAPTIVE = "adaptive"


def prefill_speed(llm: pyggml.LLM, seed: int) -> float:
    """Prompt tokens per second."""
    prompt = measure.prompts(1, N_PROMPT, llm.model.vocab.n_tokens, seed)[0]
    timings = llm.generate(prompt, max_tokens=1).timings
    assert timings.prompt_tokens == N_PROMPT, "part of the prompt was in the cache"
    return N_PROMPT / timings.prefill_s


def decode_speed(llm: pyggml.LLM) -> float:
    """Decode steps per second of one stream."""
    return llm.generate([1], max_tokens=N_STEPS + 1, ignore_eos=True).timings.tokens_per_s


def compare(name: str, rounds: int) -> list[measure.Claim]:
    """Measures prefill and decode of all counts on one model."""
    counts = {ADAPTIVE: None} | {f"{n} threads": n for n in range(1, measure.n_cpus() + 1)}
    fixed = [count for count in counts if count != ADAPTIVE]
    claims = []
    with contextlib.ExitStack() as stack:
        # All at once, so that they can take turns: the file is mapped once, and an idle engine burns nothing.
        llms = {
            count: stack.enter_context(pyggml.load(model_file(name), n_ctx=1024, n_threads=n_threads))
            for count, n_threads in counts.items()
        }
        measures: dict[str, Callable[[pyggml.LLM, int], float]] = {
            "prefill": prefill_speed,
            "decode": lambda llm, _round: decode_speed(llm),
        }
        for what, speed in measures.items():
            print(f"{name}: {what}")
            sides = {count: partial(speed, llm) for count, llm in llms.items()}
            figures = measure.interleaved(sides, rounds, "tokens/s")
            measure.table(figures, "tokens/s")
            best = measure.best(figures, fixed)
            share = measure.ratio(figures, ADAPTIVE, best)
            claims.append(measure.at_least(f"{name}: {what}, adaptive of {best}", share, 0.97, "x"))
        stats = llms[ADAPTIVE].stats()
        print(f"  chosen: {stats.n_threads} threads to decode with, {stats.n_threads_batch} to prefill with")
    return claims


if __name__ == "__main__":
    chosen = measure.options(__doc__, rounds=5, models=["smollm2-135m", "tinyllama-1.1b"])
    sys.exit(measure.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

"""Scores of continuations, against one request for each: questions with four answers, computed together.

Both sides return the log probability of each token of the answers.

    python benchmarks/internal/scoring.py [--rounds 3] [--model smollm2-135m]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_QUESTIONS, N_ANSWERS = 8, 4
N_PROMPT, N_ANSWER = 160, 12


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure questions per second."""
    with pyggml.load(model_file(name), n_ctx=2048, n_parallel=8, n_threads=harness.n_cpus()) as llm:
        vocab = llm.model.vocab

        def questions(n: int) -> list[tuple[list[int], list[list[int]]]]:
            draw = random.Random(n)
            prompts = random_prompts(vocab, N_QUESTIONS, N_PROMPT, draw)
            return [(prompt, random_prompts(vocab, N_ANSWERS, N_ANSWER, draw)) for prompt in prompts]

        def per_second(work: Callable[[list[tuple[list[int], list[list[int]]]]], Any]) -> Callable[[int], float]:
            def run(n: int) -> float:
                asked = questions(n)
                start = time.perf_counter()
                work(asked)
                return N_QUESTIONS / (time.perf_counter() - start)

            return run

        def by_score(asked: Any) -> None:
            for prompt, answers in asked:
                llm.score(prompt, answers)

        def by_request(asked: Any) -> None:
            texts = [[*prompt, *answer] for prompt, answers in asked for answer in answers]
            llm.generate_batch(texts, max_tokens=0, prompt_logprobs=1, progress=False)

        with pyggml.Scorer(llm.model, 2048, n_threads=harness.n_cpus()) as scorer:

            def by_scorer(asked: Any) -> None:
                pairs = [([*prompt, *answer], len(answer)) for prompt, answers in asked for answer in answers]
                list(scorer.scores(pairs))

            sides = {"one request each": by_request, "llm.score": by_score, "Scorer, all at once": by_scorer}
            print(f"{name}: {N_QUESTIONS} questions of {N_PROMPT} tokens, {N_ANSWERS} answers of {N_ANSWER} each")
            speeds = {what: per_second(work) for what, work in sides.items()}
            figures = harness.interleaved(speeds, rounds, "questions/s")
    harness.table(figures, "questions/s")
    faster = harness.ratio(figures, "llm.score", "one request each")
    return [harness.at_least(f"{name}: llm.score / one request for each answer", faster, 2.0, "x")]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=3, models=["smollm2-135m"])
    sys.exit(harness.verdict([claim for each in chosen.model for claim in compare(each, chosen.rounds)]))

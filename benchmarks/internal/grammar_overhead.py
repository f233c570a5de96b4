"""Overhead of a grammar: constrained and free streams, one and eight, on the same model with random weights.

Such a model hardly ever prefers what a grammar allows, so nearly every token takes a search. A grammar is new to the
engine only in round 0, as in an application that keeps using it. ``upstream`` is the same grammar through llama.cpp's
own sampler, via ``pyggml.Sampler``, token by token from Python.

    python benchmarks/internal/grammar_overhead.py [--rounds 4] [--model smollm2-135m]
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
from pyggml.schema.grammar import grammar_of

N_TOKENS = 128
N_STREAMS = 8

_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 20},
        "notes": {"type": "string", "minLength": 2000},
    },
    "required": ["name", "age", "tags", "notes"],
}
GRAMMARS: dict[str, dict[str, Any]] = {
    "text": {"grammar": r'root ::= "\"" [^"\\]* "\"" " end"'},
    "any JSON": {"json_schema": {"type": "array", "minItems": 1000}},
    "a person": {"json_schema": _PERSON},
    "500 characters": {"json_schema": {"type": "string", "minLength": 400, "maxLength": 500}},
    "digits": {"grammar": 'root ::= [0-9]+ "."'},
}
STREAMED = ("any JSON", "a person")


def compare(name: str, rounds: int, temperature: float) -> list[harness.Claim]:
    """Measure all grammars on one model."""
    with pyggml.load(model_file(name), n_ctx=1024, n_parallel=1, n_threads=harness.n_cpus()) as llm:
        n_vocab = llm.model.vocab.n_tokens

        def side(**constraint: Any) -> Callable[[int], float]:
            def run(n: int) -> float:
                (prompt,) = random_prompts(llm.model.vocab, 1, 16, random.Random(n))
                done = llm.generate(prompt, temperature=temperature, seed=n, max_tokens=N_TOKENS, **constraint)
                return done.timings.tokens_per_s

            return run

        print(f"{name}, {n_vocab} tokens in the vocabulary, temperature {temperature:g}: {N_TOKENS} tokens")
        sides = {"free": side(), **{what: side(**constraint) for what, constraint in GRAMMARS.items()}}
        figures = harness.interleaved(sides, rounds, "tok/s")
    harness.table(figures, "tok/s")
    return [
        harness.at_least(
            f"{name}, temperature {temperature:g}: {what} / free", harness.ratio(figures, what, "free"), 0.75, "x"
        )
        for what in GRAMMARS
    ]


def compare_streams(name: str, rounds: int) -> list[harness.Claim]:
    """Measure eight streams at once that follow one schema, at temperature 1: all share the engine's thread."""
    with pyggml.load(model_file(name), n_ctx=512, n_parallel=N_STREAMS, n_threads=harness.n_cpus()) as llm:

        def side(**constraint: Any) -> Callable[[int], float]:
            def run(n: int) -> float:
                prompts = random_prompts(llm.model.vocab, N_STREAMS, 16, random.Random(n))
                n_tokens = [0] * N_STREAMS

                def generate(index: int) -> None:
                    done = llm.generate(prompts[index], temperature=1.0, seed=n, max_tokens=N_TOKENS, **constraint)
                    n_tokens[index] = len(done.token_ids)

                seconds = harness.together(generate, N_STREAMS)
                return sum(n_tokens) / seconds

            return run

        print(f"{name}, temperature 1, {N_STREAMS} streams of {N_TOKENS} tokens")
        sides = {"free": side(ignore_eos=True), **{what: side(**GRAMMARS[what]) for what in STREAMED}}
        figures = harness.interleaved(sides, rounds, "tok/s")
    harness.table(figures, "tok/s")
    return [
        harness.at_least(f"{name}, {N_STREAMS} streams: {what} / free", harness.ratio(figures, what, "free"), 0.97, "x")
        for what in STREAMED
    ]


def upstream_seconds(name: str) -> None:
    """Print the time that upstream's own sampler takes per token; no claim depends on it."""
    with pyggml.Model(model_file(name)) as model, pyggml.Context(model, n_ctx=256) as context:
        text = grammar_of(_PERSON)
        with pyggml.Sampler(model).grammar(text).greedy() as sampler:
            context.decode([1000])
            n, start = 20, time.perf_counter()
            for _ in range(n):
                sampler.sample(context)
            per_token_ms = 1e3 * (time.perf_counter() - start) / n
    print(f"{name}, a person: upstream's grammar sampler takes {per_token_ms:.3g} ms per token")


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=4, models=["smollm2-135m"])
    for model in chosen.model:
        upstream_seconds(model)
    claims = [claim for model in chosen.model for claim in compare_streams(model, chosen.rounds)]
    claims += [c for m in chosen.model for t in (0.0, 1.0) for c in compare(m, chosen.rounds, t)]
    sys.exit(harness.verdict(claims))

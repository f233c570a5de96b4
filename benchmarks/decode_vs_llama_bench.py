"""Greedy decode through pyggml's loop against upstream's own llama-bench, on the same file in the same run.

Informational; the goal is a ratio of at least 0.97. Makes a model of SmolLM2-135M's shape with random weights as
Q4_K_M, builds llama-bench from the pinned engine into a scratch folder when it is not there yet, and alternates the
two, so that a machine whose speed drifts disturbs both alike.

    python benchmarks/decode_vs_llama_bench.py [--rounds 7] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import threading
import time
from pathlib import Path

from shapes import smollm2_135m
from upstream import llama_bench

import pyggml

N_TOKENS = 128


def bench_upstream(program: Path, model: Path, threads: int) -> float:
    """Tokens per second of tg128, one repetition after upstream's own warm-up."""
    command = [
        program,
        "-m",
        model,
        "-t",
        str(threads),
        "-p",
        "0",
        "-n",
        str(N_TOKENS),
        "-r",
        "1",
        "-o",
        "json",
    ]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)[0]["avg_ts"])


def bench_ours(llm: pyggml.LLM) -> float:
    """Tokens per second of 128 decoded tokens after a one-token prompt, as tg128 measures."""
    completion = llm.generate([1], max_tokens=N_TOKENS + 1, ignore_eos=False, stop_token_ids=())
    assert len(completion.token_ids) == N_TOKENS + 1, "the random model met a stop token: choose another seed"
    return completion.timings.tokens_per_s


def count_beside(llm: pyggml.LLM, seconds: float) -> tuple[float, float]:
    """Loop turns per second of a plain Python thread: alone, and while the model generates."""

    def turns(until: float) -> int:
        n = 0
        while time.perf_counter() < until:
            n += 1
        return n

    alone = turns(time.perf_counter() + seconds) / seconds
    done = threading.Event()

    def generate() -> None:
        while not done.is_set():
            llm.generate([1], max_tokens=64)

    worker = threading.Thread(target=generate)
    worker.start()
    beside = turns(time.perf_counter() + seconds) / seconds
    done.set()
    worker.join()
    return alone, beside


def main() -> None:
    """Prints both sides, round by round, and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=pyggml.lib.pyg_cpu_count())
    options = parser.parse_args()

    model, program = smollm2_135m(), llama_bench()
    ratios = []
    with pyggml.load(model, n_ctx=512, n_threads=options.threads) as llm:
        bench_ours(llm)
        for n in range(options.rounds):
            upstream, ours = bench_upstream(program, model, options.threads), bench_ours(llm)
            ratios.append(ours / upstream)
            print(f"round {n + 1}: llama-bench {upstream:7.1f} t/s   pyggml {ours:7.1f} t/s   ratio {ratios[-1]:.3f}")
        print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), goal >= 0.97")

    with pyggml.load(model, n_ctx=512, n_threads=1) as llm:
        alone, beside = count_beside(llm, 3.0)
        print(f"a Python thread keeps {beside / alone:.0%} of its speed beside a generation on one compute thread")


if __name__ == "__main__":
    main()

"""A single text while eight callers embed in bulk, and a stream while one does.

    python benchmarks/internal/embedding_latency.py DIRECTORY [--rounds 3] [--threads 2]

DIRECTORY is an embedding model. Alone, a text waits for its own pass. With bulk callers, it also waits for the pass
that is being computed when it arrives, so its 95th percentile may be longer by one full pass at most. The stream is
the demonstration model's, alone and while one bulk caller embeds with the same model: about half of the CPUs is fair.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness

import pyggml
from pyggml.generation.embedding.encoder import BATCH_TOKENS

N_CALLERS = 8
N_SINGLE = 60  # single texts of a round
_QUERY = "where does the river turn to the mountains"
_BULK = ["the story of a quiet market under the winter light " * 3] * 64
_N_STREAM = 96  # tokens


@contextmanager
def bulk_callers(llm: pyggml.LLM, n: int) -> Iterator[None]:
    """Embed in so many threads, again and again."""
    must_end = threading.Event()

    def call() -> None:
        while not must_end.is_set():
            llm.embed(_BULK)

    threads = [threading.Thread(target=call) for _ in range(n)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        must_end.set()
        for thread in threads:
            thread.join()


def seconds_of(llm: pyggml.LLM, texts: list[str]) -> float:
    start = time.perf_counter()
    llm.embed(texts)
    return time.perf_counter() - start


def p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


def latency(llm: pyggml.LLM) -> float:
    """95th percentile of single texts that come now and then, in milliseconds."""
    took = []
    for n in range(N_SINGLE):
        time.sleep(0.002 * (n % 5))
        took.append(seconds_of(llm, [_QUERY]))
    return 1e3 * p95(took)


def full_pass(llm: pyggml.LLM) -> float:
    """95th percentile of passes that are full, in milliseconds."""
    text = " ".join(["river"] * (BATCH_TOKENS // 8 - 2))
    assert llm.embedding_request([text] * 8).n_tokens <= BATCH_TOKENS
    return 1e3 * p95([seconds_of(llm, [text] * 8) for _ in range(N_SINGLE // 3)])


def stream(llm: pyggml.LLM) -> float:
    """Tokens per second of one stream."""
    start = time.perf_counter()
    completion = llm.generate("The story", max_tokens=_N_STREAM, ignore_eos=True)
    return len(completion.token_ids) / (time.perf_counter() - start)


def measured_latencies(directory: Path, rounds: int, n_threads: int) -> harness.Figures:
    with pyggml.load(directory, n_threads=n_threads) as llm:

        def with_bulk(_n: int) -> float:
            with bulk_callers(llm, N_CALLERS):
                time.sleep(0.05)
                return latency(llm)

        sides = {
            "alone": lambda _n: latency(llm),
            "a full pass": lambda _n: full_pass(llm),
            "with 8 bulk callers": with_bulk,
        }
        return harness.interleaved(sides, rounds, "ms (p95)")


def measured_streams(rounds: int, n_threads: int) -> harness.Figures:
    with pyggml.load(n_threads=n_threads) as llm:

        def with_bulk(_n: int) -> float:
            with bulk_callers(llm, 1):
                return stream(llm)

        sides = {"alone": lambda _n: stream(llm), "with embeddings": with_bulk}
        return harness.interleaved(sides, rounds, "tokens/s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--threads", type=int, default=harness.n_cpus(), help="default: one per CPU")
    chosen = parser.parse_args()
    latencies = measured_latencies(chosen.directory, chosen.rounds, chosen.threads)
    harness.table(latencies, "ms (p95)")
    streams = measured_streams(chosen.rounds, chosen.threads)
    harness.table(streams, "tokens/s")
    more = zip(latencies["with 8 bulk callers"], latencies["alone"], latencies["a full pass"], strict=True)
    passes = statistics.median((longer - alone) / full for longer, alone, full in more)
    share = harness.ratio(streams, "with embeddings", "alone")
    return harness.verdict(
        [
            harness.at_most("a text with eight bulk callers: full passes more than alone", passes, 1),
            harness.at_least("a stream with embeddings: share of its speed alone", share, 0.4),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

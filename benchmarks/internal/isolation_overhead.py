"""Overhead of ``isolate=True``: the same model in this process and in a separate one, in the same run.

Wall time, and processor time of both processes together, which says more on a machine that others use, too:

- one stream and eight, waiting for the whole and reading the tokens as they come;
- the time to the first token, as the reader of a stream sees it;
- the time to load, and to load again after the process was killed.

    python benchmarks/internal/isolation_overhead.py [--rounds 5] [--model smollm2-135m]

"shipped" is the model that ships with pyggml.

Nothing here is a claim with a bound: the figures are in docs/explanation/process-isolation.md.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

import harness
from synthetic_models import model_file

import pyggml
from pyggml import SamplingParams

TOKENS = 128
REQUEST = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
N_STREAMS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


def engine_of(llm: pyggml.LLM) -> int | None:
    """The process of its engine, if it has one of its own."""
    return None if llm._isolated is None else llm._isolated.process().pid


def processor_s(pid: int | None) -> float:
    """Seconds of processor time that this process and that of an engine have taken."""
    own = time.process_time()
    if pid is None:
        return own
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own + (int(fields[11]) + int(fields[12])) / _TICKS


def whole(llm: pyggml.LLM, index: int) -> None:
    llm.generate([1 + index], REQUEST)


def streamed(llm: pyggml.LLM, index: int) -> None:
    for _ in llm.stream([1 + index], REQUEST):
        pass


def rate(llm: pyggml.LLM, n: int, ask: Callable[[pyggml.LLM, int], None]) -> tuple[float, float]:
    """Tokens per second of ``n`` streams together, and milliseconds of processor time for each token."""
    llm.reset()
    pid = engine_of(llm)
    before = processor_s(pid)
    seconds = harness.together(lambda index: ask(llm, index), n)
    return n * TOKENS / seconds, (processor_s(pid) - before) / (n * TOKENS) * 1e3


def first_token_ms(llm: pyggml.LLM) -> float:
    """Median of 20: from the call of stream() to its first chunk, for a prompt of one token."""
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        with llm.stream([1], REQUEST) as stream:
            next(stream)
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e3


def compare(name: str, rounds: int) -> None:
    """Print all figures for one model."""
    path = pyggml.SHIPPED_MODEL if name == "shipped" else model_file(name)
    options: dict[str, Any] = {"n_ctx": 4096, "n_parallel": N_STREAMS, "prefix_cache": False}
    print(f"\n{name}")
    with pyggml.load(path, **options) as here, pyggml.load(path, isolate=True, **options) as there:
        sides = {"in process": here, "isolated": there}
        for n in (1, N_STREAMS):
            for ask in (whole, streamed):
                measured: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
                for number, order in harness.turns(sides, rounds):
                    for side in order:
                        figures = rate(sides[side], n, ask)
                        if number:
                            measured[side].append(figures)
                show(f"{n} x {ask.__name__}", measured, ("tokens/s", "ms of processor time a token"))
        print(" time to the first token")
        latencies = {side: (lambda _round, llm=llm: first_token_ms(llm)) for side, llm in sides.items()}
        harness.table(harness.interleaved(latencies, rounds, "ms"), "ms")
    print(" load")
    harness.table(
        harness.interleaved({side: loading(path, isolate) for side, isolate in LOADS.items()}, rounds, "s"), "s"
    )
    print(" called again after a kill, until the first token")
    harness.table(harness.interleaved({"isolated": lambda _round: again_s(path)}, rounds, "s"), "s")


LOADS = {"in process": False, "isolated": True}


def loading(path: Path, isolate: bool) -> Callable[[int], float]:
    def load(_round: int) -> float:
        start = time.perf_counter()
        with pyggml.load(path, isolate=isolate):
            return time.perf_counter() - start

    return load


def again_s(path: Path) -> float:
    with pyggml.load(path, isolate=True) as llm:
        pid = engine_of(llm)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while not llm._engine.is_starting:
            time.sleep(0.001)
        start = time.perf_counter()
        llm.generate([1], max_tokens=1)
        return time.perf_counter() - start


def show(what: str, measured: dict[str, list[tuple[float, float]]], units: tuple[str, str]) -> None:
    print(f" {what}")
    medians = {
        side: [statistics.median(column) for column in zip(*rows, strict=True)] for side, rows in measured.items()
    }
    for side, values in medians.items():
        print(f"  {side:12}" + "   ".join(f"{value:9.3f} {unit}" for value, unit in zip(values, units, strict=True)))
    ratios = [b / a for a, b in zip(*medians.values(), strict=True)]
    print(f"  {'ratio':12}" + "   ".join(f"{ratio:9.3f} {unit}" for ratio, unit in zip(ratios, units, strict=True)))


def main() -> int:
    chosen = harness.options(__doc__, rounds=5, models=["smollm2-135m"])
    for name in chosen.model:
        compare(name, chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

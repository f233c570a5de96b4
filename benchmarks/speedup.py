"""Speed-up of pyggml's kernels over upstream's programs and ik_llama.cpp, on four shapes and two types.

    prompt      the tokens of one prompt of 512, against both llama-bench
    stream      decoding one stream, against both llama-bench
    streams     decoding eight and sixteen streams at once, against both llama-batched-bench
    requests    eight requests of 64 + 64 tokens that arrive together, against llama-server with eight slots and
                llama-cpp-python behind a lock (throughput.py)

    python benchmarks/speedup.py [--what prompt streams ...] [--model tinyllama-1.1b ...] [--ftype q4_k_m q8_0]
                                 [--rounds 3] [--threads 2] [--keep]

All sides get as many threads. ik_llama.cpp is measured where peers.py can build it. The bounds are the goals for the
instruction set at hand.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import llama_cpp_programs
import peers
import result_files
import throughput
from synthetic_models import SHAPES, model_file

import pyggml
from pyggml import lib
from pyggml.cli.bench.measure import Case, seconds_of

PROMPT = Case("prompt", 512)
STREAM = Case("generate", 64)
N_DEPTH = 64  # tokens of each stream before it is measured
STREAMS = tuple(Case("generate", 32, N_DEPTH, n) for n in (8, 16))
N_CTX = max(case.n_cells for case in STREAMS)

WHAT = ("prompt", "stream", "streams", "requests")
FTYPES = ("q4_k_m", "q8_0")

Side = Callable[[int], Mapping[str, float]]  # number of the round -> case -> tokens per second
Figures = dict[str, harness.Figures]  # case -> side -> tokens per second, round by round

#: By instruction set, case and peer: the least ratio. Those that differ by type of the weights are a table of them.
GOALS: dict[str, dict[tuple[str, str], float | dict[str, float]]] = {
    "AVX-512 VNNI": {
        ("prompt", "llama-bench"): {"q4_k_m": 2.0, "q8_0": 3.0},
        ("prompt", "ik_llama.cpp"): 1.15,
        ("stream", "llama-bench"): 1.0,
        ("stream", "ik_llama.cpp"): 1.0,
        ("8 streams", "llama-batched-bench"): 3.0,
        ("16 streams", "llama-batched-bench"): 3.0,
        ("requests", "llama-server"): 2.5,
        ("requests", "llama-cpp-python"): 4.0,
    },
    "AVX2": {
        ("prompt", "llama-bench"): {"q4_k_m": 1.8, "q8_0": 2.0},
        ("prompt", "ik_llama.cpp"): 1.15,
        ("stream", "llama-bench"): 1.0,
        ("stream", "ik_llama.cpp"): 1.0,
        ("8 streams", "llama-batched-bench"): 2.5,
        ("16 streams", "llama-batched-bench"): 3.0,
        ("requests", "llama-server"): 2.0,
        ("requests", "llama-cpp-python"): 3.0,
    },
}


def instruction_set() -> str:
    """The one of GOALS that this machine's CPU has."""
    if lib.ggml_cpu_has_amx_int8():
        return "AMX"
    return "AVX-512 VNNI" if lib.ggml_cpu_has_avx512_vnni() else "AVX2"


class Here:
    """pyggml in this process: an engine for one stream and an engine for many, on one model."""

    def __init__(self, path: Path, n_threads: int) -> None:
        plain: dict[str, Any] = {"n_threads": n_threads, "speculative": "off"}
        self._one = pyggml.load(path, n_ctx=PROMPT.n_cells, n_parallel=1, **plain)
        n_parallel = max(case.n_parallel for case in STREAMS)
        self._many = pyggml.LLM(self._one.model, n_ctx=N_CTX, n_parallel=n_parallel, **plain)

    def prompt(self, n: int) -> dict[str, float]:
        return {"prompt": self._speed(self._one, PROMPT, n)}

    def stream(self, n: int) -> dict[str, float]:
        return {"stream": self._speed(self._one, STREAM, n)}

    def streams(self, n: int) -> dict[str, float]:
        return {f"{case.n_parallel} streams": self._speed(self._many, case, n) for case in STREAMS}

    def close(self) -> None:
        self._many.close()
        self._one.close()

    def _speed(self, llm: pyggml.LLM, case: Case, n: int) -> float:
        rng = random.Random(n)
        seconds_of(llm, Case("generate", 4), rng)  # the others warm up, too
        return case.speed(seconds_of(llm, case, rng))


class Programs:
    """A llama-bench and a llama-batched-bench: upstream's or a fork's."""

    def __init__(self, folder: Path, path: Path, n_threads: int) -> None:
        self._folder, self._path, self._n_threads = folder, path, n_threads

    def prompt(self, _round: int) -> dict[str, float]:
        return {"prompt": self._bench(n_prompt=PROMPT.n_tokens)}

    def stream(self, _round: int) -> dict[str, float]:
        return {"stream": self._bench(n_tokens=STREAM.n_tokens)}

    def streams(self, _round: int) -> dict[str, float]:
        program, n = self._folder / "llama-batched-bench", [case.n_parallel for case in STREAMS]
        n_tokens = STREAMS[0].n_tokens
        speeds = llama_cpp_programs.batched_bench(program, self._path, self._n_threads, n, N_DEPTH, n_tokens)
        return {f"{n} streams": speed for n, speed in zip(n, speeds, strict=True)}

    def _bench(self, n_prompt: int = 0, n_tokens: int = 0) -> float:
        return llama_cpp_programs.bench(self._folder / "llama-bench", self._path, self._n_threads, n_prompt, n_tokens)


def interleaved(sides: Mapping[str, Side], rounds: int) -> Figures:
    """Like harness.interleaved, for sides that measure several cases at once."""
    figures: Figures = {}
    for n, names in harness.turns(sides, rounds):
        for name in names:
            for case, speed in sides[name](n).items():
                print(f"  {f'round {n}' if n else 'warm-up'}: {case}: {name} {speed:.4g} tokens/s", flush=True)
                if n:
                    figures.setdefault(case, {side: [] for side in sides})[name].append(speed)
    return figures


def measured(path: Path, what: list[str], rounds: int, n_threads: int) -> Figures:
    """Measure one model on all sides."""
    figures: Figures = {}
    theirs = {"upstream": Programs(llama_cpp_programs.llama_batched_bench().parent, path, n_threads)}
    if folder := peers.ik_llama_cpp():
        theirs["ik_llama.cpp"] = Programs(folder, path, n_threads)
    with contextlib.closing(Here(path, n_threads)) as here:
        if "prompt" in what:
            figures |= interleaved({"pyggml": here.prompt} | {n: each.prompt for n, each in theirs.items()}, rounds)
        if "stream" in what:
            figures |= interleaved({"pyggml": here.stream} | {n: each.stream for n, each in theirs.items()}, rounds)
        if "streams" in what:
            figures |= interleaved({"pyggml": here.streams} | {n: each.streams for n, each in theirs.items()}, rounds)
    for case, sides in figures.items():
        program = "llama-batched-bench" if case.endswith("streams") else "llama-bench"
        figures[case] = {program if side == "upstream" else side: speeds for side, speeds in sides.items()}
    if "requests" in what:
        figures["requests"] = throughput.measured(path, rounds, n_threads)
    return figures


def table(figures: Figures) -> None:
    """Print the medians, and pyggml's over each peer's."""
    for case, sides in figures.items():
        print(f"  {case:12}", end="")
        for side, speeds in sides.items():
            ratio = "" if side == "pyggml" else f" ({harness.ratio(sides, 'pyggml', side):.2f})"
            print(f"{side:>21} {statistics.median(speeds):7.1f}{ratio}", end="")
        print()


def claims(model: str, ftype: str, figures: Figures) -> list[harness.Claim]:
    claimed = []
    for (case, peer), goal in GOALS[
        instruction_set().replace("AMX", "AVX-512 VNNI")
    ].items():  # there is none of its own
        if peer in figures.get(case, {}):
            bound = goal[ftype] if isinstance(goal, dict) else goal
            ratio = harness.ratio(figures[case], "pyggml", peer)
            claimed.append(harness.at_least(f"{model} {ftype}, {case}: pyggml / {peer}", ratio, bound, "x"))
    return claimed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=WHAT, default=list(WHAT))
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--ftype", nargs="+", choices=FTYPES, default=list(FTYPES))
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--threads", type=int, default=harness.n_cpus(), help="of every side; default: one per CPU")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    chosen = parser.parse_args()
    machine = result_files.machine()
    cpu = f"{machine['cores']} cores of {machine['cpu']} ({instruction_set()})"
    print(f"{cpu}, {chosen.threads} threads, load average {machine['load_before']} before the start", flush=True)
    results: dict[str, Figures] = {}
    claimed = []
    for model in chosen.model:
        for ftype in chosen.ftype:
            print(f"{model} {ftype}", flush=True)
            figures = measured(model_file(model, ftype), chosen.what, chosen.rounds, chosen.threads)
            table(figures)
            claimed += claims(model, ftype, figures)
            results[f"{model} {ftype}"] = figures
    machine |= {"instruction_set": instruction_set(), "load_after": round(os.getloadavg()[0], 2)}
    if chosen.keep:
        result_files.write("speedup", {"machine": machine, "n_threads": chosen.threads, "tokens_per_s": results})
    return harness.verdict(claimed)


if __name__ == "__main__":
    sys.exit(main())

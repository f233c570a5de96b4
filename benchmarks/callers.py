"""Requests per second against the number of callers: pyggml and its peers, in one run.

    python benchmarks/callers.py [--rounds 5] [--callers 1 2 4 8 16 32] [--side NAME ...]

A caller sends a request, waits for the answer and sends the next. Each request has a prompt of 64 random tokens, new
each time, and gets 32 tokens. The sides: pyggml, called from threads; llama-server, built from the same engine, with
HTTP clients; llama-cpp-python, with a lock around its model; vLLM, called from coroutines. Figures go to
results/callers.json, and from there into docs/images/requests-per-second.svg, which tools/make_comparison.py draws.

vLLM computes the same shape in bfloat16, because its build for CPUs has no kernels for the others' Q4_K_M; pyggml does
both.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import llama_cpp_programs
import peers
import result_files
from synthetic_models import SHAPES, checkpoint_settings, model_file
from throughput import completion, served

import pyggml

COMMON = Path(__file__).resolve().parent / "common"
MODEL = "smollm2-135m"
N_PROMPT, N_TOKENS = 64, 32
MOST = 32  # callers
N_CTX = MOST * 128
NAME = "callers"

Prompt = list[int]
Side = Callable[[list[Prompt], int], float]  # prompts and number of callers -> seconds until all are answered


def among(n_callers: int, prompts: list[Prompt], ask: Callable[[int, Prompt], object]) -> float:
    """Seconds that callers, numbered from 0, take to ask all prompts, each taking the next when it has its answer."""
    waiting = iter(prompts)  # next() of a list's iterator is atomic

    def call(caller: int) -> None:
        for prompt in waiting:
            ask(caller, prompt)

    return harness.together(call, n_callers)


@contextlib.contextmanager
def pyggml_threads(model: Path) -> Iterator[Side]:
    with pyggml.load(model, n_ctx=N_CTX, n_parallel=MOST, prefix_cache=False, speculative="off") as llm:

        def ask(_caller: int, prompt: Prompt) -> None:
            assert len(llm.generate(prompt, max_tokens=N_TOKENS, ignore_eos=True).token_ids) == N_TOKENS

        yield lambda prompts, n_callers: among(n_callers, prompts, ask)


def pyggml_bfloat16(_model: Path) -> contextlib.AbstractContextManager[Side]:
    return pyggml_threads(model_file(MODEL, "bf16"))


@contextlib.contextmanager
def http_clients(model: Path) -> Iterator[Side]:
    with served(model, n_ctx=N_CTX, n_parallel=MOST) as connect:

        def run(prompts: list[Prompt], n_callers: int) -> float:
            connections = [connect() for _ in range(n_callers)]
            seconds = among(n_callers, prompts, lambda i, prompt: completion(connections[i], prompt, N_TOKENS))
            for connection in connections:
                connection.close()
            return seconds

        yield run


@contextlib.contextmanager
def lock(model: Path) -> Iterator[Side]:
    command = [peers.llama_cpp_python(), COMMON / "llama_cpp_worker.py", model, N_CTX, harness.n_cpus()]
    with _worker(command) as run:
        yield run


@contextlib.contextmanager
def vllm_tasks(_model: Path) -> Iterator[Side]:
    folder = llama_cpp_programs.SCRATCH.parent / "vllm" / MODEL
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(checkpoint_settings(SHAPES[MODEL])))
    # Isolated, because it would mistake the script kernels.py in its folder for a library that it looks for.
    with _worker([peers.vllm(), "-I", COMMON / "vllm_worker.py", folder, N_PROMPT + N_TOKENS, MOST]) as run:
        yield run


@contextlib.contextmanager
def _worker(command: list[object]) -> Iterator[Side]:
    """A process of another environment that answers lines of JSON with seconds."""
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, command)), text=True, stdin=pipe, stdout=pipe) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        stdin, stdout = worker.stdin, worker.stdout

        def run(prompts: list[Prompt], n_callers: int) -> float:
            stdin.write(json.dumps({"prompts": prompts, "max_tokens": N_TOKENS, "n_callers": n_callers}) + "\n")
            stdin.flush()
            for line in stdout:
                if line.startswith("seconds "):
                    return float(line.split()[1])
            raise RuntimeError(f"{command[1]} died; its output is above")

        try:
            yield run
        finally:
            stdin.close()


SIDES = {
    "pyggml": pyggml_threads,
    "pyggml, bfloat16": pyggml_bfloat16,
    "llama-server": http_clients,
    "llama-cpp-python behind a lock": lock,
    "vLLM, bfloat16": vllm_tasks,
}


def random_prompts(n: int, seed: int) -> list[Prompt]:
    choose = random.Random(seed)
    return [[choose.randrange(100, 40_000) for _ in range(N_PROMPT)] for _ in range(n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--side", nargs="+", choices=SIDES, default=list(SIDES))
    chosen = parser.parse_args()
    before = result_files.machine()
    print(f"{before['cores']} CPUs, load average {before['load_before']} before the start", flush=True)
    seeds = itertools.count()
    with contextlib.ExitStack() as stack:
        model = model_file(MODEL)
        sides = {name: stack.enter_context(SIDES[name](model)) for name in chosen.side}
        figures: dict[str, dict[int, list[float]]] = {name: {} for name in sides}
        for n_callers in chosen.callers:
            n_requests = max(8, n_callers)

            def speed(side: Side, n_callers: int = n_callers, n_requests: int = n_requests) -> Callable[[int], float]:
                return lambda _round: (
                    n_requests / side(random_prompts(n_requests, next(seeds)), min(n_callers, n_requests))
                )

            print(f"{n_callers} callers, {n_requests} requests")
            measured = harness.interleaved({name: speed(side) for name, side in sides.items()}, chosen.rounds, "/s")
            for name, values in measured.items():
                figures[name][n_callers] = [round(value, 3) for value in values]
    versions = {"llama-cpp-python": peers.LLAMA_CPP_PYTHON, "vLLM": peers.VLLM, "pyggml": pyggml.__version__}
    asked = {"model": MODEL, "n_prompt": N_PROMPT, "n_tokens": N_TOKENS, "rounds": chosen.rounds}
    load_after = round(os.getloadavg()[0], 2)
    result_files.write(NAME, {"machine": before | {"load_after": load_after}, "versions": versions, "asked": asked,
                      "requests_per_s": figures})  # fmt: skip


if __name__ == "__main__":
    main()

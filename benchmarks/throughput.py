"""Eight callers at once: pyggml from eight threads, compared with other ways to serve eight requests on one model.

Each side gets eight random prompts of 64 tokens and makes 64 tokens for each; the figure is generated tokens per
second, with the time for the prompts included. The sides: pyggml; upstream's llama-batched-bench, which knows the
requests in advance; llama-server with eight slots and eight HTTP clients; llama-cpp-python with a lock around it.

    python benchmarks/throughput.py [--rounds 5] [--model tinyllama-1.1b]

speedup.py asks the same of more models, with as many threads for all.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import llama_cpp_programs
from peers import llama_cpp_python
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

N_CALLERS = 8
N_PROMPT = 64
N_TOKENS = 64
N_CTX = 2048
COMMON = Path(__file__).resolve().parent / "common"

Prompts = list[list[int]]
Side = Callable[[Prompts], float]  # prompts -> seconds


@contextlib.contextmanager
def pyggml_threads(model: Path, n_threads: int | None = None) -> Iterator[Side]:
    """One LLM that eight threads call; it chooses the number of its compute threads itself unless one is given."""
    with pyggml.load(model, n_ctx=N_CTX, n_parallel=N_CALLERS, n_threads=n_threads, speculative="off") as llm:

        def run(prompts: Prompts) -> float:
            def generate(index: int) -> None:
                done = llm.generate(prompts[index], max_tokens=N_TOKENS, ignore_eos=True)
                assert len(done.token_ids) == N_TOKENS
                assert done.cached_tokens == 0

            return harness.together(generate, N_CALLERS)

        yield run


@contextlib.contextmanager
def batched_bench(model: Path, n_threads: int | None = None) -> Iterator[Side]:
    """llama-batched-bench, which makes up its own prompts."""
    command = [llama_cpp_programs.llama_batched_bench(), "-m", model, "-c", N_CTX, "--output-format", "jsonl"]
    command += ["-t", n_threads or harness.n_cpus(), "-npl", N_CALLERS, "-npp", N_PROMPT]
    # The prompt's logits give the first token, so one step fewer is needed.
    command += ["-ntg", N_TOKENS - 1]

    def run(_prompts: Prompts) -> float:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith('{"n_kv_max"')]
        return float(json.loads(lines[-1])["t"])

    yield run


@contextlib.contextmanager
def http_clients(model: Path, n_threads: int | None = None) -> Iterator[Side]:
    """llama-server with eight slots and eight clients that are already connected."""
    with served(model, N_CTX, N_CALLERS, n_threads) as connect:

        def run(prompts: Prompts) -> float:
            # New connections in each round: the server closes those that idle while the others are measured.
            connections = [connect() for _ in prompts]
            seconds = harness.together(lambda i: completion(connections[i], prompts[i], N_TOKENS), N_CALLERS)
            for connection in connections:
                connection.close()
            return seconds

        yield run


@contextlib.contextmanager
def served(
    model: Path, n_ctx: int, n_parallel: int, n_threads: int | None = None
) -> Iterator[Callable[[], http.client.HTTPConnection]]:
    """llama-server with a model; yields what connects to it."""
    port = free_port()
    command = [llama_cpp_programs.llama_server(), "-m", model, "-c", n_ctx, "-np", n_parallel]
    command += ["-t", n_threads or harness.n_cpus()]
    command += ["--host", "127.0.0.1", "--port", port]
    log = llama_cpp_programs.SCRATCH / "llama-server.log"
    with log.open("w") as file, subprocess.Popen(list(map(str, command)), stdout=file, stderr=file) as server:

        def connect() -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.connect()
            return connection

        try:
            wait_until_ready(http.client.HTTPConnection("127.0.0.1", port), server, log)
            yield connect
        finally:
            server.terminate()


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_until_ready(connection: http.client.HTTPConnection, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until llama-server answers."""
    deadline = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                connection.close()
                return
        connection.close()
        time.sleep(0.1)
    raise RuntimeError(f"llama-server did not start; its output is in {log}")


def completion(connection: http.client.HTTPConnection, prompt: list[int], n_tokens: int) -> None:
    """Ask llama-server for so many tokens and wait for them."""
    body = {"prompt": prompt, "n_predict": n_tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())
    assert answer["tokens_predicted"] == n_tokens, answer


@contextlib.contextmanager
def llama_cpp_python_lock(model: Path, n_threads: int | None = None) -> Iterator[Side]:
    """llama-cpp-python in a separate process, where eight threads share one model behind a lock."""
    command = [llama_cpp_python(), COMMON / "llama_cpp_worker.py", model, N_CTX, n_threads or harness.n_cpus()]
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, command)), text=True, stdin=pipe, stdout=pipe) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        stdin, stdout = worker.stdin, worker.stdout

        def run(prompts: Prompts) -> float:
            asked = {"prompts": prompts, "max_tokens": N_TOKENS, "n_callers": N_CALLERS}
            stdin.write(json.dumps(asked) + "\n")
            stdin.flush()
            line = stdout.readline()
            if not line:
                raise RuntimeError("the worker that runs llama-cpp-python died; its output is above")
            return float(line.split()[1])

        yield run


SIDES = {
    "pyggml": pyggml_threads,
    "batched-bench": batched_bench,
    "llama-server": http_clients,
    "llama-cpp-python": llama_cpp_python_lock,
}


def measured(model: Path, rounds: int, n_threads: int | None = None) -> harness.Figures:
    """Tokens per second that each side generates, round by round."""

    def speed(side: Side) -> Callable[[int], float]:
        def run(n: int) -> float:
            # New prompts in each round, so that no side finds them in its cache.
            return N_CALLERS * N_TOKENS / side(random_prompts(vocabulary.vocab, N_CALLERS, N_PROMPT, random.Random(n)))

        return run

    with contextlib.ExitStack() as stack:
        vocabulary = stack.enter_context(pyggml.Model(model, vocab_only=True))
        sides = {side: speed(stack.enter_context(make(model, n_threads))) for side, make in SIDES.items()}
        return harness.interleaved(sides, rounds, "tokens/s")


def compare(name: str, rounds: int) -> list[harness.Claim]:
    """Measure all sides on one model."""
    print(f"{name}: {N_CALLERS} callers, {N_PROMPT} tokens in, {N_TOKENS} tokens out each")
    figures = measured(model_file(name), rounds)
    harness.table(figures, "tokens/s")
    return [
        harness.at_least(
            f"{name}: pyggml / batched-bench", harness.ratio(figures, "pyggml", "batched-bench"), 0.97, "x"
        ),
        harness.at_least(f"{name}: pyggml / llama-server", harness.ratio(figures, "pyggml", "llama-server"), 1.0, "x"),
        harness.at_least(
            f"{name}: pyggml / llama-cpp-python", harness.ratio(figures, "pyggml", "llama-cpp-python"), 1.9, "x"
        ),
    ]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=5, models=["tinyllama-1.1b"])
    sys.exit(harness.verdict([claim for name in chosen.model for claim in compare(name, chosen.rounds)]))

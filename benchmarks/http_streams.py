"""Streaming over HTTP, compared with threads in one process and with upstream's server.

    python benchmarks/http_streams.py [--rounds 5] [--part speed first delay many]

speed  eight streams at once, 64 random tokens in and 128 out, greedy: eight threads in this process; the same with each
       chunk sent through a socket to the client's process; `pyggml serve`; llama-server. Tokens per second.
first  one stream of four tokens at a time, from a prompt of 16, on a connection that stays open: time to first token.
delay  how late the server's event loop wakes a task, with 8 and 32 streams, and with 8 streams and prompts of 8,000
       tokens, schemas of 300 properties, embeddings and bodies of 8 MB.
many   256 streams at once, three times, of which 8, 32 or 256 are computed together: memory, descriptors, handles.

The clients are one process that reads sockets (http_reader.py); it shares the CPUs with the servers, like any client on
the same machine. No side reuses prompts. Figures go to results/http_streams.json.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "common"))

import harness
import result_files
import throughput
from http_clients import Clients, Program, Prompts
from synthetic_models import model_file

import pyggml
from pyggml.cli.bench.measure import random_prompts

COMMON = Path(__file__).resolve().parent / "common"
NAME = "http_streams"
MODEL = "smollm2-135m"
N_STREAMS, N_PROMPT, N_TOKENS = 8, 64, 128
N_CTX = N_STREAMS * 256
N_FIRST_PROMPT, N_FIRST_TOKENS, N_FIRST = 16, 4, 40
N_MANY, MANY_TOKENS = 256, 16

Side = Callable[[Prompts, int], float]  # prompts, tokens for each -> seconds


# --- the sides --------------------------------------------------------------------------------------------------------


def in_process(llm: pyggml.LLM) -> Side:
    """A thread for each stream."""

    def run(prompts: Prompts, n_tokens: int) -> float:
        def stream(index: int) -> None:
            running = llm.stream(prompts[index], max_tokens=n_tokens, ignore_eos=True, temperature=0)
            assert sum(len(chunk.token_ids) for chunk in running) == n_tokens

        return harness.together(stream, len(prompts))

    return run


def to_sockets(llm: pyggml.LLM, clients: Clients) -> Side:
    """The same, and each thread sends its chunks to the clients' process: a server without HTTP and JSON."""

    def run(prompts: Prompts, n_tokens: int) -> float:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            clients.tell(port=port, path="/", bodies=[None] * len(prompts))

            def stream(_index: int) -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    index = next(numbers)
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    for chunk in llm.stream(prompts[index], max_tokens=n_tokens, ignore_eos=True, temperature=0):
                        connection.sendall(b"data: " + chunk.text.encode() + b"\n\n")

            numbers = itertools.count()
            harness.together(stream, len(prompts))
            return float(clients.hear()["seconds"])

    return run


def over_http(port: int, clients: Clients) -> Side:
    return lambda prompts, n_tokens: float(clients.stream(port, prompts, n_tokens)["seconds"])


@contextlib.contextmanager
def pyggml_serve(model: Path, n_ctx: int, n_parallel: int) -> Iterator[int]:
    """``pyggml serve``; yields its port."""
    command = [sys.executable, "-m", "pyggml", "serve", model, "--port", 0, "--n-ctx", n_ctx]
    command += ["--n-parallel", n_parallel, "--no-prefix-cache", "--log-level", "warning"]
    with subprocess.Popen(list(map(str, command)), text=True, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    yield int(found[1])
                    break
            else:
                raise RuntimeError("pyggml serve ended before it listened")
        finally:
            server.terminate()


class Worker(Program):
    """The server with a ticker in its event loop.

    Attributes:
        port: where it listens.
    """

    def __init__(self, model: Path, n_ctx: int, n_parallel: int) -> None:
        super().__init__(COMMON / "http_worker.py", model, n_ctx, n_parallel)
        self.port = int(self.hear()["port"])

    def report(self) -> dict[str, Any]:
        """The delays since the last report, and what is held."""
        self.tell()
        return dict(self.hear())


# --- the parts --------------------------------------------------------------------------------------------------------


class Measurement:
    """The parts' common state: the model, the clients and prompts that never repeat."""

    def __init__(self, model: Path, vocabulary: pyggml.Model, clients: Clients, rounds: int, n_tokens: int) -> None:
        self.model = model
        self.clients = clients
        self.rounds = rounds
        self.n_tokens = n_tokens
        self._vocab = vocabulary.vocab
        self._choose = random.Random()

    def prompts(self, n: int, length: int) -> Prompts:
        return random_prompts(self._vocab, n, length, self._choose)

    @contextlib.contextmanager
    def sides(self) -> Iterator[tuple[dict[str, Side], dict[str, int], pyggml.LLM]]:
        """Every side of a comparison, the servers' ports by name, and the model in this process."""
        with contextlib.ExitStack() as stack:
            options: dict[str, Any] = {"n_ctx": N_CTX, "n_parallel": N_STREAMS, "prefix_cache": False}
            llm = stack.enter_context(pyggml.load(self.model, speculative="off", **options))
            ours = stack.enter_context(pyggml_serve(self.model, N_CTX, N_STREAMS))
            connect = stack.enter_context(throughput.served(self.model, N_CTX, N_STREAMS))
            with contextlib.closing(connect()) as connection:
                ports = {"pyggml serve": ours, "llama-server": connection.port}
            sides = {"in process": in_process(llm), "to sockets": to_sockets(llm, self.clients)}
            yield sides | {name: over_http(port, self.clients) for name, port in ports.items()}, ports, llm


def speed(about: Measurement) -> tuple[Any, list[harness.Claim]]:
    """Tokens per second of eight streams."""
    with about.sides() as (sides, _, _llm):

        def figure(side: Side) -> Callable[[int], float]:
            n_tokens = about.n_tokens
            return lambda _: N_STREAMS * n_tokens / side(about.prompts(N_STREAMS, N_PROMPT), n_tokens)

        figures = harness.interleaved({name: figure(side) for name, side in sides.items()}, about.rounds, "tokens/s")
    harness.table(figures, "tokens/s")
    for name in ("to sockets", "llama-server"):
        print(f"  {name} / in process: {harness.ratio(figures, name, 'in process'):.3f}")
    print(f"  pyggml serve / to sockets: {harness.ratio(figures, 'pyggml serve', 'to sockets'):.3f}")
    return figures, [
        harness.at_least(
            "eight streams: pyggml serve / in process", harness.ratio(figures, "pyggml serve", "in process"), 0.95, "x"
        ),
        harness.at_least(
            "eight streams: pyggml serve / llama-server",
            harness.ratio(figures, "pyggml serve", "llama-server"),
            1.0,
            "x",
        ),
    ]


def first(about: Measurement) -> tuple[Any, list[harness.Claim]]:
    """Milliseconds to the first token of one stream."""
    with about.sides() as (_, ports, llm):

        def here(prompt: list[int]) -> float:
            start = time.perf_counter()
            with llm.stream(prompt, max_tokens=N_FIRST_TOKENS, ignore_eos=True, temperature=0) as stream:
                next(stream)
                seconds = time.perf_counter() - start
                stream.finish()
            return seconds

        figures: harness.Figures = {"in process": [], **{name: [] for name in ports}}
        for name, port in ports.items():
            # One after the other, so that each side's connection stays open; in process after each of them.
            for n in range(N_FIRST):
                prompt, other = about.prompts(2, N_FIRST_PROMPT)
                figures["in process"].append(1e3 * here(other))
                heard = about.clients.stream(port, [prompt], N_FIRST_TOKENS, is_kept=n > 0)
                figures[name].append(1e3 * heard["answers"][0]["events_s"][0])
    harness.table(figures, "ms to the first token")
    medians = {name: statistics.median(values) for name, values in figures.items()}
    beyond = medians["pyggml serve"] - statistics.median(figures["in process"][:N_FIRST])
    return figures, [harness.at_most("first token: pyggml serve, beyond in process", beyond, 3, " ms")]


def delay(about: Measurement) -> tuple[Any, list[harness.Claim]]:
    """Milliseconds by which the loop is late."""
    found: dict[str, Any] = {}
    for n_streams, is_disturbed in ((8, False), (32, False), (8, True)):
        with Worker(about.model, 16384, n_streams) as worker:
            name = f"{n_streams} streams{' with disturbance' if is_disturbed else ''}"
            about.clients.stream(worker.port, about.prompts(n_streams, N_PROMPT), 8)  # warms up
            worker.report()
            with contextlib.ExitStack() as stack:
                answered = stack.enter_context(disturb(worker.port, about)) if is_disturbed else []
                about.clients.stream(worker.port, about.prompts(n_streams, N_PROMPT), 256 // (n_streams // 8))
            found[name] = worker.report() | {"answered_beside": answered}
            print(f"  {name}: {found[name]}", flush=True)
    return found, [
        harness.at_most(f"{name}: the loop's delay, p99", each["p99"], 20, " ms") for name, each in found.items()
    ]


@contextlib.contextmanager
def disturb(port: int, about: Measurement) -> Iterator[list[str]]:
    """Send large requests of every kind, one after the other, in the background; yield the responses."""
    is_over = threading.Event()
    answered: list[str] = []
    names = [f"property_{number}" for number in range(300)]
    schema = {"type": "object", "properties": {name: {"enum": ["a", "b"]} for name in names}, "required": names}
    [long] = about.prompts(1, 8000)
    few = {"max_tokens": 4, "temperature": 0}
    kinds = {
        "prompt": ("/v1/completions", {"prompt": long, **few}),
        "schema": ("/execute", {"prompt": "Some JSON:", "json_schema": schema, **few}),
        "embeddings": ("/v1/embeddings", {"model": "default", "input": ["A text to embed. " * 20] * 16}),
        "body": ("/execute", {"prompt": "x" * (8 * 2**20 - 100)}),
    }

    def ask() -> None:
        for kind in itertools.cycle(kinds):
            if is_over.is_set():
                return
            path, body = kinds[kind]
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            answered.append(f"{kind} {answer.status}")
            connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answered
    finally:
        is_over.set()
        thread.join()


def many(about: Measurement) -> tuple[Any, list[harness.Claim]]:
    """Measure the server's resources after each of three rounds of 256 streams."""
    found: dict[str, Any] = {}
    claims = []
    for n_parallel in (8, 32, 256):
        with Worker(about.model, max(64, n_parallel) * 64, n_parallel) as worker:
            reports = []
            for _ in range(4):
                about.clients.stream(worker.port, about.prompts(N_MANY, 16), MANY_TOKENS)
                about.clients.stream(worker.port, about.prompts(1, 16), 1)  # closes the connections of the many
                reports.append(worker.report())
            name = f"{N_MANY} streams, {n_parallel} together"
            found[name] = reports
            print(f"  {name}:", *reports, sep="\n    ", flush=True)
            settled, last = reports[1], reports[-1]
            claims += [
                harness.at_most(f"{name}: more {what}", last[what] - settled[what], 0)
                for what in ("threads", "descriptors", "handles")
            ]
            memory = last["rss_bytes"] / settled["rss_bytes"]
            claims.append(harness.at_most(f"{name}: resident bytes, relative to two rounds before", memory, 1.02, "x"))
    return found, claims


PARTS = {"speed": speed, "first": first, "delay": delay, "many": many}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of speed; default 5")
    parser.add_argument("--tokens", type=int, default=N_TOKENS, help=f"for each stream of speed; default {N_TOKENS}")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="default all")
    chosen = parser.parse_args()
    before = result_files.machine()
    print(f"{before['cpu']}, {before['cores']} CPUs, load average {before['load_before']} before the start", flush=True)
    results, claims = result_files.read(NAME) or {}, []
    model = model_file(MODEL)
    with pyggml.Model(model, vocab_only=True) as vocabulary, Clients() as clients:
        about = Measurement(model, vocabulary, clients, chosen.rounds, chosen.tokens)
        for name in chosen.part:
            print(f"\n{name}: {(PARTS[name].__doc__ or '').splitlines()[0]}", flush=True)
            results[name], found = PARTS[name](about)
            claims += found
    result_files.write(NAME, results | {"machine": before | {"load_after": round(os.getloadavg()[0], 2)}})
    return harness.verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

"""Chats of ten turns with models whose memory cannot be rewound, over HTTP: `pyggml serve` and llama-server.

The layers of Gemma 3 270M, and two to six of gpt-oss-20b, Mamba 130M, Falcon-H1-0.5B, Qwen3-Next-80B-A3B (with 64 of
its 512 experts) and Qwen3.5-0.8B, with random weights in Q8_0. A system message of 2,200 tokens is followed by ten
questions of 48 tokens and answers of 32. With the template "thinking", which leaves out the reasoning of earlier
answers, each turn differs from the last one from its answer on. Both servers have their default checkpoints and take
turns.

The figures are the share of each prompt that was cached, and the time to the first token of turns eight to ten, the
median: of each server, and of pyggml when it computes the prompt of turn ten anew (another ``cache_salt``).

    python benchmarks/internal/growing_chats.py [--model gemma3 gpt-oss mamba falcon-h1 qwen3-next qwen35]
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
for part in (BENCHMARKS, BENCHMARKS / "common", BENCHMARKS.parent / "tests"):
    sys.path.insert(0, str(part))

import harness  # noqa: E402
import llama_cpp_programs  # noqa: E402
from support.checkpoints import chat_models  # noqa: E402
from synthetic_models import SCRATCH  # noqa: E402
from throughput import free_port, wait_until_ready  # noqa: E402

from pyggml.quant import GGMLType  # noqa: E402

N_CTX = 8192
N_TURNS = 10
SYSTEM = "You answer questions. " * 100
N_QUESTION = 48
N_ANSWER = 32
#: So many layers that turns take seconds, and at least one of each kind.
N_LAYERS = {"gemma3": 18, "gpt-oss": 2, "mamba": 6, "falcon-h1": 6, "qwen3-next": 4, "qwen35": 4}


@dataclass(frozen=True)
class Turn:
    """An answer of a server.

    Attributes:
        text: with its reasoning.
        ttft_s: seconds until its first token.
        n_prompt: tokens of its prompt.
        n_cached: of which so many were cached.
    """

    text: str
    ttft_s: float
    n_prompt: int
    n_cached: int


def model_file(family: str, template: str) -> Path:
    """Path of a model, made on the first call."""
    shape = replace(chat_models.REAL[family], n_layer=N_LAYERS[family])
    path = SCRATCH / f"chat-{family}-{shape.n_layer}-layers-{template}-q8_0.gguf"
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        chat_models.write(partial, shape, chat_models.TEMPLATES[template], GGMLType.Q8_0)
        partial.rename(path)
    return path


def ask(port: int, messages: list[Any], n_tokens: int = N_ANSWER, **options: Any) -> Turn:
    """Stream an answer."""
    body = {"model": "default", "messages": messages, "max_tokens": n_tokens, "temperature": 0, "stream": True}
    body |= {"stream_options": {"include_usage": True}, **options}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    start = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {answer.read()[:500]!r}")
    text, ttft_s, usage = "", 0.0, None
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            new = (choice["delta"].get("reasoning_content") or "") + (choice["delta"].get("content") or "")
            ttft_s = ttft_s or (time.perf_counter() - start if new else 0.0)
            text += new
    connection.close()
    assert usage is not None, "no usage"
    return Turn(text, ttft_s, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


def chat(port: int, template: str) -> Iterator[tuple[list[Any], Turn]]:
    """The messages and the answer of each turn; each is asked for when it is taken."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    for number in range(N_TURNS):
        messages.append({"role": "user", "content": f"Question {number} has so many letters".ljust(N_QUESTION, "?")})
        turn = ask(port, messages)
        yield list(messages), turn
        said = turn.text if template == "plain" else f"Answer {number} is this".ljust(N_ANSWER, "!")
        messages.append({"role": "assistant", "content": said})


@contextlib.contextmanager
def pyggml_serve(model: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "pyggml", "serve", model, "--port", 0, "--n-ctx", N_CTX, "--n-parallel", 2]
    command += ["--n-threads", harness.n_cpus(), "--log-level", "warning"]
    with subprocess.Popen(list(map(str, command)), text=True, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        try:
            seen = []
            for line in server.stderr:
                seen.append(line)
                if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    yield int(found[1])
                    return
            raise RuntimeError(f"pyggml serve ended before it listened: {''.join(seen)[-800:]}")
        finally:
            server.terminate()


@contextlib.contextmanager
def llama_server(model: Path) -> Iterator[int]:
    port = free_port()
    command = [llama_cpp_programs.llama_server(), "-m", model, "-c", N_CTX, "-np", 2, "-kvu", "-t", harness.n_cpus()]
    command += ["--host", "127.0.0.1", "--port", port, "--jinja"]
    log = SCRATCH / "llama-server.log"
    with log.open("w") as file, subprocess.Popen(list(map(str, command)), stdout=file, stderr=file) as server:
        try:
            wait_until_ready(http.client.HTTPConnection("127.0.0.1", port), server, log)
            yield port
        finally:
            server.terminate()


def compare(family: str, template: str) -> list[harness.Claim]:
    """Measure both servers with one model."""
    model = model_file(family, template)
    with pyggml_serve(model) as ours, llama_server(model) as theirs:
        ports = {"pyggml serve": ours, "llama-server": theirs}
        for port in ports.values():  # warm-up
            ask(port, [{"role": "user", "content": "x" * 600}], 2)
        turns: dict[str, list[Turn]] = {side: [] for side in ports}
        last: list[Any] = []
        for both in zip(*(chat(port, template) for port in ports.values()), strict=True):
            for side, (messages, turn) in zip(ports, both, strict=True):
                turns[side].append(turn)
                last = messages if side == "pyggml serve" else last
        anew = ask(ours, last, 1, cache_salt="anew")
    assert anew.n_cached == 0
    ttft = {side: [1e3 * each.ttft_s for each in of_side[-3:]] for side, of_side in turns.items()}
    cached = {side: [each.n_cached / each.n_prompt for each in of_side[1:]] for side, of_side in turns.items()}
    name = f"{family}, {template}"
    print(f"{name}: {turns['pyggml serve'][-1].n_prompt} tokens in turn {N_TURNS}")
    harness.table(ttft | {"computed anew": [1e3 * anew.ttft_s]}, "ms to the first token of the last three turns")
    harness.table(cached, "share of the prompt cached, turns two to ten")
    mine, its = (statistics.median(ttft[side]) for side in ports)
    return [
        harness.at_least(f"{name}: share cached, least", min(cached["pyggml serve"]), 0.95),
        harness.at_most(f"{name}: time to first token of turn ten / anew", mine / (1e3 * anew.ttft_s), 0.1, "x"),
        harness.at_most(f"{name}: time to first token of turn ten / llama-server's", mine / its, 1, "x"),
    ]


if __name__ == "__main__":
    chosen = harness.options(__doc__, rounds=1, models=list(N_LAYERS))
    claims = [
        claim for family in chosen.model for template in chat_models.TEMPLATES for claim in compare(family, template)
    ]
    sys.exit(harness.verdict(claims))

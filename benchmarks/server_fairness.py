"""Small chats and /health next to floods of other work, and a key's requests next to another key's flood.

    python benchmarks/server_fairness.py [--seconds 20] [--parts idle tokenize embeddings schemas prompts keys]
        [--model FILE] [--embedding-model FILE]

tokenize    eight clients post 4 MB to /tokenize, again and again
embeddings  four clients post 2,048 texts to /v1/embeddings
schemas     three clients post chats with schemas that take long to compile, or are refused after long
prompts     four clients post prompts of 7,800 tokens
keys        with an API key of their own, 16 clients post prompts for 64 tokens; another key sends a chat for 16 tokens
            per second, and then one after another

Meanwhile one client sends a small chat twice a second, one asks for /health twenty times a second, and one embeds
a text each second. A chat starts with its first token. The floods run in a separate process, on the same CPUs.

Exit status: 0 all is well, 1 a bound does not hold: 95 % of the chats start within 0.3 s and one step, which is the
median time between two of their tokens; 95 % of /health within 50 ms; and the second key's rate is 0.9 of that alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

PARTS = ("idle", "tokenize", "embeddings", "schemas", "prompts", "keys")
N_PROMPT = 7800
CHATS_PER_S, CHECKS_PER_S = 2.0, 20.0
N_CHAT_TOKENS = 8
START_S, HEALTH_S, RATE = 0.3, 0.05, 0.9
WORDS = ("river", "stone", "light", "seven", "garden", "winter", "paper", "engine", "window", "music", "green", "walk")
KEYS = ("sk-quiet", "sk-flood")


# --- HTTP -----------------------------------------------------------------------------------------------------


def encoded(path: str, body: Any, key: str = KEYS[0]) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nconnection: close\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def send(port: int, request: bytes) -> tuple[int, list[float]]:
    """Send a request on a new connection. Return the status, and the seconds until each event of the response."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    writer.write(request)
    status, times = 0, []
    async for line in reader:
        status = status or int(line.split()[1])
        if line.startswith(b'data: {"') and b'"content":"' in line and b'"content":""' not in line:
            times.append(time.monotonic() - began)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return status, [*times, time.monotonic() - began]


def sentence(n: int, random_: random.Random) -> str:
    return " ".join(random_.choices(WORDS, k=n))


# --- floods, in a separate process ----------------------------------------------------------------------------


def bad_schema(random_: random.Random) -> dict[str, Any]:
    """A schema that no other request has, and that takes most of a second to compile or to refuse."""
    name = sentence(1, random_) + str(random_.random())
    patterns = {f"^{chr(97 + i % 26)}{i}{name}.*$": {"type": "integer"} for i in range(200)}
    return {"type": "object", "patternProperties": patterns, "additionalProperties": {"type": "string"}}


def flood_requests(part: str, random_: random.Random) -> Iterator[bytes]:
    if part == "tokenize":
        text = (sentence(64, random_) + "\n") * 20_000
        request = encoded("/tokenize", {"content": text[:4_000_000]})
        while True:
            yield request
    while True:
        chat: dict[str, Any] = {"messages": [{"role": "user", "content": sentence(20, random_)}], "max_tokens": 8}
        if part == "embeddings":
            yield encoded(
                "/v1/embeddings", {"model": "embedder", "input": [sentence(30, random_) for _ in range(2048)]}
            )
        elif part == "schemas":
            form = {"type": "json_schema", "json_schema": {"name": "a", "schema": bad_schema(random_)}}
            yield encoded("/v1/chat/completions", {**chat, "response_format": form})
        elif part == "prompts":
            yield encoded("/v1/completions", {"prompt": sentence(N_PROMPT, random_), "max_tokens": 4})
        else:
            body = {"prompt": sentence(60, random_), "max_tokens": 64, "ignore_eos": True}
            yield encoded("/v1/completions", body, KEYS[1])


N_CLIENTS = {"tokenize": 8, "embeddings": 4, "schemas": 3, "prompts": 4, "keys": 16}


async def flood(port: int, part: str) -> None:
    """Send requests until standard input ends; then print how many there were, by status."""
    counts: dict[int, int] = {}

    async def client(index: int) -> None:
        for request in flood_requests(part, random.Random(index)):
            status, _ = await send(port, request)
            counts[status] = counts.get(status, 0) + 1

    clients = [asyncio.ensure_future(client(index)) for index in range(N_CLIENTS[part])]
    await asyncio.to_thread(sys.stdin.read)
    for each in clients:
        each.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    print(json.dumps(counts))


@contextlib.contextmanager
def flooding(port: int, part: str, counts: dict[int, int]) -> Iterator[None]:
    if part == "idle":
        yield
        return
    command = [sys.executable, __file__, "--flood", part, "--port", str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(1.5)
        yield
    finally:
        out, _ = process.communicate("")
        counts.update(json.loads(out))


# --- what is measured -----------------------------------------------------------------------------------------


class Figures(NamedTuple):
    starts: list[float]
    steps: list[float]
    health: list[float]
    embeddings: list[float]


async def paced(per_s: float, seconds: float, run: Callable[[int], Awaitable[None]]) -> None:
    """Start ``run`` at a fixed rate, whether or not those before have ended, and wait for all."""
    began = time.monotonic()
    tasks = []
    for index in range(int(seconds * per_s)):
        await asyncio.sleep(max(0.0, began + index / per_s - time.monotonic()))
        tasks.append(asyncio.ensure_future(run(index)))
    await asyncio.gather(*tasks)


def small_chat(index: int, n_tokens: int = N_CHAT_TOKENS) -> bytes:
    messages = [{"role": "user", "content": f"{sentence(12, random.Random(index))}?"}]
    body = {"messages": messages, "max_tokens": n_tokens, "stream": True, "ignore_eos": True, "repetition_guard": False}
    return encoded("/v1/chat/completions", body)


async def measure(port: int, seconds: float) -> Figures:
    figures = Figures([], [], [], [])

    async def chat(index: int) -> None:
        status, times = await send(port, small_chat(index))
        assert status == 200, status
        figures.starts.append(times[0])
        figures.steps.extend(after - before for before, after in pairwise(times[:-1]))

    async def health(_: int) -> None:
        began = time.monotonic()
        await send(port, b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        figures.health.append(time.monotonic() - began)

    async def embed(index: int) -> None:
        body = {"model": "embedder", "input": sentence(20, random.Random(index))}
        status, times = await send(port, encoded("/v1/embeddings", body))
        assert status == 200, status
        figures.embeddings.append(times[-1])

    await asyncio.gather(
        paced(CHATS_PER_S, seconds, chat), paced(CHECKS_PER_S, seconds, health), paced(1, seconds, embed)
    )
    return figures


async def rate(port: int, seconds: float, per_s: float | None) -> float:
    """Return the chats of 16 tokens per second that end within the time: at a fixed rate, or one after another."""
    began, n_done = time.monotonic(), 0

    async def chat(index: int) -> None:
        nonlocal n_done
        await send(port, small_chat(index, 16))
        n_done += time.monotonic() - began < seconds

    if per_s is not None:
        await paced(per_s, seconds, chat)
    while per_s is None and time.monotonic() - began < seconds:
        await chat(n_done)
    return n_done / seconds


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report(part: str, figures: Figures, counts: dict[int, int]) -> bool:
    start, step = quantile(figures.starts, 0.95), median(figures.steps)
    health = quantile(figures.health, 0.95)
    holds = start <= START_S + step and health <= HEALTH_S
    print(
        f"{part:11} chats start: median {median(figures.starts) * 1e3:5.0f} ms, 95 % {start * 1e3:5.0f} ms, most "
        f"{max(figures.starts) * 1e3:5.0f} ms; step {step * 1e3:4.0f} ms; /health 95 % {health * 1e3:4.1f} ms, most "
        f"{max(figures.health) * 1e3:4.0f} ms; one embedding: median {median(figures.embeddings) * 1e3:4.0f} ms, most "
        f"{max(figures.embeddings) * 1e3:4.0f} ms; flood {counts or '-'}  {'ok' if holds else 'TOO SLOW'}",
        flush=True,
    )
    return holds


def report_keys(port: int, seconds: float) -> bool:
    rates: dict[tuple[str, bool], float] = {}
    counts: dict[int, int] = {}
    for is_flooded in (False, True):
        with flooding(port, "keys" if is_flooded else "idle", counts):
            for name, per_s in (("one per second", 1.0), ("one after another", None)):
                rates[name, is_flooded] = asyncio.run(rate(port, seconds, per_s))
    for name in ("one per second", "one after another"):
        alone, flooded = rates[name, False], rates[name, True]
        share = flooded / max(alone, 1e-9)
        print(f"keys        chats {name}: {alone:.2f} per second alone, {flooded:.2f} next to the flood: {share:.2f}")
    print(f"            flood {counts}", flush=True)
    return rates["one per second", True] >= RATE * rates["one per second", False]


# --- the server -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[int, int]]:
    """Run the server; yield its port and its process ID."""
    keys = folder / "keys"
    keys.write_text("".join(f"{key}\n" for key in KEYS))
    keys.chmod(0o600)
    models = {"chat": (arguments.model, f"n_ctx = {arguments.n_ctx}"), "embedder": (arguments.embedding_model, "")}
    tables = [
        f"[[models]]\nsource = {json.dumps(source)}\nname = '{name}'\nload = {{ {load} }}\n"
        for name, (source, load) in models.items()
    ]
    (folder / "server.toml").write_text("\n".join(tables))
    command = [sys.executable, "-m", "pyggml", "serve", "--config", str(folder / "server.toml"), "--port", "0"]
    command += ["--load-all", "--api-key-file", str(keys), "--log-level", "warning", *arguments.server_option]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = next(int(found[1]) for line in process.stderr if (found := re.search(r"://127.0.0.1:(\d+)", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--model")
    parser.add_argument("--embedding-model")
    parser.add_argument("--n-ctx", type=int, default=5 * 8192)
    parser.add_argument("--server-option", nargs="+", default=[], help="such as --n-parallel=8")
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        asyncio.run(flood(arguments.port, arguments.flood))
        return 0
    if not (arguments.model and arguments.embedding_model):
        import real_models

        folder = Path(real_models.folder())
        arguments.model = arguments.model or str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
        arguments.embedding_model = arguments.embedding_model or str(folder / "all-MiniLM-L6-v2")
    all_hold = True
    with tempfile.TemporaryDirectory() as temporary, serving(arguments, Path(temporary)) as (port, pid):
        asyncio.run(measure(port, 2))  # warm
        for part in arguments.parts:
            if part == "keys":
                all_hold &= report_keys(port, arguments.seconds)
                continue
            counts: dict[int, int] = {}
            with flooding(port, part, counts):
                figures = asyncio.run(measure(port, arguments.seconds))
            all_hold &= report(part, figures, counts)
            print(f"            {resident_mb(pid)} MB of memory afterwards", flush=True)
            time.sleep(2)
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())

"""Hundreds of clients that hang, leave and lie, while eight honest ones stream: these must not notice.

    python tests/soak/attack_server.py [--model FILE] [--attackers 500] [--tokens 4000] [--rounds 3]

The server and the attackers run in separate processes. Rounds without and with an attack take turns. Afterwards
the server must have what it had before: sequences, handles, threads, descriptors and memory. Everything stays on
127.0.0.1.

Exit status: 0 all is well, 1 an honest client lost tokens or more than a tenth of its speed, or something is left.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import pyggml
from pyggml import lib
from pyggml.server import Settings, create_app, run
from pyggml.server.settings.options import ModelSpec

N_HONEST = 8
# What may be more afterwards: the free lists of the allocator, and threads that start as needed: of the loop, of the
# server's CPU work and of the engine's submissions.
SLACK = {"memory": 32 * 2**20, "threads": min(32, (os.cpu_count() or 1) + 4) + 8 + 10}
SPEED = 0.9


# --- the server -----------------------------------------------------------------------------------------------


def serve(model: str | None, n_ctx: int) -> None:
    """Serves, and writes what it holds as a line of JSON for each line that it is sent."""
    load = {"n_parallel": N_HONEST, "n_ctx": n_ctx, "n_threads": 1}
    app = create_app(Settings(models=(ModelSpec(model),), load=load, header_timeout=5, port=0, log_level="warning"))

    def answer() -> None:
        for _ in sys.stdin:
            print(json.dumps(held(app.state.worker)), flush=True)

    threading.Thread(target=answer, daemon=True).start()
    run(app, app.state.worker.settings, lambda url: print(url, flush=True))


def held(worker: Any) -> dict[str, int]:
    """Return the resources that the server holds now."""
    stats = worker.models.loaded[0].llm.stats()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "cpu_ms": round(time.process_time() * 1000),
        "running": stats.n_running,
        "queued": stats.n_queued,
        "calls": len(worker.running_requests),
        "handles": sum(lib.pyg_live_handles(kind) for kind in range(lib.PYG_HANDLE_KINDS)),
        "threads": int(status["Threads"]),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "memory": int(status["VmRSS"].split()[0]) * 1024,
    }


class Server:
    """The server's process, as the campaign sees it."""

    def __init__(self, model: str | None, n_ctx: int) -> None:
        command = [sys.executable, __file__, "--serve", "--n-ctx", str(n_ctx), *(["--model", model] if model else [])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._line().rpartition(":")[2])

    def held(self) -> dict[str, int]:
        """Return the resources it holds, once nothing is running or half a minute has passed."""
        assert self._process.stdin is not None
        end = time.monotonic() + 30
        while True:
            print(file=self._process.stdin, flush=True)
            found: dict[str, int] = json.loads(self._line())
            if time.monotonic() > end or not (found["running"] or found["queued"] or found["calls"]):
                return found
            time.sleep(0.05)

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait(60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the server has ended"
        return line


# --- clients --------------------------------------------------------------------------------------------------


def request(path: str, **body: Any) -> bytes:
    """A whole request."""
    content = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content


async def honest(port: int, n_tokens: int, has_begun: asyncio.Event) -> tuple[list[int], str]:
    """Streams a story. Returns its token ids and its text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = {"prompt": "Once upon a time", "max_tokens": n_tokens, "ignore_eos": True, "temperature": 0.8, "seed": 1}
    writer.write(request("/execute", **body))
    ids: list[int] = []
    text, name = [], ""
    async for line in reader:
        if line.startswith(b"event: "):
            name = line[7:].decode().strip()
        elif line.startswith(b"data: ") and name == "token":
            token = json.loads(line[6:])
            has_begun.set()
            assert token["index"] == len(ids), "a token is lost"
            ids.append(token["id"])
            text.append(token["text"])
        elif line.startswith(b"data: ") and name in ("end", "error"):
            assert name == "end", line
            break
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return ids, "".join(text)


STREAM = request("/execute", prompt="Once upon a time", max_tokens=100_000, ignore_eos=True)
WHOLE = request("/v1/completions", model="default", prompt="Once upon a time", max_tokens=100_000, ignore_eos=True)
#: What attackers send, and whether they leave soon after, or hang until they are thrown out.
ATTACKS = (
    (b"", False),
    (b"G", False),
    (b"POST /execute HTTP/1.1\r\nhost: localhost\r\nx-a: ", False),
    (b"POST /execute HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{", False),
    (b"POST /execute HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{", False),
    (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea", False),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", False),
    (b"GET / HTTP/1.1\r\nhost: evil.test\r\n\r\n", False),
    (STREAM, True),
    (WHOLE, True),
)


async def attacker(number: int, port: int, seconds: float) -> None:
    """Sends one of the attacks."""
    rng = random.Random(number)
    await asyncio.sleep(rng.uniform(0, seconds / 2))
    sent, leaves = ATTACKS[number % len(ATTACKS)]
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await writer.drain()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(), rng.uniform(0.05, 0.5) if leaves else seconds)
        writer.transport.abort()


async def attack(port: int, n_attackers: int, seconds: float) -> None:
    """Sends all attackers, spread over half of the time."""
    await asyncio.gather(*(attacker(number, port, seconds) for number in range(n_attackers)))


class Round(NamedTuple):
    """The results of the honest clients.

    Attributes:
        tokens_per_s: of all together.
        cpu_ms: of the server, for each token: what a busy machine does not change.
        duration_s: seconds from the first request to the last token.
        answers: token ids and text of each.
    """

    tokens_per_s: float
    cpu_ms: float
    duration_s: float
    answers: list[tuple[list[int], str]]


async def honest_round(server: Server, n_tokens: int, n_attackers: int, seconds: float) -> Round:
    """Streams to all honest clients, attacked once they have begun if there are attackers."""
    command = [sys.executable, __file__, "--attack", str(server.port), str(n_attackers), str(seconds)]
    attackers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) if n_attackers else None
    if attackers is not None and attackers.stdout is not None:
        attackers.stdout.readline()  # once it is ready: its start takes a processor, too
    began = [asyncio.Event() for _ in range(N_HONEST)]
    started, cpu_ms = time.monotonic(), server.held()["cpu_ms"]
    streams = [asyncio.ensure_future(honest(server.port, n_tokens, each)) for each in began]
    await asyncio.gather(*(each.wait() for each in began))
    if attackers is not None and attackers.stdin is not None:
        attackers.stdin.close()
    answers = await asyncio.gather(*streams)
    duration_s = time.monotonic() - started
    if attackers is not None:
        attackers.kill()  # what still hangs is cut off
        attackers.wait()
    n_all = N_HONEST * n_tokens
    return Round(n_all / duration_s, (server.held()["cpu_ms"] - cpu_ms) / n_all, duration_s, answers)


def campaign(model: str | None, n_attackers: int, n_tokens: int, n_rounds: int) -> Iterator[str]:
    """Run rounds by turns, and yield the failures."""
    server = Server(model, N_HONEST * (n_tokens + 256))
    try:
        calm, attacked = [], []
        first = asyncio.run(honest_round(server, n_tokens, 0, 0))
        asyncio.run(honest_round(server, n_tokens, n_attackers, first.duration_s))  # so that nothing grows any more
        before = server.held()
        for _ in range(n_rounds):
            calm.append(asyncio.run(honest_round(server, n_tokens, 0, 0)))
            attacked.append(asyncio.run(honest_round(server, n_tokens, n_attackers, calm[-1].duration_s)))
            print(f"{calm[-1].tokens_per_s:.0f} tokens/s, under attack {attacked[-1].tokens_per_s:.0f}", flush=True)
        calm.append(asyncio.run(honest_round(server, n_tokens, 0, 0)))
        after = server.held()
    finally:
        server.close()
    yield from (message for each in attacked for message in lost(each, n_tokens, model))
    # Each attack against the calm before and after it.
    ratios = [
        each.tokens_per_s * 2 / (one.tokens_per_s + other.tokens_per_s)
        for each, (one, other) in zip(attacked, pairwise(calm), strict=True)
    ]
    each = ", ".join(f"{ratio:.1%}" for ratio in ratios)
    print(f"honest clients keep {median(ratios):.1%} of their speed under attack (the rounds: {each})")
    costs = [median(each.cpu_ms for each in rounds) for rounds in (calm, attacked)]
    print(f"the server needs {costs[0]:.3f} ms of processor time for a token, under attack {costs[1]:.3f}")
    print(f"before: {before}\nafter:  {after}")
    if median(ratios) < SPEED:
        yield f"honest clients keep only {median(ratios):.1%} of their speed"
    for what, number in after.items():
        if what != "cpu_ms" and number > before[what] + SLACK.get(what, 0):
            yield f"{what}: {number} are left, and {before[what]} were there before"


def lost(found: Round, n_tokens: int, model: str | None) -> Iterator[str]:
    """Yield the tokens and answers that honest clients lost."""
    with pyggml.load(model, n_ctx=256) as llm:
        for ids, text in found.answers:
            if len(ids) != n_tokens:
                yield f"{n_tokens - len(ids)} tokens are lost"
            elif llm.detokenize(ids, unparse_special=False).strip() != text.strip():  # streams show no special tokens
                yield "a text is not that of its tokens"


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--attackers", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n-ctx", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.model, given.n_ctx)
    elif given.attack:
        print("ready", flush=True)
        sys.stdin.read()
        asyncio.run(attack(int(given.attack[0]), int(given.attack[1]), float(given.attack[2])))
    else:
        wrong = list(campaign(given.model, given.attackers, given.tokens, given.rounds))
        print("\n".join(wrong) or "all is well")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

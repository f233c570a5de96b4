"""Clients of the worker in the soak test: they stream, disconnect, are refused, and change the model."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from soak.attack_server import request
from soak.stress_requests import SCHEMA, STORY, chosen

PATIENCE_S = 900.0  # as stopped processes and a slow machine want; an engine that hangs takes longer
MODELS = ("one", "other")

Client = Callable[[int, random.Random], Awaitable[str]]


class WrongAnswerError(Exception):
    """An answer that none of our requests can have."""


async def ask(port: int, head: bytes, n_bytes: int | None = None) -> bytes:
    """Sends a request, and reads the answer or so many bytes of it, and leaves."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        if n_bytes is not None:
            return await asyncio.wait_for(reader.read(n_bytes), PATIENCE_S) if n_bytes else b""
        return await asyncio.wait_for(reader.read(-1), PATIENCE_S)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def expect(port: int, head: bytes, *statuses: int) -> str:
    """Asks, and returns the status; 503 is always right, while the other model is being loaded and queues are full."""
    answer = await ask(port, head)
    status = answer[9:12].decode()
    if status not in map(str, (*statuses, 503)):
        raise WrongAnswerError(f"{status} to {head[:400]!r}: {answer[:600]!r}")
    return status


def messages(rng: random.Random) -> list[dict[str, str]]:
    content = rng.choice(
        ["What colour is the sky?", "How many legs has a dog?", "What is 3 and 4?", "Tell me a story."]
    )
    return [{"role": "user", "content": content}]


def model(rng: random.Random) -> str:
    return MODELS[rng.random() < 0.02]


async def chatted(port: int, rng: random.Random) -> str:
    body = {"model": model(rng), "messages": messages(rng), "max_tokens": 40, "temperature": rng.choice([0, 0.8])}
    return await expect(port, request("/v1/chat/completions", **body), 200)


async def streamed(port: int, rng: random.Random) -> str:
    body = {"model": model(rng), "messages": messages(rng), "max_tokens": 60, "stream": True}
    return await expect(port, request("/v1/chat/completions", **body), 200)


async def left(port: int, rng: random.Random) -> str:
    """In the middle of a stream, or before it began."""
    prompt = STORY[: rng.randint(10, len(STORY))]
    head = request("/execute", prompt=prompt, max_tokens=400, ignore_eos=True)
    await ask(port, head, rng.choice([0, 1, 300, 2000]))
    return "left"


async def timed_out(port: int, rng: random.Random) -> str:
    head = request("/execute", prompt=STORY, max_tokens=400, ignore_eos=True, timeout_s=rng.choice([0, 0.01, 0.3]))
    return await expect(port, head, 200)


async def followed_a_schema(port: int, rng: random.Random) -> str:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    body = {"model": model(rng), "messages": messages(rng), "max_tokens": 80, "response_format": form}
    return await expect(port, request("/v1/chat/completions", **body), 200)


async def completed_several(port: int, rng: random.Random) -> str:
    prompts = [STORY[: rng.randint(5, len(STORY))] for _ in range(rng.randint(1, 5))]
    body = {"model": model(rng), "prompt": prompts, "max_tokens": 20, "n": rng.choice([1, 1, 2])}
    return await expect(port, request("/v1/completions", **body), 200)


async def embedded(port: int, rng: random.Random) -> str:
    return await expect(port, request("/v1/embeddings", model=model(rng), input=[STORY[:50], "blue"]), 200, 400, 501)


async def was_refused(port: int, rng: random.Random) -> str:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("/execute", {"prompt": "word " * 3000}),
        ("/execute", {"prompt": "Once", "max_tokens": -1}),
        ("/v1/completions", {"prompt": "Once", "temperature": "hot"}),
        ("/v1/chat/completions", {"messages": [{"role": "unknown"}]}),
        ("/v1/chat/completions", {"model": "none", "messages": messages(rng)}),
    ]
    path, body = rng.choice(wrong)
    return await expect(port, request(path, **body), 400, 404, 413, 422)


async def looked(port: int, rng: random.Random) -> str:
    path = rng.choice(["/metrics", "/health", "/v1/models", "/openapi.json"])
    return await expect(port, f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode(), 200)


async def settled(port: int) -> None:
    """Has the worker be as it was after other rounds: with the first model loaded, which has embedded something."""
    while await expect(port, request("/v1/embeddings", model=MODELS[0], input=["blue"]), 200) != "200":
        await asyncio.sleep(1)


CLIENTS: list[tuple[float, Client]] = [
    (4, chatted),
    (4, streamed),
    (4, left),
    (2, timed_out),
    (1, followed_a_schema),
    (2, completed_several),
    (1, embedded),
    (2, was_refused),
    (2, looked),
]


async def traffic(port: int, rng: random.Random, seconds: float, n_clients: int, tally: Counter[str]) -> None:
    """So many clients at once, each one thing after the other.

    Raises:
        WrongAnswerError: an answer with a status that its request cannot have.
    """
    end = asyncio.get_running_loop().time() + seconds

    async def act(own: random.Random) -> None:
        while asyncio.get_running_loop().time() < end:
            client: Client = chosen(own, CLIENTS)
            tally[f"{client.__name__} {await client(port, own)}"] += 1

    await asyncio.gather(*(act(random.Random(rng.random())) for _ in range(n_clients)))

"""Requests to the server in every protocol, in its own process: each is answered, or refused in its protocol's form."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from starlette.applications import Starlette
from support.checkpoints import models

from fuzz import asgi_client, damage, held, http_answers, http_bodies
from pyggml.server import ModelSpec, Settings, create_app
from pyggml.server.worker import Worker

MAX_SECONDS = 60.0
N_REQUESTS = 60  # of a case
MAX_REQUEST_SECONDS = 30.0
N_TOGETHER = 8  # requests at a time

METHODS = ("GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "post", "X" * 300, "")
PATHS = (
    "/", "", "//", "/v1", "/v1/models/", "/v1/models/default", "/v1/models/../../etc/passwd", "/v1/models/%00",
    "/v1/models/" + "x" * 5000, "/nothing", "/static/../app.py", "/static/", "/favicon.ico", "/v1/chat/completions/",
    "é",
    "*", "/openapi.json", "/metrics", "/health", "/ready", "/props", "/api/show", "\0", "/%2e%2e/",
)  # fmt: skip
HEADERS = (
    ("host", "localhost"), ("host", "evil.test"), ("host", "[::1"), ("host", ""), ("origin", "http://evil.test"),
    ("origin", "null"), ("content-type", "text/plain"), ("content-type", "application/json; charset=latin-1"),
    ("content-type", "multipart/form-data; boundary=x"), ("content-encoding", "gzip"), ("content-length", "-1"),
    ("content-length", "99999999999999999999"), ("content-length", "x"), ("x-request-id", "mine"),
    ("x-request-id", "\xff\xfe"), ("x-request-id", "a" * 10_000), ("authorization", "Bearer x"), ("x-api-key", "\xff"),
    ("anthropic-version", "2023-06-01"), ("accept", "text/event-stream"), ("traceparent", "00-x-y-z"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("range", "bytes=0-"), ("cookie",
    "a=b"),
    ("if-none-match", "*"), ("accept-encoding", "gzip"), ("expect", "100-continue"), ("", "x"), ("x", "y" * 60_000),
)  # fmt: skip


class Prepared(NamedTuple):
    """Objects that all cases use."""

    loop: asyncio.AbstractEventLoop
    running: AbstractAsyncContextManager[Any]  # which ends when its last reference is gone
    app: Starlette
    worker: Worker
    log: held.Log
    start: held.Held


def prepare(folder: Path) -> Prepared:
    app = create_app(settings(folder))
    loop = asyncio.new_event_loop()
    running = app.router.lifespan_context(app)
    loop.run_until_complete(running.__aenter__())
    log = held.Log()
    logging.getLogger("pyggml.server").addHandler(log)
    worker: Worker = app.state.worker
    prepared = Prepared(loop, running, app, worker, log, held.now(worker))
    for number in range(5):  # so that threads and caches are there
        loop.run_until_complete(_case(prepared, make(np.random.default_rng(number))))
    return prepared._replace(start=held.now(worker))


def settings(folder: Path) -> Settings:
    """A small model, which answers in milliseconds, and limits that requests reach."""
    path = models.write_llama(folder / "tiny.gguf", models.byte_vocabulary())
    slots = folder / "slots"
    slots.mkdir(exist_ok=True)
    return Settings(
        slot_save_path=slots,
        models=(ModelSpec(str(path), "tiny"),),
        load={"n_parallel": 4, "n_ctx": 512, "n_threads": 1},
        sampling={"max_tokens": 8},
        max_tokens_limit=64,
        max_body_bytes=2**20,
        max_choices=16,
        body_timeout=0.3,
        log_prompts=True,
        port=0,
    )


def make(random: np.random.Generator) -> list[Any]:
    return [_request(random) for _ in range(int(random.integers(1, 2 * N_REQUESTS)))]


def run(prepared: Prepared, parts: list[Any], folder: Path) -> str:
    del folder
    prepared.log.errors.clear()
    prepared.loop.run_until_complete(_case(prepared, parts))
    prepared.log.raise_first()
    prepared.loop.run_until_complete(held.require_back(prepared.worker, prepared.start))
    return "through"


async def _case(prepared: Prepared, parts: list[Any]) -> None:
    place = asyncio.Semaphore(N_TOGETHER)

    async def one(request: dict[str, Any]) -> None:
        async with place:
            answer = await asyncio.wait_for(asgi_client.ask(prepared.app, request), MAX_REQUEST_SECONDS)
        if request.get("leaves_after") is None:
            assert answer.is_whole, f"no end after {answer.status}"
            http_answers.require_answer(answer.status, answer.headers, answer.body)

    await asyncio.gather(*map(one, parts))


def _request(random: np.random.Generator) -> dict[str, Any]:
    endpoint = http_bodies.ENDPOINTS[int(random.integers(len(http_bodies.ENDPOINTS)))]
    if endpoint.body is None and random.random() < 0.7:  # those that take none have less to go wrong
        endpoint = http_bodies.ENDPOINTS[int(random.integers(len(http_bodies.ENDPOINTS)))]
    body = http_bodies.good(endpoint.path, random)
    if random.random() < 0.85:
        body = http_bodies.changed(endpoint, body, random)
    value: Any = body
    if random.random() < 0.02:
        value = damage.STRANGE[int(random.integers(len(damage.STRANGE)))]
    request: dict[str, Any] = {
        "method": endpoint.method if random.random() < 0.97 else _one(random, METHODS),
        "path": endpoint.path.replace("{name:path}", "tiny") if random.random() < 0.95 else _one(random, PATHS),
        "headers": [["host", "localhost"], ["content-type", "application/json"]],
        "body": http_bodies.written(value, random).decode("latin-1"),
    }
    for _ in range(int(random.choice([0, 1, 3], p=[0.85, 0.1, 0.05]))):
        request["headers"].append(list(_one(random, HEADERS)))
    if random.random() < 0.1:
        request["pieces"] = int(random.integers(1, 20))
    if random.random() < 0.07:
        request["leaves_after"] = int(random.integers(4))
    if random.random() < 0.03:
        request["query"] = _one(random, ("a=b", "%", "\xff", "x" * 5000, "&&==", "model=tiny"))
    return request


def _one(random: np.random.Generator, choices: tuple[Any, ...]) -> Any:
    return choices[int(random.integers(len(choices)))]

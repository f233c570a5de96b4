"""Bytes sent to a server: broken headers, bodies and chunks, pipelined requests, clients that disconnect early."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.servers import servers

from fuzz import damage, held, http_bodies
from fuzz.fuzzers import http_requests

MAX_SECONDS = 90.0
N_CONNECTIONS = 20  # of a case
READ_SECONDS = 3.0  # that a client waits for more, if the server says no end
HEALTHY = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

LINES = (
    b"GET / HTTP/1.1", b"GET /health HTTP/1.0", b"GET /health", b"GET  /health  HTTP/1.1", b"GET /health HTTP/9.9",
    b"get / http/1.1",
    b"OPTIONS * HTTP/1.1", b"CONNECT localhost:80 HTTP/1.1", b"GET http://localhost/health HTTP/1.1", b"PRI * HTTP/2.0",
    b"\x16\x03\x01\x02\x00\x01\x00", b"GET /%ff%00 HTTP/1.1", b"GET /\xc3\xa9\xff HTTP/1.1",
    b"POST /execute HTTP/1.1", b"",
    b"G" * 70_000 + b" / HTTP/1.1", b"GET /" + b"a" * 70_000 + b" HTTP/1.1", b"HEAD /health HTTP/1.1",
    b"TRACE / HTTP/1.1",
    b"GET /static/../../etc/passwd HTTP/1.1", b"GET /static/%2e%2e/app.py HTTP/1.1", b"GET /v1/models/%2F%2Fx HTTP/1.1",
)  # fmt: skip
FIELDS = (
    b"host: localhost", b"host: localhost", b"Host:localhost", b"host: evil.test", b"host", b": x", b" folded",
    b"\tfolded: x",
    b"content-length: 0", b"content-length: 5", b"content-length: -5", b"content-length: 5, 5", b"content-length: 0x5",
    b"content-length: 99999999999999999999999", b"transfer-encoding: chunked", b"transfer-encoding: gzip, chunked",
    b"transfer-encoding: chunked\r\ncontent-length: 3", b"transfer-encoding: xchunked", b"expect: 100-continue",
    b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: AAAA\r\nsec-websocket-version: 13",
    b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABk", b"connection: close",
    b"connection: keep-alive",
    b"x: " + b"y" * 70_000, b"x\x00y: z", b"x: \x00", b"x: \xff\xfe", b"x:\x0b\x0c", b"\xff: x",
    b"cookie: " + b"a=b; " * 3000,
    b"content-type: application/json", b"accept: text/event-stream", b"x: a\rb: c", b"x: a\nb: c",
)  # fmt: skip
CHUNKS = (
    b"0\r\n\r\n", b"5\r\nhello\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"5\r\nhell", b"g\r\n",
    b"5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\n",
    b"\r\n", b"00000000000000000005\r\nhello\r\n", b"5\nhello\n0\n\n", b"2\r\n{}\r\n0\r\n\r\n", b"5 \r\nhello\r\n",
    b"0\r\n" + b"x: y\r\n" * 3000,
)  # fmt: skip


class Prepared(NamedTuple):
    """Objects that all cases use."""

    running: servers.Running
    keep: ExitStack
    log: held.Log
    start: held.Held


def prepare(folder: Path) -> Prepared:
    log = held.Log()
    for name in ("pyggml.server", "uvicorn.error", "asyncio"):
        logging.getLogger(name).addHandler(log)
    settings = http_requests.settings(folder)
    keep = ExitStack()
    running = keep.enter_context(
        servers.running(**{**vars(settings), "header_timeout": 0.5, "keep_alive_timeout": 1.0, "send_timeout": 2.0})
    )
    prepared = Prepared(running, keep, log, held.now(running.worker))
    for number in range(3):
        asyncio.run(_case(prepared, make(np.random.default_rng(number))))
    return prepared._replace(start=held.now(running.worker))


def make(random: np.random.Generator) -> list[Any]:
    """Each part is a connection: [[kind, value], ...]; bytes are written in latin-1."""
    return [_connection(random) for _ in range(int(random.integers(1, 2 * N_CONNECTIONS)))]


def run(prepared: Prepared, parts: list[Any], folder: Path) -> str:
    del folder
    prepared.log.errors.clear()
    asyncio.run(_case(prepared, parts))
    prepared.log.raise_first()
    asyncio.run(held.require_back(prepared.running.worker, prepared.start))
    return "through"


async def _case(prepared: Prepared, parts: list[Any]) -> None:
    await asyncio.gather(*(_connect(prepared.running.host, each) for each in parts))
    answer = await asyncio.wait_for(
        _connect(prepared.running.host, [["send", HEALTHY.decode("latin-1")], ["read", None]]), 20
    )
    assert answer.startswith(b"HTTP/1.1 200"), f"afterwards the server says {answer[:200]!r}"


async def _connect(host: tuple[str, int], steps: list[Any]) -> bytes:
    """Does the steps of a connection; returns what came."""
    came = b""
    reader, writer = await asyncio.open_connection(*host)
    with contextlib.suppress(ConnectionError):
        for kind, value in steps:
            if kind == "send":
                writer.write(value.encode("latin-1"))
                await writer.drain()
            elif kind == "wait":
                await asyncio.sleep(value)
            elif kind == "finish":
                with contextlib.suppress(OSError):  # the server has closed the connection
                    writer.write_eof()
            elif kind == "reset":
                writer.transport.abort()
                return came
            elif kind == "read":
                came += await _all(reader)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    _require_answers(came)
    return came


async def _all(reader: asyncio.StreamReader) -> bytes:
    """Read until the connection ends, or no data comes for a while."""
    came, end = b"", time.monotonic() + 10 * READ_SECONDS
    with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
        while piece := await asyncio.wait_for(reader.read(1 << 16), READ_SECONDS):
            came += piece
            assert time.monotonic() < end, "an answer without end"
    return came


def _require_answers(came: bytes) -> None:
    """Whatever comes begins like an answer, and none says that the server failed."""
    assert not came or came.startswith(b"HTTP/1.1 "), f"no answer: {came[:200]!r}"
    for line in came.split(b"\r\n"):
        assert not line.startswith(b"HTTP/1.1 500"), f"the server failed: {came[:400]!r}"


def _connection(random: np.random.Generator) -> list[Any]:
    content = b"".join(_message(random) for _ in range(int(random.choice([1, 2, 5], p=[0.75, 0.2, 0.05]))))
    if random.random() < 0.3:
        content = damage.with_changed_span(content, random)
    steps: list[Any] = []
    n_pieces = int(random.choice([1, 2, 10], p=[0.7, 0.2, 0.1]))
    size = max(-(-len(content) // n_pieces), 1)
    for at in range(0, len(content), size):
        steps.append(["send", content[at : at + size].decode("latin-1")])
        if n_pieces > 1 and random.random() < 0.3:
            steps.append(["wait", round(float(random.uniform(0, 0.05)), 3)])
    ending = random.random()
    if ending < 0.1:
        return [*steps, ["reset", None]]
    if ending < 0.2:
        return steps
    return [*steps, *([["finish", None]] if ending < 0.4 else []), ["read", None]]


def _message(random: np.random.Generator) -> bytes:
    """A request; half of them are as requests are, but for what is changed afterwards."""
    if random.random() < 0.5:
        return _plain(random)
    fields = [FIELDS[int(random.integers(len(FIELDS)))] for _ in range(int(random.integers(0, 6)))]
    head = b"\r\n".join([LINES[int(random.integers(len(LINES)))], *fields, b"", b""])
    if random.random() < 0.1:
        head = head.replace(b"\r\n", b"\n")
    return head + b"".join(CHUNKS[int(random.integers(len(CHUNKS)))] for _ in range(int(random.integers(0, 4))))


def _plain(random: np.random.Generator) -> bytes:
    endpoint = http_bodies.ENDPOINTS[int(random.integers(len(http_bodies.ENDPOINTS)))]
    body = http_bodies.written(http_bodies.good(endpoint.path, random), random) if endpoint.body else b""
    path = endpoint.path.replace("{name:path}", "tiny")
    head = f"{endpoint.method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    if random.random() < 0.3:
        head = head.replace(f"content-length: {len(body)}", "transfer-encoding: chunked")
        body = (
            b"".join(b"%x\r\n%b\r\n" % (len(body[at : at + 50]), body[at : at + 50]) for at in range(0, len(body), 50))
            + b"0\r\n\r\n"
        )
    if random.random() < 0.5:
        head += "connection: close\r\n"
    return head.encode() + b"\r\n" + body

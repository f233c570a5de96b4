"""Hundreds of streams at once: each gets all its tokens, and no resources leak."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from pathlib import Path

import pytest
from support.servers import servers

from pyggml import lib
from pyggml.server import Settings, create_app

N_STREAMS, N_TOKENS = 256, 4


async def streamed(port: int, number: int) -> bytes:
    """The whole answer of one stream, on a connection of its own."""
    body = {"prompt": [number], "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
    content = json.dumps({**body, "stream_options": {"include_usage": True}}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def all_streamed(port: int) -> list[bytes]:
    return await asyncio.gather(*(streamed(port, number) for number in range(100, 100 + N_STREAMS)))


def held() -> dict[str, int]:
    """Resources of the process."""
    gc.collect()
    handles = sum(lib.pyg_live_handles(kind) for kind in range(lib.PYG_HANDLE_KINDS))
    n_descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return {"handles": handles, "descriptors": n_descriptors, "threads": threading.active_count()}


def grown(before: dict[str, int]) -> dict[str, int]:
    """Resources that have grown."""
    return {name: number - before[name] for name, number in held().items() if number > before[name]}


@pytest.mark.slow
def test_all_get_their_tokens_and_leave_nothing() -> None:
    settings = Settings(load={"n_parallel": 32, "n_ctx": 2048, "prefix_cache": False}, log_level="warning")
    with servers.serving(create_app(settings)) as url:
        port = int(url.rpartition(":")[2])
        asyncio.run(all_streamed(port))
        before = held()
        for answer in asyncio.run(all_streamed(port)):
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            assert b'"completion_tokens":%d' % N_TOKENS in answer
            assert b"data: [DONE]\n\n" in answer
        deadline = time.monotonic() + 20
        while grown(before) and time.monotonic() < deadline:
            time.sleep(0.05)  # the server notices closed connections a moment later
        assert not grown(before)

"""docs/how-to/embed-in-fastapi.md under a real uvicorn: answers, refusals before the headers, lost clients."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support import recipes
from support.event_loops import until
from support.recipes import LONG, Server, chat

N_PARALLEL, MAX_QUEUE = 8, 16  # as the page has them


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page's server, with a model that talks until it is stopped."""
    directory = recipes.write_programs("embed-in-fastapi", tmp_path_factory.mktemp("fastapi"))
    port, talker = recipes.free_port(), recipes.write_talker(directory / "talker.gguf")
    start = [*recipes.command("embed-in-fastapi", "uvicorn app:app"), "--port", str(port)]
    with recipes.serve(start, directory, port, MODEL=str(talker)) as server:
        yield server
        assert not server.complaints()
    assert "Application shutdown complete" in server.log.read_text()


@pytest.mark.slow
def test_it_streams_events(server: Server) -> None:
    with server.open("/chat", chat(max_tokens=20)) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.read().strip().split("\n\n")
    assert all(event.startswith('data: {"content": ') for event in events)
    assert '"finish_reason": "length"' in events[-1]
    whole = server.ask("/chat/whole", chat(max_tokens=20))
    assert whole["role"] == "assistant"
    assert whole["content"]


@pytest.mark.parametrize("path", ["/chat", "/chat/whole"])
@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (chat("a dog " * 10_000), 400, "shorten the prompt"),
        ({"messages": [{"role": "usr", "content": "Hello"}]}, 400, "roles are"),
        ({"messages": []}, 400, "messages"),
        (chat(max_tokens=0), 422, "greater than 0"),
        ({"messages": "Hello"}, 422, "valid list"),
    ],
    ids=["too long", "unknown role", "no messages", "no tokens", "no list"],
)
def test_what_is_wrong_is_said_before_the_headers(
    server: Server, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    with server.open(path, body) as answer:
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert words in answer.read()


@pytest.mark.parametrize("path", ["/chat", "/chat/whole"])
def test_who_goes_away_is_not_computed_for(server: Server, path: str) -> None:
    before = server.ask("/stats")["n_generated_tokens"]
    if path == "/chat":
        answer = server.open(path, LONG)
        answer.some()
        answer.close()
    else:
        impatient(server, path)
    until(server.is_idle)
    assert server.ask("/stats")["n_generated_tokens"] < before + 4096


def impatient(server: Server, path: str) -> None:
    """Sends a request and goes away once it is computed, without an answer."""
    import http.client
    import json

    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", path, json.dumps(LONG), {"Content-Type": "application/json"})
    until(lambda: server.ask("/stats")["n_running"] == 1)
    connection.close()


@pytest.mark.slow
def test_a_full_queue_is_a_429(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(N_PARALLEL + MAX_QUEUE):
            assert stack.enter_context(server.open("/chat", LONG)).status == 200
        with server.open("/chat", LONG) as refused:
            assert refused.status == 429
            assert "16" in refused.read()
    until(server.is_idle)
    assert server.ask("/chat/whole", chat(max_tokens=2))["content"]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3, 20])
def test_clients_that_come_and_go_leave_nothing_behind(server: Server, seconds: int) -> None:
    end = time.monotonic() + seconds

    def come_and_go(seed: int) -> set[int]:
        draw, seen = random.Random(seed), set()
        while time.monotonic() < end:
            with server.open("/chat", chat(str(seed), max_tokens=draw.choice([1, 50, 4096]))) as answer:
                seen.add(answer.status)
                for _ in range(draw.choice([0, 1, 5, 10_000])):
                    if answer.status != 200 or time.monotonic() > end or not answer.some():
                        break
        return seen

    n_open = n_descriptors(server)
    with ThreadPoolExecutor(64) as pool:
        seen = set().union(*pool.map(come_and_go, range(64)))
    assert seen == {200, 429}
    until(server.is_idle)
    until(lambda: n_descriptors(server) <= n_open)


def n_descriptors(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))  # noqa: PTH208

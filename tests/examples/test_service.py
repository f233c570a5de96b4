"""examples/service.py under uvicorn: tickets, replies as server-sent events, errors, clients that disconnect."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support import recipes
from support.event_loops import until
from support.examples import EXAMPLES
from support.recipes import Answer, Server

HELLO = {"text": "Hello, where are my shoes?"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service, with a model that talks until it is stopped."""
    directory = tmp_path_factory.mktemp("service")
    port, talker = recipes.free_port(), recipes.write_talker(directory / "talker.gguf")
    start = [sys.executable, str(EXAMPLES / "service.py"), "-m", str(talker), "--port", str(port)]
    with recipes.serve(start, directory, port) as server:
        yield server
        assert not server.complaints()


def events(answer: Answer) -> list[tuple[str, Any]]:
    """Read the events of a stream: their names, and their data as JSON."""
    read = []
    for block in answer.read().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        read.append((fields.get("event", "message"), json.loads(fields["data"])))
    return read


@pytest.mark.slow
def test_a_reply_is_a_stream_of_events(server: Server) -> None:
    with server.open("/replies", HELLO) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        *chunks, (name, end) = events(answer)
    assert len(chunks) > 1
    assert all(name == "message" and isinstance(text, str) and text for name, text in chunks)
    assert (name, end) == ("done", {"reason": "length", "tokens": 1000})


@pytest.mark.slow
def test_a_ticket_follows_the_form(server: Server) -> None:
    ticket = server.ask("/tickets", HELLO)
    assert list(ticket) == ["customer", "product", "request"]
    assert len(ticket["customer"]) <= 30
    assert ticket["request"] in ("refund", "repair", "replacement", "information")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/tickets", "/replies"])
def test_errors_have_a_status(server: Server, path: str) -> None:
    with server.open(path, {"text": ""}) as answer:
        assert answer.status == 422
    with server.open(path, {"text": "ab" * 10_000}) as answer:
        assert answer.status == 422


@pytest.mark.slow
def test_a_client_that_disconnects_cancels_its_reply(server: Server) -> None:
    before = server.ask("/health")["n_generated_tokens"]
    answer = server.open("/replies", HELLO)
    answer.some()
    answer.close()
    until(lambda: server.ask("/health")["n_running"] == 0)
    assert server.ask("/health")["n_generated_tokens"] < before + 1000


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_refused_before_the_stream_begins(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("short")
    port = recipes.free_port()
    start = [sys.executable, str(EXAMPLES / "service.py"), "--port", str(port)]
    with recipes.serve(start, directory, port) as server, server.open("/replies", {"text": "1 " * 2000}) as answer:
        assert answer.status == 400
        assert "1024" in answer.read()
